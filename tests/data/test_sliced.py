"""Tables cut by columns, each slice a feature: the same look-ups, and under towers of DCN the same vectors as the whole."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.data.capped import capped
from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.sliced import sliced
from recsys_lab.errors import UserError
from recsys_lab.experiment import Experiment, of_words
from recsys_lab.models.click_model import ClickModel
from recsys_lab.planning import plan_for
from tests.data.helpers import array_data

WORDS = ["data.rows_per_table=[40,30,20]", "data.look_ups=[1,3,2]", "data.dense_features=0", "model.embedding_dim=8"]
WORDS += ["model.bottom_layers=[8]", "cluster=h100x16", "logger=none"]


def experiment(*words: str) -> Experiment:
    return of_words([*WORDS, *words], where="test")


def test_every_slice_has_the_ids_of_the_whole() -> None:
    data = array_data(100)
    cut = sliced(data, 3)
    assert sliced(data, 1) is data and cut.fingerprint not in (data.fingerprint, sliced(data, 2).fingerprint)
    assert [f.name for f in cut.features] == [f"{f.name}:{n}" for f in data.features for n in range(3)]
    rows = np.array([7, 3, 99, 7])
    whole, of_slices = (d.splits["train"].read(rows) for d in (data, cut))
    ids = np.split(of_slices.ids, np.cumsum(of_slices.lengths.sum(1))[:-1])
    of_whole = np.split(whole.ids, np.cumsum(whole.lengths.sum(1))[:-1])
    for number, own in enumerate(ids):
        assert own.tolist() == of_whole[number // 3].tolist()
        assert of_slices.lengths[number].tolist() == whole.lengths[number // 3].tolist()
    assert of_slices.labels.tolist() == whole.labels.tolist()
    for name, access in data.access.tables.items():
        assert all(cut.access[f"{name}:{n}"] == dataclasses.replace(access, table=f"{name}:{n}") for n in range(3))


def test_counts_hot_rows_and_smaller_tables_are_those_of_the_whole() -> None:
    counts = [np.arange(1000), np.arange(1000)[::-1].copy()]
    data = dataclasses.replace(array_data(100), row_counts=lambda: counts, groups=tuple((f.name,) for f in array_data(100).features))
    cut = sliced(data, 2)
    for feature in data.features:
        for n in range(2):
            assert cut.hottest(f"{feature.name}:{n}", 5).tolist() == data.hottest(feature.name, 5).tolist()
    by_law = dataclasses.replace(data, row_counts=None, hottest_by_law=lambda table, rows: np.arange(rows) + ord(table[0]))
    first = data.features[0].name
    assert sliced(by_law, 2).hottest(f"{first}:1", 3).tolist() == by_law.hottest(first, 3).tolist()
    assert cut.groups[0] == (f"{first}:0", f"{first}:1")
    assert [c.tolist() for c in capped(cut, 7).row_counts()] == [c.tolist() for c in sliced(capped(data, 7), 2).row_counts()]  # type: ignore[misc]


CHANGED = {"features", "splits", "access", "fingerprint", "notes", "row_counts", "hottest_by_law", "groups"}


def test_every_other_field_survives() -> None:
    data = dataclasses.replace(array_data(10), best_auc={"test": 0.9}, learnable=False, chooses_settings=True, groups=(("a",),))
    cut = sliced(data, 2)
    assert {f.name for f in dataclasses.fields(OpenDataSet) if getattr(data, f.name) is not getattr(cut, f.name)} <= CHANGED


def trained_logits(model: ClickModel, batch: KeyedJaggedTensor) -> torch.Tensor:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        model(None, batch).square().sum().backward()
        optimizer.step()
    return model(None, batch)


def test_a_flat_dcn_over_slices_is_the_dcn_over_the_whole() -> None:
    """Without dense features, whose vector is as wide as a slice: crosses see all columns side by side."""
    whole, cut = (experiment("model=dcn", "data=random", "sharder=dmt_sptt", f"sharder.towers.column_slices={k}") for k in (1, 2))
    models, batches = [], []
    for one in (whole, cut):
        data = one.open_data()
        torch.manual_seed(1)
        models.append(one.build_model(data, torch.device("cpu")))
        read = data.splits["train"].read(np.arange(6))
        names = [feature.name for feature in data.features]
        lengths = torch.from_numpy(read.lengths.reshape(-1))
        batches.append(KeyedJaggedTensor(names, torch.from_numpy(read.ids), lengths=lengths))
    weights = dict(models[0].state_dict())
    for name in [name for name in weights if name.startswith("embeddings")]:
        table = weights.pop(name)
        for number, columns in enumerate(table.chunk(2, dim=1)):
            weights[name.replace(".weight", f":{number}.weight")] = columns
    models[1].load_state_dict(weights)
    expected, found = (trained_logits(model, batch) for model, batch in zip(models, batches))
    assert torch.equal(found, expected)


@pytest.mark.parametrize("model", ["dlrm", "dcn", "xlrm"])
def test_towers_share_a_table_and_what_follows_them_is_as_wide(model: str) -> None:
    """Four towers of three tables, of which strides give a table's slices to several."""
    fixed = ["model.rows=[40,30,20]", "model.lengths=[1,3,2]", "model.groups=null", "model.dense_features=0"] if model == "xlrm" else []
    line = [f"model={model}", "data=random", "sharder=dmt", "cluster.hosts=4", "cluster.ranks_per_host=2", *fixed]
    cut = experiment(*line, "sharder.towers.column_slices=2", "sharder.towers.count=4")
    planned = plan_for(cut, cut.open_data())
    assert [table.dim for table in planned.tables] == [4] * 6
    assert {name.partition(":")[0] for name in planned.plan.towers[0]} & {name.partition(":")[0] for name in planned.plan.towers[1]}
    towers = planned.plan.towers
    built = cut.build_model(cut.open_data(), torch.device("meta"), towers)
    assert built.vector_dim == 8  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="each tower needs a table"):
        whole = experiment(*line, "sharder.towers.count=4")
        plan_for(whole, whole.open_data())


def test_slices_are_equal() -> None:
    uneven = experiment("model=dcn", "data=random", "sharder=dmt", "sharder.towers.column_slices=3")
    with pytest.raises(UserError, match=r"column_slices.*slices are equal.*3 of 8 columns.*a divisor"):
        uneven.tables(uneven.open_data())
