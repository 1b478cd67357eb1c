"""Cases of files that a command reads: every value in them replaced by what cannot be there, and every file by another thing."""

from __future__ import annotations

import copy
import io
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.reliability.cases_of_commands import MODEL, TABLES
from experiments.reliability.hostile import DOCUMENTED, REFUSED, Case

QUICK = ("mode=plan", "logger=none")
#: What no number, name, list or mapping of these files can be.
VALUES: tuple[Any, ...] = (None, True, -1, 1.5, 10**30, float("nan"), float("inf"), "", "x", "\0", [], {}, [[1]], {"a": [1]})
CELLS = ("", " ", "x", "-1", "0", "1.5", "nan", "inf", "1e30", "9" * 30, "é", '"', "a,b", "../../x", "=1+1", "\0", "sum", "fifo", "dir")
PLAN = {
    "plan": {
        "ebc": {
            name: {
                "sharding_type": "table_wise",
                "compute_kernel": "fused",
                "ranks": [0],
                "shards": [{"shard_offsets": [0, 0], "shard_sizes": [rows, 8], "placement": "rank:0/cuda:0"}],
            }
            for name, rows in (("a", 1000), ("b", 2000))
        }
    }
}
PARTITION = {
    "format": "recsys_lab partition 1",
    "towers": [["a"], ["b"]],
    "strategy": "coherent",
    "features": ["a", "b"],
    "affinity": [[1.0, 0.5], [0.5, 1.0]],
    "coordinates": [[0.0, 1.0], [1.0, 0.0]],
    "stress": 0.1,
    "seed": 1,
    "size_ratio": 1.0,
    "data_fingerprint": "x",
    "balance": {"tables": [1, 1], "load_over_mean": 1.0, "bytes": [32, 96]},
    "source": {"model": "tables"},
}
#: A cluster of the user's own, in a YAML.
CLUSTER: dict[str, Any] = {"defaults": ["h100", "_self_"], "name": "mine", "hosts": 2, "ranks_per_host": 8, "reserved_memory_share": 0.1}
DEVICE: dict[str, Any] = {"name": "X", "kind": "cuda", "memory_gb": 80.0, "memory_bandwidth_gb_s": 2000.0, "peak_tflops": {"fp32": 60.0}}
#: YAML that is no mapping of options.
BROKEN_YAML = {
    "empty": b"",
    "binary": b"\x00\xff\xfe" * 20,
    "not UTF-8": b"name: \xff\n",
    "UTF-16": "name: mine\n".encode("utf-16"),
    "a tab": b"name:\tmine\n\thosts: 2\n",
    "a list": b"- a\n- b\n",
    "a number": b"5\n",
    "open": b"name: [1, 2\n",
    "deep": b"a: " + b"[" * 5000,
    "an anchor of itself": b"a: &a [*a]\n",
    "an alias of nothing": b"a: *b\n",
    "a Python object": b"a: !!python/object/apply:os.system ['true']\n",
    "a tag": b"a: !nope 5\n",
    "two documents": b"name: a\n---\nname: b\n",
    "a key twice": b"name: a\nname: b\n",
    "a key of a list": b"? [1, 2]\n: 3\n",
    "a number for a key": b"5: 6\n",
    "defaults of nothing": b"defaults: [nope]\nname: a\n",
    "defaults of itself": b"defaults: [mine]\nname: a\n",
    "defaults of text": b"defaults: h100\nname: a\n",
    "defaults of a mapping": b"defaults: {a: {b: c}}\n",
    "defaults above": b"defaults: [../../../../etc/passwd]\n",
    "an interpolation of nothing": b"defaults: [h100, _self_]\nname: ${nope}\n",
    "an interpolation of itself": b"defaults: [h100, _self_]\nname: ${cluster.name}\n",
    "a resolver of nothing": b"defaults: [h100, _self_]\nname: ${nope:1}\n",
    "a package of nothing": b"# @package nope.x\ndefaults: [h100, _self_]\n",
    "another target": b"_target_: os.system\ncommand: 'true'\n",
    "a missing value": b"defaults: [h100, _self_]\nname: ???\n",
    "a long line": b"name: " + b"x" * 1_000_000 + b"\n",
}
#: What stands in place of a file.
THINGS: dict[str, Callable[[Path], object]] = {
    "a named pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a link to nothing": lambda path: path.symlink_to("/nope/nothing"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
}


def cases() -> Iterator[Case]:
    for where, made in _changed(PLAN):
        words = ("torchrec_plan", "{here}/f.json", *MODEL, "--beside", "torchrec")
        yield _json("torchrec_plan", where, made, words, program="recsys_lab")
    for where, made in _changed(PARTITION):
        words = (*QUICK, *MODEL[:2], "cluster=h100x8", "cluster.hosts=2", "sharder=dmt", "sharder.towers.partition={here}/f.json")
        yield _json("partition", where, made, words)
    yield from _tables()
    yield from _frequencies()
    yield from _choices()
    yield from _calibrated()
    yield from _folders()
    yield from _locked()


def _changed(whole: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """`whole` with one part of it, at any depth, replaced by each of `VALUES`, or left out."""
    parts = list(whole.items()) if isinstance(whole, dict) else list(enumerate(whole)) if isinstance(whole, list) else []
    for key, part in parts:
        name = f"{where}.{key}".strip(".")
        for value in VALUES:
            changed = copy.copy(whole)
            changed[key] = value
            yield f"{name} is {json.dumps(value)}", changed
        if isinstance(whole, dict):
            yield f"no {name}", {other: value for other, value in whole.items() if other != key}
        for inner, made in _changed(part, name):
            changed = copy.copy(whole)
            changed[key] = made
            yield inner, changed


def _json(kind: str, where: str, made: Any, words: tuple[str, ...], program: str = "run") -> Case:
    prepare = partial(_write, {"f.json": json.dumps(made).encode(), "t.csv": TABLES.encode()})
    return Case("files", f"{kind}: {where}", words, DOCUMENTED, prepare=prepare, program=program)


def _write(files: dict[str, bytes], here: Path) -> None:
    for name, content in files.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(content)


def _tables() -> Iterator[Case]:
    """Each cell of a CSV of tables."""
    head = ["name", "rows", "dim", "mean_ids", "pooling", "skew", "table"]
    line = ["b", "2000", "8", "3", "sum", "1.05", "b"]
    for column, _ in enumerate(head):
        for cell in CELLS:
            text = "\n".join(
                ",".join(each) for each in (head, ["a", "1000", "8", "1", "", "", ""], [*line[:column], cell, *line[column + 1 :]])
            )
            prepare = partial(_with_things, {"t.csv": text.encode()})
            words = (*QUICK, *MODEL)
            yield Case("files", f"tables: {head[column]} is {cell[:20]!r}", words, DOCUMENTED, prepare=prepare)
    for name, content in _arrays().items():
        text = "name,rows,dim,mean_ids,skew\na,1000,8,1,c.npy\n"
        prepare = partial(_write, {"t.csv": text.encode(), "c.npy": content})
        expected = DOCUMENTED - REFUSED if name == "counts" else REFUSED
        yield Case("files", f"tables: counts are {name}", (*QUICK, *MODEL), expected, prepare=prepare)


def _with_things(files: dict[str, bytes], here: Path) -> None:
    _write(files, here)
    os.mkfifo(here / "fifo")
    (here / "dir").mkdir()


def _arrays() -> dict[str, bytes]:
    counts = np.arange(1000)
    arrays = {
        "counts": counts,
        "objects": np.array([{}] * 1000, dtype=object),
        "another size": counts[:10],
        "two dimensions": counts.reshape(10, 100),
        "negative": -counts - 1,
        "zeros": counts * 0,
        "floats": counts / 2,
        "nan": counts * float("nan"),
        "text": counts.astype(str),
        "times": counts.astype("datetime64[s]"),
        "complex": counts.astype(complex),
        "truth": counts > 5,
        "one number": np.array(5),
        "records": np.zeros(1000, dtype=[("a", int)]),
    }
    saved = {}
    for name, array in arrays.items():
        out = io.BytesIO()
        np.save(out, array, allow_pickle=True)
        saved[name] = out.getvalue()
    return saved | {
        "empty": b"",
        "cut": saved["counts"][:200],
        "only a head": saved["counts"][:128],
        "text alone": b"1\n2\n",
        "pickle": b"\x80\x04N.",
        "a head that says too much": saved["counts"].replace(b"(1000,), }" + b" " * 9, b"(9000000000000,), }"),
    }


def _frequencies() -> Iterator[Case]:
    counts = {"table:a": np.arange(1000), "table:b": np.arange(2000)}
    good: dict[str, Any] = {"samples": np.int64(400_000), **counts}
    changes: dict[str, dict[str, Any]] = {
        f"{key} is {name}": good | {key: value}
        for key in ("samples", "table:a")
        for name, value in {
            "negative": np.int64(-5) if key == "samples" else -counts["table:a"],
            "zero": np.int64(0) if key == "samples" else counts["table:a"] * 0,
            "floats": np.float64(5.5) if key == "samples" else counts["table:a"] / 3,
            "nan": np.float64("nan"),
            "text": np.array("x"),
            "objects": np.array([{}], dtype=object),
            "another size": np.arange(7),
            "none": np.array([], dtype=np.int64),
            "huge": np.full(1000, 2**62) if key != "samples" else np.uint64(2**63),
        }.items()
    }
    changes |= {"no samples": counts, "another table": good | {"table:c": np.arange(5)}, "no table": {"samples": np.int64(5)}}
    for name, arrays in changes.items():
        out = io.BytesIO()
        np.savez(out, allow_pickle=True, **arrays)
        yield _counted(name, out.getvalue())
    out = io.BytesIO()
    np.savez(out, **good)
    whole = out.getvalue()
    for name, content in {
        "empty": b"",
        "cut": whole[:-30],
        "half": whole[: len(whole) // 2],
        "flipped": whole[:99] + b"\xff" + whole[100:],
    }.items():
        yield _counted(name, content)


def _counted(name: str, content: bytes) -> Case:
    prepare = partial(_write, {"t.csv": TABLES.encode(), "f.npz": content})
    return Case("files", f"frequencies: {name}", (*QUICK, *MODEL, "data.frequencies={here}/f.npz"), DOCUMENTED, prepare=prepare)


def _choices() -> Iterator[Case]:
    """A cluster of the user's own, in a folder of choices."""
    words = (*QUICK, "--config-dir", "{here}/conf", "cluster=mine")
    for name, content in BROKEN_YAML.items():
        yield Case("files", f"cluster: {name}", words, DOCUMENTED, prepare=partial(_write, {"conf/cluster/mine.yaml": content}))
    for name, make in THINGS.items():
        yield Case("files", f"cluster: {name}", words, prepare=partial(_thing, "conf/cluster/mine.yaml", make))
    changed = [*_changed(CLUSTER), *((f"device.{name}", CLUSTER | {"device": made}) for name, made in _changed(DEVICE))]
    for name, made in changed:
        content = json.dumps(made).replace("NaN", ".nan").replace("Infinity", ".inf").encode()
        yield Case("files", f"cluster: {name}", words, DOCUMENTED, prepare=partial(_write, {"conf/cluster/mine.yaml": content}))
    for group in ("model", "sharder", "precision", "data", "optimizer", "trainer", "launcher", "logger", "experiment"):
        of_group = tuple(word for word in QUICK if not word.startswith(group))
        for name in ("empty", "a list", "open", "not UTF-8", "another target", "defaults of itself", "an interpolation of nothing"):
            prepare = partial(_write, {f"conf/{group}/mine.yaml": BROKEN_YAML[name]})
            yield Case(
                "files", f"{group}: {name}", (*of_group, "--config-dir", "{here}/conf", f"{group}=mine"), DOCUMENTED, prepare=prepare
            )


def _thing(name: str, make: Callable[[Path], object], here: Path) -> None:
    (here / name).parent.mkdir(parents=True)
    make(here / name)


def _calibrated() -> Iterator[Case]:
    """What calibrate is said to have left."""
    variables = (("RECSYS_LAB_CALIBRATION", "{here}/own"),)
    for group in ("cluster", "profile"):
        file = f"own/{group}/calibrated.yaml"
        for name, content in BROKEN_YAML.items():
            prepare = partial(_write, {file: content})
            yield Case("files", f"calibrated {group}: {name}", QUICK, DOCUMENTED, prepare=prepare, variables=variables)
        for name, make in THINGS.items():
            yield Case("files", f"calibrated {group}: {name}", QUICK, DOCUMENTED, prepare=partial(_thing, file, make), variables=variables)
    figures = {"hosts": 1, "ranks_per_host": 4, "device": DEVICE, "intra_host": {"bandwidth_gb_s": 4.0, "latency_us": 10.0}}
    for name, made in _changed(figures):
        content = json.dumps(made).replace("NaN", ".nan").replace("Infinity", ".inf").encode()
        prepare = partial(_write, {"own/cluster/calibrated.yaml": content})
        yield Case("files", f"calibrated: {name}", QUICK, DOCUMENTED, prepare=prepare, variables=variables)


def _folders() -> Iterator[Case]:
    """A sweep's folder, and one of studies, with something else in them."""
    jobs = {"schema": 1, "jobs": [{"seed": "1", "model": "dcn"}, {"seed": "2", "model": "dcn"}]}
    words = b"- seed=1\n- model=dcn\n"
    for where, made in _changed(jobs):
        prepare = partial(_write, {"s/sweep.json": json.dumps(made).encode(), "s/0/.hydra/overrides.yaml": words})
        yield Case("files", f"sweep.json: {where}", ("ablation", "{here}/s"), DOCUMENTED, prepare=prepare, program="recsys_lab")
    for name, content in BROKEN_YAML.items():
        prepare = partial(_write, {"s/0/.hydra/overrides.yaml": content, "s/0/result.json": b"{}"})
        yield Case("files", f"a job's words: {name}", ("ablation", "{here}/s"), DOCUMENTED, prepare=prepare, program="recsys_lab")
    for name, make in THINGS.items():
        for file in ("s/sweep.json", "s/search.json", "s/0/.hydra/overrides.yaml", "s/0/result.json", "s/0/config.yaml", "s/ablation.csv"):
            prepare = partial(_thing, file, make)
            yield Case("files", f"{file} is {name}", ("ablation", "{here}/s"), DOCUMENTED, prepare=prepare, program="recsys_lab")
            sweep = ("-m", *QUICK, "seed=1,2", "hydra.sweep.dir={here}/s")
            yield Case("files", f"{file} is {name}", sweep, DOCUMENTED, prepare=prepare)
        for file in ("r/flexshard_table5/result.json", "r/x/result.json", "r/x/table.md"):
            prepare = partial(_thing, file, make)
            yield Case("files", f"{file} is {name}", ("studies", "--runs", "{here}/r"), DOCUMENTED, prepare=prepare, program="recsys_lab")


def _locked() -> Iterator[Case]:
    """Files and folders that permissions keep from the user."""

    def locked(name: str, mode: int, here: Path) -> None:
        _write({"t.csv": TABLES.encode(), "f.json": json.dumps(PARTITION).encode(), "conf/cluster/mine.yaml": b"hosts: 1\n"}, here)
        (here / "box" / "run").mkdir(parents=True)
        (here / name).chmod(mode)

    for name, words, program in (
        ("t.csv", (*QUICK, *MODEL), "run"),
        ("f.json", (*QUICK, *MODEL[:2], "sharder=dmt", "sharder.towers.partition={here}/f.json"), "run"),
        ("f.json", ("torchrec_plan", "{here}/f.json", *MODEL), "recsys_lab"),
        ("f.json", ("validate", "--rows", "{here}/f.json"), "recsys_lab"),
        ("conf/cluster/mine.yaml", (*QUICK, "--config-dir", "{here}/conf", "cluster=mine"), "run"),
        ("conf/cluster", (*QUICK, "--config-dir", "{here}/conf", "cluster=mine"), "run"),
        ("conf", (*QUICK, "--config-dir", "{here}/conf", "cluster=mine"), "run"),
        ("box", (*QUICK, "hydra.run.dir={here}/box/new"), "run"),
        ("box/run", (*QUICK, "hydra.run.dir={here}/box/run"), "run"),
        ("box", ("resume={here}/box/run",), "run"),
        ("box", ("show", "{here}/box/run"), "recsys_lab"),
        ("box", ("compare", "{here}/box/run", "{here}/box/run"), "recsys_lab"),
        ("box", ("ablation", "{here}/box/run"), "recsys_lab"),
        ("box", ("schema", "--out", "{here}/box/schema"), "recsys_lab"),
        ("box", ("frequencies", "data=random", "--rows", "5", "-o", "{here}/box/f.npz"), "recsys_lab"),
        ("box", ("flexshard", "table5", "--out", "{here}/box/x"), "recsys_lab"),
        ("box", (*QUICK, "data=table", "data.label=x", "data.root={here}/box"), "run"),
        ("box", (*QUICK, "data=criteo", "data.root={here}/box/run"), "run"),
        ("box", ("-m", *QUICK, "seed=1,2", "hydra.sweep.dir={here}/box/s"), "run"),
        ("box", (*QUICK, "sharder.scratch={here}/box/run"), "run"),
    ):
        prepare = partial(locked, name, 0)
        expected = DOCUMENTED if "sharder.scratch={here}/box/run" in words else REFUSED
        yield Case("files", f"{name} is locked", words, expected, prepare=prepare, program=program, powerless=True)
