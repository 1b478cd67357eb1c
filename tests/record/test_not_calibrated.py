"""Times of a machine that nobody has calibrated appear nowhere: not in a file of the run, nor in what reads it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import recsys_lab
import run
from recsys_lab.__main__ import main
from recsys_lab.decide.decision import decide
from recsys_lab.errors import UserError
from recsys_lab.experiment import of_words
from recsys_lab.planning import plan_for, price
from recsys_lab.record.headline import headline
from recsys_lab.record.run_folder import read_record
from recsys_lab.sweeps.ablation import write_ablation
from tests.record.fake_run import make_result, write_run

WORDS = ["model=dcn", "data=random", "data.rows_train=4096", "data.rows_validation=64", "data.batch_size=256", "logger=none"]
SHARDERS = ("torchrec_row_wise", "flexshard_2tier", "dmt", "neo_4d")
NOT_THIS_MACHINE = "on file; calibrate was not run on this machine"
#: Of a record's `simulated` object, what a machine's figures do not change.
COUNTED = {"cluster", "world_size", "profile", "bytes_per_rank", "feasible", "collectives", "calibrated"}


def figures_of(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for one in value.values():
            yield from figures_of(one)
    elif isinstance(value, float):
        yield value


def digits_of(ms: float) -> re.Pattern[str]:
    """The time as any output may write it, with two digits behind the point or more."""
    return re.compile(rf"(?<![\d.]){re.escape(f'{ms:.4f}'[:-2])}\d*")


@pytest.mark.parametrize("sharder", SHARDERS)
def test_no_output_of_a_run_has_a_simulated_time(sharder: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = [*WORDS, f"sharder={sharder}", "mode=simulate", "cluster=local"]
    experiment = of_words(words, where="test")
    simulated = price(plan_for(experiment, experiment.open_data()), experiment.profile)[0]
    times = [digits_of(ms) for ms in (simulated.iteration_ms, *simulated.phases_ms.values()) if ms > 1]
    assert times and not simulated.calibrated

    made = tmp_path / "sweep" / "0"
    assert run.main([*words, f"hydra.run.dir={made}"]) == 0
    other = shutil.copytree(made, tmp_path / "sweep" / "1")
    outputs = {"terminal": capsys.readouterr().out}
    outputs |= {
        file.name: file.read_text() for file in made.rglob("*") if file.is_file() and file.suffix in (".json", ".html", ".csv", ".md")
    }
    for command in (["show", made], ["show", made, "--json"], ["show", made, "--plan"], ["compare", made, other]):
        assert main([*map(str, command)]) == 0
        outputs[str(command)] = capsys.readouterr().out
    outputs["load"] = recsys_lab.load(tmp_path / "sweep").to_csv()
    outputs["trackers"] = json.dumps(headline(json.loads((made / "result.json").read_text())))
    write_ablation(tmp_path / "sweep")
    outputs |= {file.name: file.read_text() for file in (tmp_path / "sweep").glob("ablation.*")}
    for name, text in outputs.items():
        assert not [one.pattern for one in times if one.search(text)], name
    assert "not calibrated" in outputs["terminal"] and "not calibrated" in outputs["report.html"]
    assert not {"trace.json", "stores.json", "reasons.json"} & set(outputs)
    record = json.loads(outputs["result.json"])["simulated"]
    assert record["calibrated"] is False and record["feasible"] and record["collectives"]
    assert not list(figures_of({key: value for key, value in record.items() if key not in COUNTED}))
    assert all(one["ms"] is None and one["bytes"] > 0 for one in record["collectives"])
    assert not [name for name in headline({"simulated": record, "status": "completed"}) if name.startswith("simulated/")]


def test_records_of_earlier_versions_are_read_without_them(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = write_run(tmp_path / "run", make_result())
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["cluster"] |= {"name": "local", "device": {"name": "CPU", "source": NOT_THIS_MACHINE}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    assert json.loads((folder / "result.json").read_text())["simulated"]["iteration_ms"] == 2.4
    simulated = read_record(folder)["simulated"]
    assert simulated["iteration_ms"] is None and set(simulated["phases_ms"].values()) == {None}
    loaded = recsys_lab.load(folder)
    assert loaded["simulated.iteration_ms"].isna().all() and loaded["measured.iteration_ms.median"].tolist() == [24.8]
    assert main(["compare", str(folder), str(folder)]) == 0
    assert "simulated" not in capsys.readouterr().out


def test_what_gives_times_alone_refuses() -> None:
    with pytest.raises(UserError, match=r"cluster local: not calibrated.*calibrate"):
        recsys_lab.simulate(*WORDS, cluster="local")
    with pytest.raises(UserError, match="not calibrated"):
        decide(
            *WORDS[:-2], clusters="local", batch=256, sharders="torchrec_row_wise", precisions="fp32", optimizers="adam", profiles="local"
        )
