"""The same line under torchrun: its processes are the ranks, and one of them writes."""

from __future__ import annotations

from tests.end_to_end.lines import SMALL, line, result

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "run.py")


def test_under_torchrun(tmp_path, cache):
    done = line(*SMALL, "mode=train", f"hydra.run.dir={tmp_path / 'run'}", cache=cache, program=TORCHRUN)
    assert done.code == 0, done.err
    made = result(tmp_path / "run")
    assert made["status"] == "completed" and made["choices"]["launcher"] == "torchrun"
    assert (made["measured"]["world_size"], made["measured"]["hosts"]) == (2, 1)
    assert done.out.count("quality") == 2, done.out  # two splits, said once
