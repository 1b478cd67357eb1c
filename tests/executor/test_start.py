"""A model that begins with first-order weights has them in the right column of the right rows, wherever a table's rows lie."""

from __future__ import annotations

import numpy as np
import torch

from recsys_lab.executor.shard import shard
from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.dcn import DCN
from recsys_lab.models.first_order import FirstOrder
from recsys_lab.precision import Precision
from recsys_lab.tables import Table
from tests.executor.reference import EPS, LR, SEED
from tests.executor.sharded import FP32, How, gathered, hot_rows_of, placed
from tests.models.inputs import SETTINGS
from tests.ranks import run_ranks

TABLES = (Table("odd", 13, 8, ("f_odd",)), Table("tiny", 3, 8, ("f_tiny",)))
DENSE = 2
START = FirstOrder({"odd": (np.array([1, 4, 12]), np.array([0.5, -2.0, 1.25], np.float32))}, np.array([3.0, -1.0], np.float32), 0.75)
WAYS: list[How] = [{"*": "table_wise"}, {"*": "row_wise"}, {"*": "column_wise"}, {"odd": (2, 5), "tiny": (1, 1)}]
SPLIT = Precision("split", table="split_bf16")
CHANGES = {"embedding_dim": 8, "bottom_layers": [6, 8], "first_order": True}


def begun() -> list[tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]]:
    found = []
    for how, precision in [(how, FP32) for how in WAYS] + [(WAYS[1], SPLIT)]:
        tables = tuple(Table(t.name, t.rows, t.dim, t.features, dtype=precision.table) for t in TABLES)
        made = placed(tables, how)
        model = DCN(**SETTINGS["DCN"] | CHANGES).build(ModelInputs(tables, DENSE, torch.device("meta")))
        hot = hot_rows_of(made)
        both = shard(model, made, torch.device("cpu"), ("sgd", LR, EPS, 0.0), precision, SEED, hot_rows=hot, start=START)
        dense = {name: p.detach().clone() for name, p in both.dense_parameters()}
        found.append((gathered(both, tables)[0], dense))
    return found


def test_first_order_weights_are_where_their_rows_are() -> None:
    odd = torch.zeros(13)
    odd[[1, 4, 12]] = torch.tensor([0.5, -2.0, 1.25])
    for rank in run_ranks(begun, 2, 2):
        for weights, dense in rank:
            assert torch.equal(weights["odd"][:, 0], odd) and torch.equal(weights["tiny"][:, 0], torch.zeros(3))
            assert (weights["odd"][:, 1:] != 0).all(), "the other columns are drawn"
            assert torch.equal(dense["first_dense.weight"], torch.from_numpy(START.dense)[None])
            last = max(name for name in dense if name.startswith("over.") and name.endswith("weight"))
            assert not dense[last].any() and dense[last.replace("weight", "bias")].item() == 0.75
