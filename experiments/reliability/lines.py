"""One list of hostile command lines: words that cannot be, values that no option has, places that cannot be read or written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from experiments.reliability.files import CLICKS, TABLES
from experiments.reliability.hostile import DOCUMENTED, REFUSED, TAKEN, Case

#: What stands where something is read, or written, or a value is expected.
PLACES = {
    "{read}": ["fifo", "dir", "loop", "file", "bin", "gone", "nope", "null.json", "deep.json", "�"],
    "{written}": ["fifo", "dir", "loop", "gone/x", "file/x", "\udcff", "x" * 300],
    "{value}": ["", "nope", "-5", "0", "nan", "inf", "9" * 23, "1,2", "é", "[1]", "{a:1}", "1e400"],
}
ELSEWHERE = {"{read}": ["/dev/zero", "/proc/self/mem", "~nosuchuser/x", ""], "{written}": ["/dev/full", "/proc/x", "~nosuchuser/x", ""]}
#: The first word: what is right. 2: it is refused. 0: it is taken. ?: either. Of a run nothing is trained.
LINES = """
2 run.py ~seed
2 run.py ~sharder.planner
2 run.py ~nope
2 run.py ~model.nope
2 run.py resume=5
2 run.py resume=/nope
2 run.py study=5
2 run.py +study.x=1
2 run.py simulate=null
2 run.py sharder.planner=null
2 run.py trainer.early_stopping=null
2 run.py data.rows_per_table=[[1]]
2 run.py data=random data.rows_per_table=[1000000000000000000]
2 run.py data=random data.look_ups=[1,1]
2 run.py +choices=5
2 run.py seed=${seed}
2 run.py seed=${nope}
2 run.py seed=${trainer}
2 run.py seed=[1
2 run.py seed='1
2 run.py seed={deep}
2 run.py seed={long}
2 run.py =1
2 run.py seed
2 run.py modèle=dcn
2 run.py model=🙂
2 run.py profile=cpu
2 run.py hydra=null
2 run.py hydra.run.dir=null
2 run.py +hydra.job.env_copy=[NOPE]
2 run.py hydra.searchpath=[/nope]
2 run.py hydra.searchpath=[pkg://nope.nope]
2 run.py hydra/launcher=nope
2 run.py nope=1
2 run.py model=dlrm,dcn
2 run.py seed=range(1,3)
2 run.py optimizer.sparse.lr=interval(0.1,1)
2 run.py model.embedding_dim=${data}
2 run.py experiment=[frappe]
2 run.py data.root=\udcff
2 run.py --nope
2 run.py --config-path /tmp
2 run.py --config-dir /nope
2 run.py --cfg nope
2 run.py --experimental-rerun x
2 run.py --cfg job nope=1
2 run.py --help model=nope
2 run.py -m seed=interval(1,2)
2 run.py -m seed=range(0,100000000)
2 run.py -m seed=range(1,5,0)
2 run.py -m model=dlrm,nope
2 run.py -m seed=1,x
2 run.py -m seed=choice()
2 run.py -m seed=1,2 hydra.sweep.subdir=.
2 run.py -m seed=1,2 hydra.sweeper.max_batch_size=0
2 run.py -m seed=1,2 hydra/launcher=submitit_local
2 run.py -m model=null,dcn
2 run.py -m hydra/sweeper=optuna optimizer.sparse.lr=interval(1,0)
2 run.py -m hydra/sweeper=optuna model=dlrm,dcn hydra.sweeper.n_trials=0
2 run.py -m hydra/sweeper=optuna model=dlrm,dcn hydra.sweeper.metric=nope
2 run.py -m seed={many}
0 run.py seed=1 seed=2
0 run.py --cfg job seed=1
0 run.py model=dlrm --info defaults
0 run.py --config-dir {here} seed=1
0 run.py --help
0 run.py hydra.run.dir=a\\
0 run.py hydra.run.dir='it\\'s'
0 run.py hydra.run.dir='a,b=[c]'
? run.py hydra.run.dir={written}
? run.py hydra.run.dir='{here}/\\${seed}'
2 run.py model=tables model.file='{read}'
2 run.py data.frequencies='{read}'
2 run.py sharder=dmt sharder.towers.partition='{read}'
? run.py --config-dir {read}
2 run.py resume='{read}'
? run.py {clicks} data.label={value}
? run.py {clicks} data.dense=[{value}]
? run.py {clicks} data.categorical=[price]
2 run.py {clicks} data.dense=[label]
2 run.py {clicks} data.dense=[price] data.categorical=[price]
2 run.py {clicks} data.drop=[label]
2 run.py {clicks} data.drop=[user,item,price]
2 run.py {clicks} data.validation_share=0.9 data.test_share=0.9
2 run.py {clicks} data.file={value}
? run.py {clicks} data.splits.train=clicks.csv data.splits.validation=clicks.csv
2 recsys-lab {value}
2 recsys-lab show {read}
2 recsys-lab compare {read} {read}
2 recsys-lab ablation {read}
2 recsys-lab ablation {here}/dir --level {value}
2 recsys-lab torchrec_plan {read} {tables}
2 recsys-lab torchrec_plan {here}/null.json {tables} --beside {value}
2 recsys-lab partition {read} --towers 2 --steps 1 --samples 10 -o {here}/o.json
? recsys-lab partition {few} -o {written}
? recsys-lab partition {few} -o {here}/o.json --towers {value}
? recsys-lab partition {few} -o {here}/o.json --ratio {value}
2 recsys-lab partition {few} -o {here}/o.json --compare {read}
? recsys-lab studies --runs {read}
2 recsys-lab validate --rows {read}
2 recsys-lab validate --local --rounds {value} nope=1
2 recsys-lab calibrate --out {written} nope=1
? recsys-lab schema --out {written}
? recsys-lab frequencies data=random --rows 10 -o {written}
? recsys-lab frequencies data=random --rows {value} -o {here}/f.npz
2 recsys-lab flexshard {value}
? recsys-lab flexshard table5 --out {written}
? recsys-lab decide {tables1} clusters=h100x8 batch=64 {small} --page {written}
2 recsys-lab decide {tables1} clusters=h100x8 batch={value} {small}
2 recsys-lab decide {tables1} clusters={value} batch=64 {small}
? recsys-lab decide {tables1} clusters=h100x8:{value} batch=64 {small}
2 recsys-lab decide {tables1} clusters=h100x8 batch=64 sharders={value}
2 recsys-lab decide {tables1} clusters=h100x8 batch=64 profiles={value}
2 recsys-lab decide {tables1} clusters=h100x8 batch=64 {small} mode=train
2 recsys-lab decide {tables1} clusters=h100x8 batch=64 {small} experiment=neo/figure8
2 recsys-lab decide {tables1} clusters=h100x8 batch=64 {small} model._target_=os.system
? recsys-lab decide {tables1} clusters=h100x8 batch=64 {small} sharder.memory_budget_gb=1e-9
2 recsys-lab rank model=dcn
"""
WORDS = {
    "{deep}": "[" * 3000 + "]" * 3000,
    "{long}": "9" * 5000,
    "{many}": ",".join(map(str, range(20_000))),
    "{tables}": "model=tables model.file={here}/t.csv cluster=h100x8",
    "{tables1}": "model=tables model.file={here}/t.csv",
    "{small}": "sharders=torchrec precisions=fp32 optimizers=adagrad",
    "{few}": "model=dlrm data.rows_train=500 data.rows_validation=100 data.rows_test=100 --towers 2 --steps 1 --samples 10",
    "{clicks}": "data=table data.label=label data.root={here} data.cache={here}/cache",
    "\\udcff": "\udcff",
}
EXPECTED = {"2": REFUSED, "0": TAKEN, "?": DOCUMENTED}


def cases() -> Iterator[Case]:
    for line in LINES.strip().splitlines():
        expected, program, rest = line.split(maxsplit=2)
        words = ["mode=plan", "logger=none"] if program == "run.py" and "mode=" not in rest and "resume=" not in rest else []
        for each in _filled(rest):
            kind = "run" if program == "run.py" else "recsys_lab"
            yield Case("lines", line[:100], (*words, *each.split(" ")), EXPECTED[expected], prepare=prepare, program=kind)
    for most in (0, 100, 3000):
        words = ("mode=plan", "logger=none", "data=random", "hydra.run.dir={here}/run")
        yield Case("lines", f"a disk that is full after {most} bytes", words, most_file_bytes=most)


def _filled(line: str) -> Iterator[str]:
    for mark, words in WORDS.items():
        line = line.replace(mark, words)
    mark = next((mark for mark in PLACES if mark in line), None)
    if mark is None:
        yield line
        return
    for value in PLACES[mark]:
        yield line.replace(mark, value if mark == "{value}" else f"{{here}}/{value}")
    for value in ELSEWHERE.get(mark, ()):
        yield line.replace(mark, value)


def prepare(here: Path) -> None:
    """One of each kind of thing that is no file of ours."""
    (here / "t.csv").write_text(TABLES)
    (here / "clicks.csv").write_text(CLICKS)
    os.mkfifo(here / "fifo")
    (here / "dir").mkdir()
    (here / "file").write_text("mine")
    (here / "loop").symlink_to(here / "loop")
    (here / "gone").symlink_to(here / "nothing")
    (here / "bin").write_bytes(b"\xff\xfe\0\1" * 50)
    (here / "null.json").write_text("null")
    (here / "deep.json").write_text("[" * 30_000)
