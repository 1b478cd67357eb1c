"""Training on a GPU, where there is one: what a CPU learns, with ranks that share the GPU, and killed runs come back with their bits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.end_to_end.lines import SMALL, bits, killed, line, result

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use")
ONE = ("launcher.hosts=1", "launcher.ranks_per_host=1")


def trained(folder: Path, cache: Path, *words: str) -> dict[str, float]:
    """What a run of the small DLRM scores on the validation split, without dropout, whose draws differ by device."""
    done = line("model=dlrm", *SMALL, "model.dropout=0", *words, f"hydra.run.dir={folder}", cache=cache)
    assert done.code == 0, done.err
    return result(folder)["quality"]["validation"]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "split_sgd_bf16", "fp16_tables"])
def test_a_gpu_learns_what_a_cpu_learns(precision: str, cache: Path, tmp_path: Path) -> None:
    on = {
        device: trained(tmp_path / device, cache, *ONE, f"precision={precision}", f"trainer.device={device}") for device in ("cpu", "cuda")
    }
    assert on["cuda"]["log_loss"] == pytest.approx(on["cpu"]["log_loss"], rel=2e-3)
    assert on["cuda"]["auc"] == pytest.approx(on["cpu"]["auc"], abs=5e-3)


@pytest.mark.parametrize("sharder", ["torchrec", "neo_4d", "flexshard_2tier", "dmt_sptt"])
def test_ranks_that_share_a_gpu_learn_what_ranks_on_cpus_learn(sharder: str, cache: Path, tmp_path: Path) -> None:
    words = ("launcher.hosts=2", "launcher.ranks_per_host=2", f"sharder={sharder}")
    on = {device: trained(tmp_path / device, cache, *words, f"trainer.device={device}") for device in ("cpu", "cuda")}
    assert on["cuda"]["log_loss"] == pytest.approx(on["cpu"]["log_loss"], rel=2e-3)
    measured = result(tmp_path / "cuda")["measured"]
    assert measured["backend"] == ("nccl" if torch.cuda.device_count() >= 4 else "gloo")


@pytest.mark.parametrize("policy", ["lfu", "lru"])
def test_rows_in_host_memory_learn_what_rows_on_a_cpu_learn(policy: str, cache: Path, tmp_path: Path) -> None:
    """Half of them cached: on the GPU by FBGEMM, on the CPU by our cache."""
    words = (*ONE, "sharder=torchrec_row_wise", "optimizer=row_wise_adagrad", "sharder.store=host_cached", "sharder.cached_share=0.5")
    on = {
        device: trained(tmp_path / device, cache, *words, f"sharder.cache_policy={policy}", f"trainer.device={device}")
        for device in ("cpu", "cuda")
    }
    assert on["cuda"]["log_loss"] == pytest.approx(on["cpu"]["log_loss"], rel=2e-3)
    assert on["cuda"]["auc"] == pytest.approx(on["cpu"]["auc"], abs=5e-3)


def test_a_killed_run_on_a_gpu_resumes_to_the_same_end(cache: Path, tmp_path: Path) -> None:
    """With dropout: the GPU's random state comes back too."""
    words, folder = ("model=dlrm", *SMALL, *ONE, "trainer.device=cuda"), tmp_path / "run"
    done = line(*words, f"hydra.run.dir={tmp_path / 'undisturbed'}", cache=cache)
    assert done.code == 0, done.err
    killed(*words, f"hydra.run.dir={folder}", cache=cache, when=lambda: any((folder / "checkpoints").glob("step=*")), pause_s=0.3)
    done = line(f"resume={folder}", cache=cache)
    assert done.code == 0, done.err
    assert bits(folder) == bits(tmp_path / "undisturbed")


def test_a_gpu_reads_histories_as_a_cpu_does(cache: Path, tmp_path: Path) -> None:
    """HSTU, whose attention is a kernel there: users who each take every seventh item."""
    log = [f"{user}\t{(user * 3 + 7 * step) % 97}\t5\t{step}" for user in range(400) for step in range(8 + user % 30)]
    (tmp_path / "log.tsv").write_text("\n".join(["user\titem\trating\ttime", *log, ""]))
    data = ("data=interactions", f"data.root={tmp_path}", f"data.cache={tmp_path / 'sorted'}", "data.batch_size=64")
    told = {}
    for device in ("cpu", "cuda"):
        words = ("model=hstu", "sharder=torchrec_row_wise", "model.dropout=0", "trainer.max_epochs=6", "logger=none", "baselines=false")
        done = line(*words, *data, *ONE, f"trainer.device={device}", f"hydra.run.dir={tmp_path / device}", cache=cache)
        assert done.code == 0, done.err
        told[device] = result(tmp_path / device)["quality"]["validation"]
    assert told["cuda"]["ndcg_10"] == pytest.approx(told["cpu"]["ndcg_10"], abs=0.03) and told["cpu"]["ndcg_10"] > 0.1
