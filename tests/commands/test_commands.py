"""`python -m recsys_lab`: every command is listed; show, compare and ablation, as a user calls them."""

from __future__ import annotations

import importlib
import inspect
import json
from dataclasses import replace

import pytest
from omegaconf import OmegaConf

from recsys_lab import job
from recsys_lab.__main__ import COMMANDS, ROOT, commands_in, main
from recsys_lab.errors import HungUp, Terminated, UserError
from recsys_lab.job import Program, run_job
from tests.record.fake_run import failed, make_result, write_run


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


def called(capsys, *argv) -> tuple[int, str, str]:
    code = main([str(a) for a in argv])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_show_prints_measured_and_simulated_apart_in_80_columns(run, capsys):
    code, out, err = called(capsys, "show", run)
    assert code == 0 and not err
    assert max(map(len, out.splitlines())) <= 80
    for words in (
        "Quality (measured)",
        "Iteration (measured)",
        "Iteration (simulated)",
        "Collectives (simulated)",
        "0.77310",
        "41,250",
        "109,226,667",
    ):
        assert words in out
    assert "..." not in out and "Tiers" not in out  # those are of FlexShard


def test_show_json_is_the_record(run, capsys):
    _, out, _ = called(capsys, "show", run, "--json")
    assert json.loads(out) == json.loads((run / "result.json").read_text())


def test_show_plan_names_every_table_of_both_plans(run, capsys):
    _, out, _ = called(capsys, "show", run, "--plan")
    assert "Plan for h100x64" in out and "Plan that trained here in its place" in out
    assert out.count("cat_7") >= 2 and "40,000,000" in out and "400,000" in out
    _, out, _ = called(capsys, "show", run, "--plan", "--json")
    assert json.loads(out) == json.loads((run / "plan.json").read_text())


def test_show_says_why_a_part_is_absent(tmp_path, capsys):
    _, out, _ = called(capsys, "show", write_run(tmp_path / "a", make_result("simulate")))
    assert "not trained" not in out  # a simulation lacks nothing
    _, out, _ = called(capsys, "show", write_run(tmp_path / "b", failed(make_result(), "no [bold]room[/bold]")))
    assert "the run failed: UserError: no [bold]room[/bold]" in out


def test_compare_shows_what_differs(run, tmp_path, capsys):
    other = write_run(tmp_path / "other", make_result(auc=0.7831, seed=2))
    code, out, _ = called(capsys, "compare", run, other)
    assert code == 0 and max(map(len, out.splitlines())) <= 80
    assert "0.78310 (+0.01000)" in out and "(x1.000)" not in out
    assert "All: status completed, mode auto." in out and "The same in all: validation NE " in " ".join(out.split())
    _, out, _ = called(capsys, "compare", run, other, "--json")
    data = json.loads(out)
    assert data["config"] == {"seed": [1, 2]} and data["figures"]["validation AUC"] == [0.7731, 0.7831]
    assert data["runs"] == [str(run), str(other)]


def test_compare_tells_a_key_that_a_run_lacks_from_null(run, tmp_path, capsys):
    other = write_run(tmp_path / "other")
    config = OmegaConf.load(run / "config.yaml")
    OmegaConf.save({**config, "lacking": 3, "resume": None}, run / "config.yaml")
    OmegaConf.save({**config, "resume": "x"}, other / "config.yaml")
    _, out, _ = called(capsys, "compare", run, other)
    lines = [line.split() for line in out.splitlines()]
    assert ["lacking", "3", "no", "such", "key"] in lines and ["resume", "null", "x"] in lines
    assert "No such key: another choice has none, or an earlier version had none." in out


def test_compare_of_many_runs_loses_no_digit(tmp_path, capsys):
    results = [make_result(hosts=128) for _ in range(4)]
    faster = [replace(one.simulated, examples_per_second=1_747_626_667.0 + i) for i, one in enumerate(results) if one.simulated]
    made = [replace(one, simulated=simulated) for one, simulated in zip(results, faster)]
    folders = [write_run(tmp_path / f"r{i}", one, hosts=128) for i, one in enumerate(made)]
    _, out, _ = called(capsys, "compare", *folders)
    assert max(map(len, out.splitlines())) <= 80 and all(out.count(f"1,747,626,66{7 + i}") == 1 for i in range(3))


def test_compare_counts_what_follows_from_a_choice(run, tmp_path, capsys):
    other = write_run(tmp_path / "other")
    config = OmegaConf.load(run / "config.yaml")
    parts = {"a": {"_target_": "m.A", "only_a": 1, "dim": 2}, "b": {"_target_": "m.B", "dim": 4}}
    for folder, name in ((run, "a"), (other, "b")):
        OmegaConf.save({**config, "choices": {**config.choices, "model": name}, "model": parts[name]}, folder / "config.yaml")
    _, out, _ = called(capsys, "compare", run, other)
    rows = [line.split() for line in out.partition("Config that differs")[2].splitlines()[3:5]]
    assert rows == [["choices.model", "a", "b"], ["model.dim", "2", "4"]]
    assert "Left out are keys that follow from the choices: 2 of model. --json has them." in " ".join(out.split())


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["shwo"], f"no such command; given shwo; allowed: {', '.join(COMMANDS)}; did you mean 'show'?"),
        (["show"], "the following arguments are required: run"),
        (["show", "nowhere"], "nowhere: no such folder"),
        (["show", __file__], "test_commands.py: not a folder"),
        (["calibrate", "--name", ""], "--name"),
        (["calibrate", "mode=plan"], "error: calibrate mode"),
        (["calibrate", "hydra.run.dir=x"], "calibrate hydra.run.dir"),
        (["calibrate", "sharder=dmt"], "calibrate sharder"),
        (["calibrate", "trainer.max_steps=3"], "calibrate trainer.max_steps"),
        (["decide", "model=dcn", "hydra.run.dir=x"], "error: decide hydra.run.dir"),
        (["decide", "model=dcn", "++mode=train"], "decide mode"),
        (["rank", "model=dcn"], "use decide with one cluster"),
        (["decide", "model=dcn", "overwrite=true"], "decide overwrite"),
        (["frequencies", "data=random", "-o", "f.npz", "hydra.run.dir=x"], "frequencies hydra.run.dir"),
        (["partition", "model=dlrm", "--towers", "2", "-o", "p.json", "hydra.run.dir=x"], "partition hydra.run.dir"),
        (["torchrec_plan", "plan.json", "model=tables", "hydra.run.dir=x"], "torchrec_plan hydra.run.dir"),
        (["compare", "a"], "one run has nothing to be compared with"),
        (["show", "a", "--jsn"], "unrecognized arguments: --jsn"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_code_2(argv, message, capsys):
    code, out, err = called(capsys, *argv)
    assert code == 2 and not out and err.count("\n") == 1 and message in err


def test_ablation_writes_the_tables_of_a_sweep_anew(tmp_path, capsys):
    for number, model in enumerate(("dlrm", "dcn")):
        write_run(tmp_path / str(number), make_result(model=model), [f"model={model}"])
    code, out, _ = called(capsys, "ablation", tmp_path, "--baseline", "model=dcn")
    assert code == 0 and "compared with model=dcn" in out and (tmp_path / "ablation.html").is_file()
    code, _, err = called(capsys, "ablation", tmp_path, "--level", "3")
    assert code == 2 and "--level: not a probability" in err


def test_every_file_of_a_command_is_in_the_help(capsys, monkeypatch):
    """The list is what exists: a new command is one file."""
    monkeypatch.delenv("COLUMNS", raising=False)  # where there is no terminal, each is a line
    code, out, _ = called(capsys, "--help")
    files = {path.stem.removesuffix("_weights") for path in (ROOT / "recsys_lab" / "commands").glob("*.py")} - {"__init__"}
    studies = {path.parent for path in (ROOT / "experiments").glob("*/command.py")}
    assert code == 0 and len(COMMANDS) == len(files) + len(studies) and files < set(COMMANDS)
    assert all(f"  {name} " in out and about in out for name, (_, about) in COMMANDS.items())
    assert called(capsys, "show", "--help")[0] == 0


@pytest.mark.parametrize("columns", [30, 60, 100])
def test_the_list_of_commands_wraps_in_a_narrow_terminal(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    out = called(capsys, "--help")[1]
    entries = out[out.index("\n\n") : out.rindex("\n\n")]
    assert max(map(len, entries.splitlines())) <= columns
    assert all(about in " ".join(entries.split()) for _, about in COMMANDS.values())


def test_a_new_command_is_one_file(tmp_path):
    file = tmp_path / "recsys_lab" / "commands" / "count.py"
    file.parent.mkdir(parents=True)
    file.write_text('"""`python -m recsys_lab count RUN`: how many steps a run took.\n\nMore of it.\n"""\n')
    assert commands_in([file], tmp_path) == {"count": ("recsys_lab.commands.count", "how many steps a run took")}
    file.write_text('"""Counts."""\n')
    with pytest.raises(AssertionError, match="must begin as a command's file does"):
        commands_in([file], tmp_path)


@pytest.mark.parametrize(("name", "module"), [(name, module) for name, (module, _) in COMMANDS.items()])
def test_a_command_takes_its_arguments_and_names_its_own_file(name, module):
    main_of = importlib.import_module(module).main
    assert list(inspect.signature(main_of).parameters)[-1] == "argv"
    own = module.removesuffix("_weights")  # `import` is a word of Python
    assert module.startswith("experiments.") or own == f"recsys_lab.commands.{name}"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ModuleNotFoundError("No module named 'torch'", name="torch"), "torch: not installed; pip install 'recsys_lab[cpu]'"),
        (
            OSError("Could not load this library: /site-packages/fbgemm_gpu/fbgemm_gpu_py.so"),
            "--no-deps fbgemm-gpu-cpu==1.8.0; recsys-lab doctor",
        ),
    ],
)
def test_an_installation_that_cannot_train_is_one_line(error, says, monkeypatch, capsys, tmp_path):
    def fails(*_):
        raise error

    monkeypatch.setattr("recsys_lab.commands.show.main", fails)
    code, out, err = called(capsys, "show", "anything")
    assert (code, out) == (2, "") and err.startswith("error: ") and says in err and err.count("\n") == 1

    with Program() as program:  # of a run, outside of its job
        fails()
    assert program.exit_code == 2 and says in capsys.readouterr().err
    monkeypatch.setattr(job, "_work", fails)
    assert run_job(frozen(), tmp_path) == 2 and says in capsys.readouterr().err


def frozen():
    """A config that is not checked again."""
    config = OmegaConf.create({"resume": None})
    OmegaConf.set_readonly(config, True)
    return config


@pytest.mark.parametrize(
    ("signal", "code", "says"),
    [(Terminated, 143, "ended by SIGTERM"), (HungUp, 129, "ended by SIGHUP"), (KeyboardInterrupt, 130, "interrupted")],
)
def test_a_signal_stays_one_where_a_library_cleans_up_with_an_error(signal, code, says, monkeypatch, capsys, tmp_path) -> None:
    """As OmegaConf does: its `finally` asks a half-made node for more than it has."""

    def cleans_up(*_):
        try:
            raise signal
        finally:
            raise AttributeError("'NoneType' object has no attribute 'flags'")

    with Program() as program:
        cleans_up()
    monkeypatch.setattr(job, "_work", cleans_up)
    assert run_job(frozen(), tmp_path) == code
    err = capsys.readouterr().err
    assert program.exit_code == code and err.count(says) == 2 and "Traceback" not in err
    if signal is KeyboardInterrupt:  # a command does not listen to SIGTERM, which ends it at once
        monkeypatch.setattr("recsys_lab.commands.show.main", cleans_up)
        assert called(capsys, "show", "anything") == (130, "", "interrupted\n")


def test_a_module_of_ours_that_is_missing_is_a_bug(monkeypatch, capsys):
    def fails(_):
        raise ModuleNotFoundError("of ours", name="recsys_lab.no")

    monkeypatch.setattr("recsys_lab.commands.show.main", fails)
    with pytest.raises(ModuleNotFoundError, match="of ours"):
        called(capsys, "show", "anything")


def test_an_installed_package_names_the_command_that_pip_gave(monkeypatch, capsys, tmp_path):
    def lost():
        return UserError("lost", remedy="resume with: python run.py resume=runs/one")

    def interrupts(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(job, "_work", interrupts)

    def interrupted() -> str:
        run_job(frozen(), tmp_path)
        return capsys.readouterr().err

    assert str(lost()) == "lost; resume with: python run.py resume=runs/one" and "python run.py resume=" in interrupted()
    monkeypatch.setattr("recsys_lab.errors.INSTALLED", True)
    assert str(lost()) == "lost; resume with: recsys-lab run resume=runs/one" and "recsys-lab run resume=" in interrupted()
