"""A plan and its price without torch, once the same has been counted: the answer is read from the user's cache folder."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torchrec.distributed.types import ShardingType

from recsys_lab.__main__ import COMMANDS
from recsys_lab.base import answers
from recsys_lab.config.choices import apart_from_hydra
from recsys_lab.config.command_line import CONF
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
price = recsys_lab.simulate(*{words!r})
print(json.dumps([asdict(price), "torch" in sys.modules, time.process_time()]))
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
    return sorted((cache / "recsys_lab" / "answers").rglob("output.pkl"))


@pytest.mark.long
@pytest.mark.parametrize(
    "words", [WORDS, ("model=dcn_mlperf", "data=random", "sharder=torchrec", "cluster=h100x64")], ids=["dmt", "torchrec"]
)
def test_a_second_call_is_light(words: tuple[str, ...], tmp_path: Path) -> None:
    first, with_torch, _ = simulated(words, tmp_path)
    assert with_torch and first == here(words)
    before = [(path, path.stat().st_mtime_ns) for path in kept(tmp_path)]
    again, with_torch, seconds = simulated(words, tmp_path)
    assert not with_torch and again == first and seconds < 2, seconds
    assert [(path, path.stat().st_mtime_ns) for path in kept(tmp_path)] == before != []


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A cache with the answer of one simulation, and what that gave."""
    cache = tmp_path_factory.mktemp("cache")
    return cache, simulated(WORDS, cache)[0]


@pytest.mark.long
def test_a_broken_answer_is_computed_again(counted: tuple[Path, dict[str, Any]]) -> None:
    cache, first = counted
    (file,) = kept(cache)
    whole = file.read_bytes()
    file.write_bytes(whole[:100])
    assert simulated(WORDS, cache)[:2] == [first, True]
    assert simulated(WORDS, cache)[:2] == [first, False]


class Planted:
    """A pickle that runs code."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("planted",)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return answers.cache_folder()


ASKED: list[int] = []


def doubled(number: int) -> list[int]:
    ASKED.append(number)
    return [2 * number]


def test_an_answer_is_kept_by_its_question_and_its_sources(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ASKED.clear()
    assert [answers.answer(doubled, number, ("models",)) for number in (1, 2, 1)] == [[2], [4], [2]] and ASKED == [1, 2]
    assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(answers, "sources_of", lambda room: "changed")
    assert answers.answer(doubled, 1, ("models",)) == [2] and ASKED == [1, 2, 1]


def test_what_others_could_have_written_is_not_read(folder: Path) -> None:
    answers.answer(doubled, 3, ("models",))
    (file,) = folder.rglob("output.pkl")
    file.write_bytes(pickle.dumps(Planted()))
    folder.chmod(0o777)
    assert answers.answer(doubled, 3, ("models",)) == [6]
    assert not Path("planted").exists()


@pytest.mark.parametrize("where", ["recsys_lab", "recsys_lab/answers", "recsys_lab/answers/recsys_lab"])
def test_a_folder_that_cannot_be_used_only_costs_time(folder: Path, where: str) -> None:
    in_the_way = folder.parents[1] / where
    in_the_way.parent.mkdir(parents=True, exist_ok=True)
    in_the_way.write_text("a file")
    ASKED.clear()
    assert [answers.answer(doubled, 4, ("models",)) for _ in range(2)] == [[8], [8]] and ASKED == [4, 4]


OWN_MODEL = """
from __future__ import annotations
from recsys_lab.models.click_model import ClickModel, ModelInputs
from recsys_lab.models.layers import embedding_bags, feature_names, mlp
from recsys_lab.base.ranges import Dimension, Width
from own_sizes import SIZES
import torch

class Mine(ClickModel):
    def __init__(self, inputs: ModelInputs, *, embedding_dim: Dimension, over_layers: list[Width] = SIZES):
        super().__init__()
        self.features = feature_names(inputs.tables)
        self.embeddings = embedding_bags(inputs.tables, inputs.device)
        self.over = mlp(len(self.features) * embedding_dim, over_layers, inputs.device, linear_end=True)

    def predict(self, dense, looked_up):
        return self.over(torch.cat([looked_up[feature] for feature in self.features], dim=1)).squeeze(1)
"""


@pytest.mark.long
def test_a_model_of_the_users_own_is_counted_again_when_a_file_of_it_changes(tmp_path: Path) -> None:
    own, cache = tmp_path / "own", tmp_path / "cache"
    (own / "conf" / "model").mkdir(parents=True)
    (own / "conf" / "model" / "mine.yaml").write_text("_target_: own_model.Mine\nembedding_dim: 8\n")
    (own / "own_model.py").write_text(OWN_MODEL)
    (own / "own_sizes.py").write_text("SIZES = [16, 1]\n")
    words = (f"hydra.searchpath=[file://{own / 'conf'}]", "model=mine", "sharder=torchrec_row_wise", "cluster=h100x64")
    first, _, _ = simulated(words, cache, own)
    (own / "own_sizes.py").write_text("SIZES = [4096, 1]\n")
    second, _, _ = simulated(words, cache, own)
    assert second["iteration_ms"] > first["iteration_ms"]


def test_the_options_of_every_model_import_no_torch() -> None:
    program = "import sys\nfrom hydra.utils import get_object\n" + "".join(f"get_object({target!r})\n" for target in TARGETS)
    done = subprocess.run(
        [sys.executable, "-c", program + "print('torch' in sys.modules)"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize("model", sorted(path.stem for path in (CONF / "model").glob("*.yaml") if "\nfile:" not in path.read_text()))
def test_the_count_of_every_model_is_the_models_own(model: str) -> None:
    """What goes through the cache loses no bit."""
    with apart_from_hydra():
        own_data = model == "dlrm_v4"  # whose histories have times and actions
        experiment = of_words([f"model={model}", "mode=simulate", *([] if own_data else ["data=random"])], where="test")
    data = experiment.open_data()
    tables, dense, lengths = experiment.tables(data), data.dense_features, {feature.name: feature.mean_length for feature in data.features}
    if experiment.model.objective == "next_item" and experiment.model.rows is None:  # of histories, which no generated data have
        tables, dense = tuple(replace(table, dim=experiment.model.embedding_dim) for table in NEXT_ITEM), 0
        lengths = {name: 6.0 for table in tables for name in table.features}
    towers = _two([f.name for f in data.features]) if experiment.model.kind.has_towers else ()
    for groups in {(), towers}:
        built = experiment.model.build(tables, dense, torch.device("meta"), groups)
        cost = experiment.model.counted(tables, dense, groups, lengths, "fp32")
        own = asdict(describe(built, dense, lengths))
        assert json.loads(json.dumps(asdict(cost))) == json.loads(json.dumps(own | {"towers": [asdict(t) for t in describe_towers(built)]}))


def _two(features: list[str]) -> tuple[tuple[str, ...], ...]:
    return tuple(features[::2]), tuple(features[1::2])


def test_our_names_of_torchrecs_sharding_types_are_its_own() -> None:
    assert tuple(kind.value for kind in ShardingType) == SCHEMES


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
