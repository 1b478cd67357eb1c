"""neo_4d from the command line: planned for ZionEX, simulated there, trained here."""

from __future__ import annotations

import json

import pytest

from tests.end_to_end.lines import SMALL, line, result


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_line_plans_simulates_and_trains(tmp_path, cache):
    words = ("sharder=neo_4d", "cluster=zionex_x16", "trainer.max_steps=20", "simulate.batch_size=256", *SMALL)
    done = line(*words, f"hydra.run.dir={tmp_path}", cache=cache)
    assert done.code == 0, done.err
    made = result(tmp_path)
    assert made["choices"]["sharder"] == "neo_4d" and made["simulated"]["world_size"] == 128 and made["measured"]["world_size"] == 4
    assert made["simulated"]["profile"].endswith("_pipelined")
    schemes = {p["scheme"] for p in json.loads((tmp_path / "plan_here.json").read_text())["placements"]}
    assert schemes <= {"table_wise", "data_parallel", "column_wise", "table_row_wise", "row_wise", "grid_shard", "table_column_wise"}
    assert "slowest ranks" in line("show", str(tmp_path), "--plan", cache=cache, program=("-m", "recsys_lab")).out


def test_model_f_is_in_host_memory_and_without_it_exits_with_3_and_the_nearest_change(tmp_path, cache):
    words = ("model=neo_f", "data=random", "sharder=neo_4d", "cluster=zionex_x16", "mode=plan", "precision=fp16_tables", "logger=none")
    done = line(*words, f"hydra.run.dir={tmp_path}", cache=cache)
    assert done.code == 0 and "tables in the host's memory" in done.out, done.err
    done = line(*words, "sharder.store=none", f"hydra.run.dir={tmp_path / 'none'}", cache=cache)
    assert done.code == 3 and "nearest change that would fit: cluster.hosts=" in done.err
