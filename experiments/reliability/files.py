"""One list of hostile files: what each command reads, and all that can lie there in its place."""

from __future__ import annotations

import copy
import gzip
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.reliability.hostile import DOCUMENTED, REFUSED, Case, run_all

QUICK = ("mode=plan", "logger=none")
DATA = (*QUICK, "data.cache={here}/cache", "data.root={here}")
ROWS = 400
FRAPPE = "label,user,item,daytime,weekday,isweekend,homework,cost,weather,country,city\n"
CLICKS = "label,price,user,item\n" + "".join(f"{i % 2},{i * 0.25},u{i % 37},i{i % 11}\n" for i in range(ROWS))
CRITEO = "".join("\t".join([str(i % 2), *map(str, range(13)), *(f"{j:08x}" for j in range(26))]) + "\n" for i in range(ROWS))
APPS = FRAPPE + "0,142,3946,5043,5051,5054,5056,5058,5060,5102,5149\n1,241,4553,5043,5051,5054,5055,5058,5061,5117,5236\n" * (ROWS // 2)
RATINGS = "".join(f"{u}::{i}::{1 + (u + i) % 5}::{1000 + 17 * u + i}\n" for u in range(1, 21) for i in range(1 + u % 3, 12))
LOG = "".join(f"{u}\t{i}\t5\t{100 * u + i}\n" for u in range(30) for i in range(6))
TABLES = "name,rows,dim,mean_ids,pooling,skew,table\na,1000,8,1,,,\nb,2000,8,3,sum,1.05,b\n"
MODEL = ("model=tables", "model.file={here}/t.csv", "cluster=h100x8")
PLAN: Any = {
    name: {
        "sharding_type": "table_wise",
        "compute_kernel": "fused",
        "ranks": [0],
        "shards": [{"shard_offsets": [0, 0], "shard_sizes": [rows, 8], "placement": "rank:0/cuda:0"}],
    }
    for name, rows in (("a", 1000), ("b", 2000))
}
PARTITION: Any = {
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
DEVICE: Any = {"name": "X", "kind": "cuda", "memory_gb": 80.0, "memory_bandwidth_gb_s": 2000.0, "peak_tflops": {"fp32": 60.0}}
CLUSTER: Any = {"defaults": ["h100", "_self_"], "name": "mine", "hosts": 2, "ranks_per_host": 8, "device": DEVICE}
OWN: Any = {"hosts": 1, "ranks_per_host": 4, "device": DEVICE, "intra_host": {"bandwidth_gb_s": 4.0, "latency_us": 10.0}}
SWEEP: Any = {"schema": 1, "jobs": [{"seed": "1", "model": "dcn"}, {"seed": "2", "model": "dcn"}]}
COUNTS = {"samples": np.int64(400_000), "table:a": np.arange(1000), "table:b": np.arange(2000)}


@dataclass(frozen=True)
class Read:
    """`words` of a command that reads `file`, whose good content is `whole`, a JSON value or bytes. `beside`: other files that it needs.

    `needed`: it refuses what is no file, and what no format is.
    """

    name: str
    file: str
    whole: Any
    words: tuple[str, ...]
    program: str = "run"
    beside: dict[str, bytes] = field(default_factory=dict)
    variables: tuple[tuple[str, str], ...] = ()
    needed: bool = True


def _saved(save: Callable[..., None], *arrays: Any, **named: Any) -> bytes:
    out = io.BytesIO()
    save(out, *arrays, **named)
    return out.getvalue()


SMALL = {"t.csv": TABLES.encode()}
CONF_HERE = (*QUICK, "--config-dir", "{here}/conf")
READS = (
    Read("table", "clicks.csv", CLICKS.encode(), (*DATA, "data=table", "data.label=label")),
    Read("criteo", "train.tsv", CRITEO.encode(), (*DATA, "data=criteo", "data.min_count=1")),
    Read("frappe", "train.csv", APPS.encode(), (*DATA, "data=frappe"), beside={"valid.csv": APPS.encode()}),
    Read("movielens", "ratings.dat", RATINGS.encode(), (*DATA, "data=movielens", "data.pooling=sum", "data.objective=click")),
    Read("log", "log.inter", LOG.encode(), (*DATA, "data=interactions", "data.pooling=sum", "data.objective=click")),
    Read("tables", "t.csv", TABLES.encode(), (*QUICK, *MODEL)),
    Read(
        "counts",
        "c.npy",
        _saved(np.save, np.arange(1000)),
        (*QUICK, *MODEL),
        beside={"t.csv": b"name,rows,dim,mean_ids,skew\na,1000,8,1,c.npy\n"},
    ),
    Read("frequencies", "f.npz", _saved(np.savez, **COUNTS), (*QUICK, *MODEL, "data.frequencies={here}/f.npz"), beside=SMALL),
    Read(
        "partition",
        "f.json",
        PARTITION,
        (*QUICK, *MODEL, "cluster.hosts=2", "sharder=dmt", "sharder.towers.partition={here}/f.json"),
        beside=SMALL,
    ),
    Read(
        "plan", "f.json", {"plan": {"ebc": PLAN}}, ("torchrec_plan", "{here}/f.json", *MODEL, "--beside", "torchrec"), "recsys_lab", SMALL
    ),
    Read("cluster", "conf/cluster/mine.yaml", CLUSTER, (*CONF_HERE, "cluster=mine")),
    Read("model", "conf/model/mine.yaml", {"defaults": ["dcn"], "dropout": 0.2}, (*CONF_HERE, "model=mine")),
    Read("sharder", "conf/sharder/mine.yaml", {"defaults": ["dmt"], "memory_budget_gb": 2}, (*CONF_HERE, "sharder=mine")),
    Read("experiment", "conf/experiment/mine.yaml", {"seed": 3, "data": {"batch_size": 64}}, (*CONF_HERE, "experiment=mine"), needed=False),
    Read("calibrated", "own/cluster/calibrated.yaml", OWN, QUICK, variables=(("RECSYS_LAB_CALIBRATION", "{here}/own"),), needed=False),
    Read(
        "sweep", "s/sweep.json", SWEEP, ("ablation", "{here}/s"), "recsys_lab", {"s/0/.hydra/overrides.yaml": b"- seed=1\n"}, needed=False
    ),
    Read("job", "s/0/.hydra/overrides.yaml", ["seed=1"], ("ablation", "{here}/s"), "recsys_lab", {"s/0/result.json": b"{}"}, needed=False),
)
#: What no format is.
NEVER: dict[str, Callable[[bytes], bytes]] = {
    "one newline": lambda whole: b"\n",
    "zeros": lambda whole: b"\0" * 4096,
    "random bytes": lambda whole: bytes((i * 7919 + i // 251) % 256 for i in range(8192)),
    "UTF-16": lambda whole: "label\n".encode("utf-16") * 20,
    "a zip": lambda whole: b"PK\x03\x04" + b"\x14\0" * 400,
    "gzip": gzip.compress,
    "HTML": lambda whole: b"<!DOCTYPE html>\n<html><body>404</body></html>\n",
    "one long line": lambda whole: b"x" * 3_000_000,
    "deep": lambda whole: b"[" * 30_000,
    "a Python object": lambda whole: b"a: !!python/object/apply:os.system ['true']\n",
}
#: What may be read or refused.
MAYBE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "cut in half": lambda whole: whole[: len(whole) // 2],
    "cut at its end": lambda whole: whole[:-20],
    "flipped": lambda whole: whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 0x41]) + whole[len(whole) // 2 + 1 :],
    "longer": lambda whole: whole + b"junk\xff",
    "twice": lambda whole: whole * 2,
    "CRLF": lambda whole: whole.replace(b"\n", b"\r\n"),
    "a byte order mark": lambda whole: b"\xef\xbb\xbf" + whole,
    "NUL inside": lambda whole: whole.replace(b"1", b"\0", 40),
    "words for numbers": lambda whole: whole.replace(b"1", b"cheap"),
    "nan for numbers": lambda whole: whole.replace(b"1", b"nan"),
    "huge numbers": lambda whole: whole.replace(b"1", b"1e400"),
    "negative numbers": lambda whole: whole.replace(b"1", b"-7"),
    "nothing for numbers": lambda whole: whole.replace(b"1", b""),
    "other marks": lambda whole: whole.replace(b",", b";").replace(b"\t", b" "),
    "quotes": lambda whole: whole.replace(b"u", b'"'),
    "names twice": lambda whole: whole.replace(b"item", b"user").replace(b"rows", b"dim"),
    "null": lambda whole: b"null\n",
    "a number": lambda whole: b"5\n",
    "a list": lambda whole: b"[1, 2]\n",
    "an empty mapping": lambda whole: b"{}\n",
    "another mapping": lambda whole: b'{"nope": {"a": [1]}}\n',
    "an anchor of itself": lambda whole: b"a: &a [*a]\n",
    "defaults of itself": lambda whole: b"defaults: [mine]\nname: a\n",
    "defaults of nothing": lambda whole: b"defaults: [nope, {a: {b: c}}]\n",
    "an interpolation of nothing": lambda whole: b"defaults: [_self_]\nname: ${nope}\n",
    "another target": lambda whole: b"_target_: os.system\ncommand: 'true'\n",
    "a pickle": lambda whole: b"\x80\x04N.",
}
#: What lies in place of a file.
THINGS: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a link to nothing": lambda path: path.symlink_to("/nope/nothing"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "locked": lambda path: (path.write_bytes(b"{}"), path.chmod(0)),
}
#: What no part of a JSON or YAML is.
VALUES: tuple[Any, ...] = (None, True, -1, 1.5, 10**30, float("nan"), float("inf"), "", "x", "\0", [], {}, [[1]], {"a": [1]})
#: Arrays that count no rows.
ARRAYS: dict[str, Any] = {
    "objects": np.array([{}] * 1000, dtype=object),
    "another size": np.arange(10),
    "two dimensions": np.arange(1000).reshape(10, 100),
    "negative": -np.arange(1000) - 1,
    "nan": np.full(1000, float("nan")),
    "text": np.arange(1000).astype(str),
    "complex": np.arange(1000).astype(complex),
    "huge": np.full(1000, 2**62),
}
#: Files of a run, and what they are read by.
OF_A_RUN = ("config.yaml", "result.json", "plan.json", "environment.json", ".hydra/overrides.yaml", "metrics.csv")
COMMANDS = {"show": ("show", "{here}/run"), "compare": ("compare", "{here}/run", "{here}/run"), "resume": ("resume={here}/run",)}
SIMULATED = ("mode=simulate", "logger=none", "data=random", "data.rows_train=2000", "data.rows_validation=500", "data.rows_test=500")
TRAINED = (
    *SIMULATED[1:2],
    "mode=train",
    "data=synthetic_brief",
    "data.rows_train=1000",
    "data.batch_size=100",
    "launcher.ranks_per_host=1",
)
TRAINED += ("trainer.checkpoint_every_steps=3", "model.embedding_dim=4", "model.over_layers=[4,1]", "sharder=torchrec_row_wise")


def cases(folder: Path, trains: bool) -> Iterator[Case]:
    """`folder`: for a run that simulated and, where it `trains`, one that trained. Both are made once."""
    for read in READS:
        yield from _replaced(read)
        if not isinstance(read.whole, bytes):
            for name, changed in _changed(read.whole):
                yield _case(read, name, json.dumps(changed).replace("NaN", ".nan").replace("Infinity", ".inf").encode(), DOCUMENTED)
    counts, frequencies = (next(read for read in READS if read.name == name) for name in ("counts", "frequencies"))
    for name, array in ARRAYS.items():
        yield _case(counts, name, _saved(np.save, array), REFUSED if name != "huge" else DOCUMENTED)
        yield _case(frequencies, name, _saved(np.savez, **{**COUNTS, "table:a": array}), REFUSED if name != "huge" else DOCUMENTED)
    runs = _runs(folder, {"simulated": SIMULATED} | ({"trained": TRAINED} if trains else {}))
    for file in OF_A_RUN:
        for command in COMMANDS:
            strict = command != "resume" and file == "result.json" or command == "resume" and file == "config.yaml"
            yield from _replaced(_in_run(runs["simulated"], file, command, strict))
    for key, value in json.loads((runs["simulated"] / "result.json").read_text()).items():
        for name, changed in _changed({key: value}):
            whole = json.dumps(json.loads((runs["simulated"] / "result.json").read_text()) | changed).encode()
            yield _case(_in_run(runs["simulated"], "result.json", "show", False), f"{name[:60]}", whole, DOCUMENTED)
    if trains:
        newest = max((runs["trained"] / "checkpoints").glob("step=*"), key=lambda path: int(path.name[5:]))
        for path in sorted(file for file in newest.iterdir() if file.is_file()):
            read = _in_run(runs["trained"], str(path.relative_to(runs["trained"])), "resume", True)
            yield from _replaced(replace(read, name=f"{read.name} without a record"), without="run/result.json")


def _replaced(read: Read, without: str = "") -> Iterator[Case]:
    """By each thing, and by each damaged content."""
    strict = REFUSED if read.needed else DOCUMENTED
    whole = read.whole if isinstance(read.whole, bytes) else json.dumps(read.whole).encode()
    yield _case(read, "as it is", whole, DOCUMENTED, without)
    for name, damage in NEVER.items():
        yield _case(read, name, damage(whole), strict, without)
    for name, damage in MAYBE.items():
        yield _case(read, name, damage(whole), DOCUMENTED, without)
    for name, make in THINGS.items():
        yield replace(_case(read, name, make, strict, without), powerless=name == "locked")


def _case(read: Read, name: str, content: Any, expected: frozenset[int], without: str = "") -> Case:
    prepare = partial(_lay, read, content, without)
    return Case("files", f"{read.name}: {name}", read.words, expected, "", prepare, read.program, variables=read.variables)


def _lay(read: Read, content: Any, without: str, here: Path) -> None:
    """`content` in the place of what is read: bytes, or what makes the thing."""
    for name, other in read.beside.items():
        if name == "run":
            shutil.copytree(other.decode(), here / "run", symlinks=True)
        else:
            (here / name).parent.mkdir(parents=True, exist_ok=True)
            (here / name).write_bytes(other)
    path = here / read.file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if without:
        (here / without).unlink()
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        content(path)


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


def _in_run(run: Path, file: str, command: str, needed: bool) -> Read:
    program = "run" if command == "resume" else "recsys_lab"
    whole = (run / file).read_bytes() if (run / file).is_file() else b"{}"
    return Read(f"{command} {file}", f"run/{file}", whole, COMMANDS[command], program, {"run": str(run).encode()}, needed=needed)


def _runs(folder: Path, wanted: dict[str, tuple[str, ...]]) -> dict[str, Path]:
    runs = {name: folder / name for name in wanted}
    cases = [Case("files", name, (*words, f"hydra.run.dir={runs[name]}"), DOCUMENTED) for name, words in wanted.items()]
    for ended in run_all(cases, folder / "making", 1):
        assert ended.code == 0, ended
    return runs
