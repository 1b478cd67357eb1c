"""Cases of `python -m recsys_lab`: words that no command takes, files that cannot be read, and places that cannot be written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from experiments.reliability.hostile import DOCUMENTED, REFUSED, Case

TABLES = "name,rows,dim,mean_ids\na,1000,8,1\nb,2000,8,3\n"
MODEL = ("model=tables", "model.file={here}/t.csv", "cluster=h100x8")
#: What stands where a file or a folder is to be read.
READ = (
    "{here}/fifo",
    "{here}/dir",
    "{here}/loop",
    "{here}/file",
    "{here}/bin",
    "{here}/gone",
    "{here}/nope",
    "{here}/null.json",
    "{here}/deep.json",
    "/dev/zero",
    "/dev/full",
    "/proc/self/mem",
    "~nosuchuser/x",
    "{here}/\udcff",
    "a\nb",
    "x" * 300,
    "",
    " ",
)
#: What stands where something is to be written.
WRITTEN = (
    "{here}/fifo",
    "{here}/dir",
    "{here}/loop",
    "{here}/gone/x",
    "{here}/file/x",
    "/dev/full",
    "/dev/null",
    "/proc/x",
    "~nosuchuser/x",
    "{here}/\udcff",
    "a\nb",
    "{here}/" + "x" * 300,
    "",
    " ",
)
VALUES = ("", "nope", "-5", "0", "nan", "inf", "1e3", "9" * 23, "1,2", "é", "[1]", "{a: 1}", " ", "1e400")
FEW = ("data.rows_train=500", "data.rows_validation=100", "data.rows_test=100")
PARTITION = ("partition", "model=dlrm", *FEW)
QUICKLY = ("--towers", "2", "--steps", "1", "--samples", "10")
NAMES = [
    "ablation",
    "calibrate",
    "compare",
    "completion",
    "decide",
    "doctor",
    "frequencies",
    "partition",
    "rank",
    "schema",
    "show",
    "studies",
    "torchrec_plan",
    "cpu_dlrm",
    "dmt",
    "emulated",
    "flexshard",
    "neo",
    "torchrec",
    "validate",
]
#: Words of run.py that these commands refuse, or take and do nothing with.
WORDS = (
    ("mode=train",),
    ("-m",),
    ("resume={here}/dir",),
    ("hydra.run.dir={here}/dir",),
    ("experiment=nope",),
    ("experiment=neo/figure8",),
    ("seed=1,2",),
    ("model=dlrm,dcn",),
    ("seed",),
    ("seed=[1",),
    ("+x=1",),
    ("data=nope",),
    ("data=criteo",),
    ("overwrite=true",),
    ("model._target_=os.system",),
    ("--cfg", "job"),
    ("sharder.memory_budget_gb=0",),
    ("sharder.memory_budget_gb=1e-9",),
    ("data.frequencies=/nope",),
    ("~model",),
    ("model=null",),
    ("precision=null",),
)


def cases() -> Iterator[Case]:
    for place in READ:
        yield from _read(place)
    for place in WRITTEN:
        yield from _written(place)
    for value in VALUES:
        yield from _valued(value)
    for name in NAMES:
        yield _case("an option that it lacks", name, "--nope")
        yield _case("a flag with a value", name, "--json=3")
        yield _case("help", name, "--help", expected=DOCUMENTED - REFUSED)
    for words in WORDS:
        yield _case("a word", *_decided(*words), expected=DOCUMENTED)
        yield _case("a word", "rank", *MODEL, "--sharders", "torchrec", *words, expected=DOCUMENTED)
        yield _case("a word", "frequencies", *MODEL, "-o", "{here}/f.npz", "--rows", "5", *words, expected=DOCUMENTED)
        yield _case("a word", *PARTITION, *QUICKLY, "-o", "{here}/p.json", *words, expected=DOCUMENTED)


def _case(name: str, *words: str, expected: frozenset[int] = REFUSED, program: str = "recsys_lab") -> Case:
    return Case("commands", f"{words[0]}: {name}", words, expected, prepare=prepare, program=program)


def _run(name: str, *words: str, expected: frozenset[int] = REFUSED) -> Case:
    return Case("commands", f"run: {name}", ("mode=plan", "logger=none", *words), expected, prepare=prepare)


def prepare(here: Path) -> None:
    """One of each kind of thing that is no file of ours."""
    (here / "t.csv").write_text(TABLES)
    os.mkfifo(here / "fifo")
    (here / "dir").mkdir()
    (here / "file").write_text("mine")
    (here / "loop").symlink_to(here / "loop")
    (here / "gone").symlink_to(here / "nothing")
    (here / "bin").write_bytes(b"\xff\xfe\0\1" * 50)
    (here / "null.json").write_text("null")
    (here / "deep.json").write_text("[" * 30000)


def _read(place: str) -> Iterator[Case]:
    yield _case("what it reads", "show", place)
    yield _case("what it reads", "compare", place, place)
    yield _case("what it reads", "ablation", place)
    yield _case("what it reads", "torchrec_plan", place, *MODEL)
    yield _case("what it reads", "partition", place, *QUICKLY, "-o", "{here}/o.json")
    yield _case("what it compares with", *PARTITION, *QUICKLY, "-o", "{here}/o.json", "--compare", place)
    yield _case("where results are", "studies", "--runs", place, expected=DOCUMENTED)
    yield _case("what it reads", "validate", "--rows", place)
    yield _run("model.file", "model=tables", f"model.file='{place}'")
    yield _run("data.frequencies", f"data.frequencies='{place}'")
    yield _run("a partition", "sharder=dmt", f"sharder.towers.partition='{place}'")
    yield _run("a folder of choices", "--config-dir", place, expected=DOCUMENTED)
    yield Case("commands", "run: resume", (f"resume='{place}'",), prepare=prepare)


def _written(place: str) -> Iterator[Case]:
    blank = not place.strip()
    yield _case("its page", *_decided("--page", place), expected=DOCUMENTED)
    yield _case("its file", "frequencies", "data=random", "--rows", "10", "-o", place, expected=DOCUMENTED)
    yield _case("its file", *PARTITION, *QUICKLY, "-o", place, expected=DOCUMENTED)
    yield _case(
        "its picture", *PARTITION, *QUICKLY, "-o", "{here}/o.json", "--picture", place if blank else f"{place}.svg", expected=DOCUMENTED
    )
    yield _case("its folder", "schema", "--out", place, expected=DOCUMENTED)
    yield _case("its folder", "calibrate", "--out", place, "nope=1")
    yield _case("its folder", "flexshard", "table5", "--out", place, expected=DOCUMENTED)
    yield _case("its picture", "validate", "--only", "nope", "--picture", place)


def _valued(value: str) -> Iterator[Case]:
    yield _case("a batch", *_decided(f"batch={value}"))
    dear = DOCUMENTED if value == "1e3" else REFUSED  # a price is a number with or without a point
    yield _case("a price", *_decided(f"clusters=h100x8:{value}"), expected=dear)
    yield _case("a cluster", *_decided(f"clusters={value}"))
    yield _case("a sharder", *_decided(f"sharders={value}"))
    yield _case("an optimizer", *_decided(f"optimizers={value}"))
    yield _case("a profile", *_decided(f"profiles={value}"))
    yield _case("a precision", *_decided(f"precisions={value}"))
    yield _case("a sharder", "rank", *MODEL, "--sharders", value)
    yield _case("rows", "frequencies", "data=random", "--rows", value, "-o", "{here}/f.npz")
    for option in ("towers", "strategy", "ratio", "dims"):
        words = [word for name, word in zip(QUICKLY[::2], QUICKLY[1::2]) for word in (name, word) if name != f"--{option}"]
        yield _case(f"--{option}", *PARTITION, *words, "-o", "{here}/o.json", f"--{option}", value, expected=DOCUMENTED)
    yield _case("--level", "ablation", "{here}/dir", "--level", value)
    yield _case("--run", "studies", "--run", value, "--runs", "{here}/dir")
    yield _case("a study", "flexshard", value)
    yield _case("--only", "validate", "--only", value)
    yield _case("--rounds", "validate", "--local", "--rounds", value, "nope=1")
    yield _case("a shell", "completion", value)
    yield _case("a line", "completion", "--line", f"recsys-lab run {value}", expected=DOCUMENTED)
    yield _case("a plan beside", "torchrec_plan", "{here}/null.json", *MODEL, "--beside", value)
    yield Case("commands", "no such command", (value,), program="recsys_lab")


def _decided(*words: str) -> tuple[str, ...]:
    """The words of a small decision, in which `words` stand in place of its own of the same key."""
    usual = {"clusters": "h100x8", "batch": "64", "sharders": "torchrec", "precisions": "fp32", "optimizers": "adagrad"}
    said = {word.partition("=")[0] for word in words}
    return ("decide", *MODEL[:2], *(f"{key}={value}" for key, value in usual.items() if key not in said), *words)
