"""A sweep's folder over several calls: where a job runs, what is missing, and what is never repeated."""

from __future__ import annotations

import io
import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf
from rich.console import Console

from recsys_lab.config.command_line import Sweep
from recsys_lab.job import CUT_SHORT
from recsys_lab.record.result import Failure, Pruned
from recsys_lab.sweeps import folder as sweep_folder
from recsys_lab.sweeps import job
from recsys_lab.sweeps.ablation import read_ablation, write_ablation
from recsys_lab.sweeps.job import CODES, StartedJob, codes_elsewhere, run_in_sweep
from recsys_lab.sweeps.live import SweepShown
from tests.record.fake_run import failed, make_result, write_run
from tests.sweeps.test_ablation import rows_of, sweep


def begun(sweep: Path, name: str, overrides: list[str]) -> None:
    (sweep / name / ".hydra").mkdir(parents=True)
    (sweep / name / ".hydra/overrides.yaml").write_text(yaml.safe_dump(overrides))


def test_a_job_finds_the_folder_of_its_choices_and_never_that_of_another(tmp_path):
    begun(tmp_path, "0", ["model=dlrm", "seed=1"])
    begun(tmp_path, "1", ["seed=2", "model=dlrm", "logger=none", "ablation.baseline=none"])
    assert sweep_folder.folder_for(tmp_path, ["seed=2", "model=dlrm"], 0) == "1"
    assert sweep_folder.folder_for(tmp_path, ["model=dlrm", "seed=1", "logger.project=x"], 7) == "0"
    assert sweep_folder.folder_for(tmp_path, ["model=dcn", "seed=1"], 1) == "2"
    assert sweep_folder.folder_for(tmp_path, ["model=dcn", "seed=1"], 5) == "5"
    assert sweep_folder.folder_for(tmp_path / "new", ["model=dcn"], 3) == "3"


def test_a_folder_that_a_kill_left_without_overrides_is_free(tmp_path):
    begun(tmp_path, "0", [])
    (tmp_path / "0/.hydra/overrides.yaml").write_text("")
    assert sweep_folder.folder_for(tmp_path, ["model=dcn"], 0) == "0"
    assert sweep_folder.jobs_in(tmp_path) == {}


def test_what_another_config_left_is_set_aside_not_lost(tmp_path):
    folder = write_run(tmp_path / "s/0", make_result(), ["model=dcn"])
    earlier = (folder / "result.json").read_text()
    assert sweep_folder.set_aside(folder) == tmp_path / "s/superseded/0-1"
    assert (tmp_path / "s/superseded/0-1/result.json").read_text() == earlier
    assert [path.name for path in folder.iterdir()] == [".hydra"]
    assert sweep_folder.set_aside(folder) is None
    (folder / "config.yaml").write_text("a: 1")
    assert sweep_folder.set_aside(folder) == tmp_path / "s/superseded/0-2"
    assert list(sweep_folder.jobs_in(tmp_path / "s")) == ["0"]


def test_a_finished_config_is_known_wherever_in_the_sweep_it_ran(tmp_path):
    write_run(tmp_path / "0", make_result(), ["model=dcn"])
    write_run(tmp_path / "1", failed(make_result()), ["model=dlrm"])
    begun(tmp_path, "2", ["model=dcn", "precision=fp32"])
    fingerprint = make_result().config_fingerprint
    assert sweep_folder.has_finished(tmp_path / "0", fingerprint) and not sweep_folder.has_finished(tmp_path / "0", "another")
    assert not sweep_folder.has_finished(tmp_path / "1", fingerprint) and not sweep_folder.has_finished(tmp_path / "2", fingerprint)
    assert sweep_folder.finished_elsewhere(tmp_path / "2", fingerprint) == "0"
    assert sweep_folder.finished_elsewhere(tmp_path / "0", fingerprint) is None
    sweep_folder.copy_result(tmp_path / "2", "0")
    copied = json.loads((tmp_path / "2/result.json").read_text())
    assert copied.pop("same_as") == "0" and copied == json.loads((tmp_path / "0/result.json").read_text())


def test_jobs_that_were_asked_for_and_never_began_are_missing_in_the_table(tmp_path):
    folder = sweep(tmp_path / "s", {("dlrm", "torchrec"): [0.7, 0.8]})
    fixed = ["sharder=torchrec", "trainer.max_steps=10", "logger=none"]
    sweep_folder.ask_for(folder, [[f"model={m}", *fixed, f"seed={s}"] for s in (1, 2, 3) for m in ("dlrm", "dcn")])
    sweep_folder.ask_for(folder, [["model=dlrm", *fixed, "seed=3"]])
    write_ablation(folder)
    dlrm, dcn = rows_of(folder)
    assert (dlrm["status"], dlrm["error"]) == ("2 of 3 seeds completed", "not run yet")
    assert (dcn["model"], dcn["status"], dcn["seeds"], dcn["validation_auc_median"]) == ("dcn", "missing", "3", "")
    assert "missing" in (folder / "ablation.html").read_text()


def test_jobs_that_ran_elsewhere_tell_how_they_ended_by_their_records(tmp_path):
    """As those of SLURM do: 2 and 3 of an error, 4 of a job that left nothing, 0 of what was pruned."""
    words = [("model=dlrm", f"seed={seed}") for seed in range(5)]
    good, bad = make_result(), failed(make_result())
    endings = (good, replace(good, status="pruned", pruned=Pruned("auc", 1, 0.5, 0.6)), bad, replace(bad, error=Failure("UserError", "no")))
    for number, ending in enumerate(endings):
        write_run(tmp_path / str(number), ending, list(words[number]))
    line = Sweep(tmp_path, tuple(words), OmegaConf.create(), {}, (), lambda job: OmegaConf.create())
    assert codes_elsewhere(line, []) == [0, 0, CODES.get(bad.error.type, 1), 2, 4]
    assert codes_elsewhere(line, [0] * 5) == []


def test_a_job_that_was_cut_short_is_unfinished(tmp_path):
    folder = sweep(tmp_path / "s", {("dlrm", "a"): [0.7], ("dcn", "a"): [0.8]})
    (folder / "1/result.json").unlink()
    assert [row.status for row in read_ablation(folder).rows] == ["completed", "unfinished"]


def drawn(progress: SweepShown) -> str:
    out = Console(width=120, record=True, file=io.StringIO())
    out.print(progress.table())
    return out.export_text()


@pytest.mark.parametrize("writes", [True, False])
def test_the_table_that_lives(tmp_path, writes):
    folder = sweep(tmp_path / "s", {("dlrm", "a"): [0.7, None]}, extra=())
    jobs = [[f"model={m}", "sharder=a", f"seed={s}"] for s in (1, 2) for m in ("dlrm", "dcn")]
    with SweepShown(folder, jobs, writes=writes) as progress:
        progress.begin(jobs[0])
        progress.end(repeated=True)
        progress.begin(jobs[1])
        write_run(folder / "2", make_result(seed=1, auc=0.75, model="dcn", sharder="a"), jobs[1])
        if writes:
            text = drawn(progress)
            assert "Quality, validation (measured): AUC" in text and "0.7000" in text and "failed" in text and "waiting" in text
            assert "step 400, " in text and "1 of 4 jobs done, 1 failed" in text
        progress.end(repeated=False)
        assert (folder / "ablation.html").exists() == writes
        if writes:
            assert "0.7500" in drawn(progress) and 'http-equiv="refresh"' in (folder / "ablation.html").read_text()
            assert "2 of 4 jobs done, 1 failed" in drawn(progress)


def test_an_interrupted_sweep_leaves_a_page_that_stands_still(tmp_path):
    folder = sweep(tmp_path / "s")
    with pytest.raises(KeyboardInterrupt), SweepShown(folder, [["model=dlrm", "seed=9"]]):
        raise KeyboardInterrupt
    assert 'http-equiv="refresh"' not in (folder / "ablation.html").read_text()


@pytest.mark.parametrize("code", CUT_SHORT.values())
def test_an_interrupted_job_is_not_counted_and_no_time_is_foretold(tmp_path, monkeypatch, capsys, code):
    codes = iter([0, code])
    monkeypatch.setattr(job, "run_sweep_job", lambda *_: next(codes))
    jobs = [[f"seed={seed}"] for seed in (1, 2, 3)]
    with pytest.raises(tuple(CUT_SHORT)), SweepShown(tmp_path, jobs) as progress:
        for number, overrides in enumerate(jobs):
            run_in_sweep(progress, StartedJob(OmegaConf.create(), tmp_path / str(number), number, tuple(overrides)), writes=True)
    first, last = [" ".join(part.split()) for part in capsys.readouterr().out.split(" sweep ")[1:]]
    assert first.startswith("1 of 3 jobs done, 0 failed, 0 s so far, about 0 s left;")
    assert last.startswith("1 of 3 jobs done, 0 failed, 0 s so far;") and progress.running is None


def test_a_job_on_another_machine_shows_nothing(tmp_path):
    there = pickle.loads(pickle.dumps(SweepShown(tmp_path, [["model=dlrm"]])))  # noqa: S301
    there.begin(["model=dlrm"])
    there.end(repeated=False)
    assert there.live is None and not list(tmp_path.iterdir())
