"""Tables larger than the memory that a run may use, from the command line: the bits of a run in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.end_to_end.lines import line, result
from tests.end_to_end.stores import BUDGET, contents, metrics, table_file, words

SHARDERS = ("torchrec_row_wise", "neo_4d")  # neo_4d fetches the next batch's rows while this one computes
PRECISIONS = {
    "fp32": ("precision=fp32", "optimizer=row_wise_adagrad"),
    "split_sgd_bf16": ("precision=split_sgd_bf16", "optimizer.sparse.name=sgd", "optimizer.dense.name=sgd"),
}
QUICK = {("torchrec_row_wise", 1, "split_sgd_bf16", "lru"), ("neo_4d", 2, "fp32", "lfu")}
CASES = [(s, ranks, p, policy) for s in SHARDERS for ranks in (1, 2) for p in PRECISIONS for policy in ("lfu", "lru")]


def trained(folder: Path, cache: Path, *given: str) -> Path:
    done = line(*given, f"hydra.run.dir={folder}", cache=cache)
    assert done.code == 0, done.err
    return folder


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("sharder", "ranks", "precision", "policy"), [case if case in QUICK else pytest.param(*case, marks=pytest.mark.long) for case in CASES]
)
def test_rows_in_a_file_change_no_bit(sharder: str, ranks: int, precision: str, policy: str, tmp_path: Path, cache: Path) -> None:
    given = (*words(table_file(tmp_path), ranks), f"sharder={sharder}", *PRECISIONS[precision])
    memory = trained(tmp_path / "memory", cache, *given)
    stores = trained(tmp_path / "stores", cache, *given, BUDGET[ranks], f"sharder.cache_policy={policy}")
    assert result(memory)["measured"].get("stores") is None
    counted = [counts for of_rank in result(stores)["measured"]["stores"] for counts in of_rank.values()]
    assert sum(counts["bytes_written"] for counts in counted) > 0 < sum(counts["bytes_read"] for counts in counted)
    assert metrics(stores) == metrics(memory)
    ours, theirs = contents(stores), contents(memory)
    assert ours.keys() == theirs.keys()
    assert [key for key, value in theirs.items() if not torch.equal(ours[key], value)] == []
