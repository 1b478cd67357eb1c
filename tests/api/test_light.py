"""A plan and its price without torch: counted by a child process once, then read from the user's cache folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import get_object
from omegaconf import OmegaConf
from torchrec.distributed.types import ShardingType

from recsys_lab.__main__ import COMMANDS
from recsys_lab.base import child
from recsys_lab.config.choices import apart_from_hydra
from recsys_lab.config.command_line import CONF
from recsys_lab.config.declared import declared, made_of
from recsys_lab.config.schema import imported, schema_of
from recsys_lab.experiment import of_words
from recsys_lab.models.workload import describe, describe_towers
from recsys_lab.sharders.torchrec.types import SCHEMES
from tests.models.sequences import NEXT_ITEM

ROOT = Path(__file__).resolve().parents[2]
TARGETS = sorted({target for path in (CONF / "model").glob("*.yaml") if (target := OmegaConf.load(path).get("_target_"))})  # type: ignore[union-attr]
SIMULATES = """
import json, sys, time
from dataclasses import asdict, fields, replace
import recsys_lab
made = recsys_lab.simulate(*{words!r})
print(json.dumps([asdict(made), "torch" in sys.modules, time.process_time()]))
"""
WORDS = ("model=dcn", "sharder=dmt", "cluster=h100x64")
OF_TORCHREC = ("model=dcn_mlperf", "data=random", "sharder=torchrec", "cluster=h100x64")


def simulated(words: tuple[str, ...], cache: Path, where: Path = ROOT) -> tuple[dict[str, Any], bool, float]:
    """What a process of its own finds: the price, whether it has imported torch, and the seconds of CPU that it took."""
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": os.pathsep.join([str(ROOT), str(where)])}
    said = SIMULATES.format(words=words)
    done = subprocess.run([sys.executable, "-c", said], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def here(words: tuple[str, ...]) -> dict[str, Any]:
    """The same in this process, which has imported torch."""
    import recsys_lab

    return json.loads(json.dumps(asdict(recsys_lab.simulate(*words))))


def kept(cache: Path) -> list[Path]:
    return sorted((cache / "recsys_lab" / "counted").iterdir())


@pytest.mark.long
@pytest.mark.parametrize(
    "words", [WORDS, ("model=dcn_mlperf", "data=random", "sharder=torchrec", "cluster=h100x64")], ids=["dmt", "torchrec"]
)
def test_a_second_call_is_light(words: tuple[str, ...], tmp_path: Path) -> None:
    first, with_torch, _ = simulated(words, tmp_path)
    assert not with_torch and first == here(words)
    before = [(path.name, path.stat().st_mtime_ns) for path in kept(tmp_path)]
    again, with_torch, seconds = simulated(words, tmp_path)
    assert not with_torch and again == first and seconds < 2, seconds
    assert [(path.name, path.stat().st_mtime_ns) for path in kept(tmp_path)] == before != []


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A cache with the answer of one simulation, and what that gave."""
    cache = tmp_path_factory.mktemp("cache")
    return cache, simulated(WORDS, cache)[0]


def _broken(file: Path) -> None:
    file.write_text(file.read_text()[:100])


def _foreign(file: Path) -> None:
    entry = json.loads(file.read_text())
    entry["answer"]["forward_flops_per_sample"] *= 2
    file.write_text(json.dumps(entry))


def _writable(file: Path) -> None:
    file.chmod(0o666)


def _no_dictionary(file: Path) -> None:
    file.write_text("[1]")


@pytest.mark.long
@pytest.mark.parametrize("breaks", [_broken, _foreign, _writable, _no_dictionary])
def test_a_file_that_cannot_be_trusted_is_written_anew(counted: tuple[Path, dict[str, Any]], breaks: Callable[[Path], None]) -> None:
    cache, first = counted
    (file,) = kept(cache)
    whole, mode = file.read_bytes(), file.stat().st_mode
    breaks(file)
    assert simulated(WORDS, cache)[:2] == [first, False]
    assert [path.read_bytes() for path in kept(cache)] == [whole]
    file.chmod(mode)


@pytest.mark.long
def test_a_folder_that_cannot_be_written_only_costs_time(counted: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "recsys_lab").write_text("a file in the way of the folder")
    assert simulated((*WORDS, "data.cache=" + str(tmp_path / "data")), tmp_path)[:2] == [counted[1], False]


OWN_MODEL = """
from __future__ import annotations
from torch import nn
from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.concat import Concat
from recsys_lab.base.ranges import Dimension, Width
from own_sizes import SIZES

class Mine(Concat):
    def __init__(self, inputs: ModelInputs, *, embedding_dim: Dimension, over_layers: list[Width] = SIZES):
        super().__init__(inputs, embedding_dim=embedding_dim, bottom_layers=[8], over_layers=over_layers)
"""


@pytest.mark.long
def test_a_model_of_the_users_own_is_counted_again_when_a_file_of_it_changes(tmp_path: Path) -> None:
    own, cache = tmp_path / "own", tmp_path / "cache"
    (own / "conf" / "model").mkdir(parents=True)
    (own / "conf" / "model" / "mine.yaml").write_text("_target_: own_model.Mine\nembedding_dim: 8\n")
    (own / "own_model.py").write_text(OWN_MODEL)
    (own / "own_sizes.py").write_text("from own_rest import TWO\nSIZES = [16, 1]\n")
    (own / "own_rest.py").write_text("TWO = 2\n")
    words = (f"hydra.searchpath=[file://{own / 'conf'}]", "model=mine", "sharder=torchrec_row_wise", "cluster=h100x64")
    first, with_torch, _ = simulated(words, cache, own)
    assert not with_torch
    (own / "own_sizes.py").write_text("from own_rest import TWO\nSIZES = [4096, 1]\n")
    second, with_torch, _ = simulated(words, cache, own)
    assert not with_torch and second["iteration_ms"] > first["iteration_ms"]


@pytest.mark.parametrize("target", TARGETS)
def test_a_model_is_declared_as_it_is(target: str) -> None:
    """In a process of its own, since here its module may be imported already."""
    said = (
        "import dataclasses, sys\nfrom recsys_lab.config.declared import declared\nfrom recsys_lab.config.schema import schema_of\n"
        f"one = declared({target!r})\n"
        "assert 'torch' not in sys.modules\n"
        "print([(f.name, str(f.type), f.default_factory() if f.default_factory is not dataclasses.MISSING else None)"
        " for f in dataclasses.fields(schema_of(one))])\n"
        "print(one.has_first_order, one.begins_first_order, one.widths(8), one.__module__, one.__qualname__)\n"
    )
    done = subprocess.run([sys.executable, "-c", said], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    real = get_object(target)
    declares = fields(schema_of(real))
    keys = [(f.name, str(f.type), f.default_factory() if callable(f.default_factory) else None) for f in declares]
    facts = f"{real.has_first_order} {real.begins_first_order} {real.widths(8)} {real.__module__} {real.__qualname__}"
    assert done.stdout.replace("declared:", "").splitlines() == [str(keys), facts]


@pytest.mark.parametrize("model", sorted(path.stem for path in (CONF / "model").glob("*.yaml") if "\nfile:" not in path.read_text()))
def test_the_count_of_every_model_is_the_models_own(model: str) -> None:
    """What goes to the child and comes back loses no bit."""
    with apart_from_hydra():
        experiment = of_words([f"model={model}", "mode=simulate", "data=random"], where="test")
    data = experiment.open_data()
    tables, dense, lengths = experiment.tables(data), data.dense_features, {feature.name: feature.mean_length for feature in data.features}
    if experiment.model.objective == "next_item" and experiment.model.rows is None:  # of histories, which no generated data have
        tables, dense = tuple(replace(table, dim=experiment.model.embedding_dim) for table in NEXT_ITEM), 0
        lengths = {name: 6.0 for table in tables for name in table.features}
    kind: Any = imported(experiment.model.make).func
    towers = () if kind.with_towers is None else _two([f.name for f in data.features])
    for groups in {(), towers}:
        built = experiment.model.build(tables, dense, torch.device("meta"), groups)
        cost = experiment.model.counted(tables, dense, groups, lengths)
        own = asdict(describe(built, dense, lengths))
        assert json.loads(json.dumps(asdict(cost))) == json.loads(json.dumps(own | {"towers": [asdict(t) for t in describe_towers(built)]}))


def _two(features: list[str]) -> tuple[tuple[str, ...], ...]:
    return tuple(features[::2]), tuple(features[1::2])


def test_a_class_that_cannot_be_read_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made_by_function.py").write_text(
        "from recsys_lab.models.dcn import DCN\ndef made():\n    class Own(DCN):\n        pass\n    return Own\nOwn = made()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert declared("made_by_function.Own") is None and declared("nowhere_at_all.Own") is None
    assert made_of(dict) is dict


def test_our_names_of_torchrecs_sharding_types_are_its_own() -> None:
    assert tuple(kind.value for kind in ShardingType) == SCHEMES


def test_what_torch_refuses_in_the_child_is_refused_here(tmp_path: Path) -> None:
    said = (
        "import sys, recsys_lab\nfrom recsys_lab.errors import UserError\n"
        "try:\n    recsys_lab.simulate('model=dcn', 'model.over_layers=[8,2]', 'cluster=h100x64', 'sharder=neo_4d')\n"
        "except UserError as error:\n    print(error)\nprint('torch' in sys.modules)"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", said], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert "model.over_layers" in done.stdout and done.stdout.endswith("False\n"), done.stdout + done.stderr[-2000:]


def test_a_child_that_fails_leaves_the_call_to_this_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(sys, "executable", "no-such-python")
    assert child.answer("tests.api.test_light:_doubled", 21, ("child",)) == 42
    assert not list(tmp_path.iterdir())


def _doubled(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_help_of_a_command_waits_for_no_torch(command: str) -> None:
    said = (
        "import sys\nfrom recsys_lab.__main__ import main\n"
        f"try:\n    main([{command!r}, '--help'])\nexcept SystemExit:\n    pass\nprint('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", said], cwd=ROOT, capture_output=True, text=True, check=False)
    assert len(done.stdout) > 100 and done.stdout.endswith("\nFalse\n"), done.stderr[-2000:]


@pytest.mark.long
def test_a_simulation_on_the_command_line_is_light_too(counted: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    words = [*WORDS, "mode=simulate", "logger=none", f"hydra.run.dir={tmp_path / 'run'}"]
    said = f"import sys, run\nassert run.main({words!r}) == 0\nprint('torch' in sys.modules, file=sys.stderr)"
    environment = os.environ | {"XDG_CACHE_HOME": str(counted[0])}
    done = subprocess.run([sys.executable, "-c", said], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr.endswith("False\n"), done.stderr[-2000:]
    assert json.loads((tmp_path / "run" / "result.json").read_text())["simulated"]["iteration_ms"] == counted[1]["iteration_ms"]
