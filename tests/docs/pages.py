"""Commands as README and docs show them, and what makes each small enough for a test."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: Programs whose lines are commands.
PROGRAMS = ("python", "make", "torchrun", "export", "mkdir", "recsys-lab", "pip", "docker", "srun", "sbatch", "kubectl", "sky", "eval")
_START = re.compile(rf"^(?:\$ )?(?:(?:{'|'.join(PROGRAMS)})(?= )(?! *[:=])|[A-Z_]+=\S+ ).*")
_LISTED = re.compile(r"^(    |\t)")

TUTORIAL = "of the tutorial, which tests/docs/test_moves.py runs in its order"
#: Commands that no test runs, and why. The page and what the command begins with.
NOT_RUN = {
    ("README.md", "make demo"): "installs; its commands are the page's second and third, which are run",
    ("docs/index.md", "make env"): "installs what runs this test",
    ("docs/examples.md", "python run.py launcher=emulated"): "needs network namespaces; tests/launchers/test_emulated.py runs it",
    (
        "docs/how_figures_are_checked.md",
        "python -m recsys_lab validate",
    ): "two minutes of simulations; tests/simulate holds the same points",
    ("docs/how_figures_are_checked.md", "python experiments/reliability/fuzz.py"): "ten minutes; tests/experiments run fewer cases",
    ("docs/how_figures_are_checked.md", "python experiments/reliability/kills.py"): "an hour; the long tests kill twenty runs",
    ("docs/add_a_cluster.md", "python -m recsys_lab calibrate"): "measures this machine alone; its own tests run it small",
    ("docs/add_a_cluster.md", "torchrun --nproc_per_node 8"): "eight processes; tests/calibrate/test_anywhere.py starts two",
    ("docs/add_a_cluster.md", "python -m recsys_lab validate --local"): "trains several runs to measure them, minutes each",
    ("docs/add_a_cluster.md", "srun --ntasks 16"): "sixteen tasks of SLURM; tests/calibrate/test_anywhere.py stands in for srun",
    ("docs/decide.md", "python -m recsys_lab decide model=tables model.file=tables.csv"): "the reader's; tests/decide/test_against.py",
    ("docs/docker.md", "docker"): "needs Docker; tests/docker check what the files name",
    ("docs/editor.md", "eval"): "changes the shell that calls it",
    ("docs/launchers.md", "torchrun --nproc_per_node 8"): "eight processes; tests/launchers/test_torchrun.py starts fewer",
    ("docs/launchers.md", "torchrun --nnodes 8"): "eight machines; tests/launchers/test_torchrun.py starts two on one",
    ("docs/launchers.md", "torchrun --nnodes 1:2"): "two machines; tests/launchers/test_torchrun.py has one join on one",
    ("docs/launchers.md", "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE"): "for the line below it, which has a test of its own",
    ("docs/launchers.md", "python run.py -m launcher=slurm"): "needs sbatch; tests/launchers/test_slurm.py stands in for it",
    ("docs/launchers.md", "python run.py launcher=slurm launcher.dry_run=true"): "for 64 GPUs; tests/launchers/test_slurm.py runs a script",
    ("docs/launchers.md", "sbatch"): "needs sbatch; tests/launchers/test_slurm.py stands in for it",
    ("docs/launchers.md", "python run.py launcher=kubernetes"): "needs a Kubernetes cluster; tests/launchers hold the JobSet",
    ("docs/launchers.md", "kubectl"): "needs a Kubernetes cluster; tests/launchers hold the JobSet",
    ("docs/launchers.md", "sky"): "needs SkyPilot and a cloud; tests/launchers hold the task to SkyPilot's schema",
    ("docs/launchers.md", "pip install"): "installs what the next line needs; make test-ecosystem brings it",
    ("docs/launchers.md", "python run.py launcher=emulated"): "needs network namespaces; tests/launchers/test_emulated.py runs it",
    ("docs/launchers.md", "python -m recsys_lab emulated"): "needs network namespaces, and minutes",
    ("docs/launchers.md", "python run.py resume=RUN_FOLDER"): "stands for a run of the reader's; tests/end_to_end resume theirs",
    ("docs/launchers.md", "python run.py launcher=ray"): "needs Ray; tests/ecosystem starts one",
    ("docs/moves.md", "export STUDY"): TUTORIAL,
    ("docs/moves.md", "mkdir -p $STUDY"): TUTORIAL,
    ("docs/moves.md", "python $STUDY"): TUTORIAL,
    ("docs/moves.md", "python run.py data=table"): TUTORIAL,
    ("docs/moves.md", "python run.py start_from=$STUDY"): TUTORIAL,
    ("docs/moves.md", "python run.py start_from=RUN"): "needs a trained run, and new rows; tests/end_to_end/test_moves.py has both",
    ("docs/moves.md", "python run.py -m start_from=RUN"): "needs trained runs; tests/config/test_folders.py composes such sweeps",
    ("docs/moves.md", "python run.py resume=RUN"): "needs a stopped run; the same file has one",
    ("docs/moves.md", "python -m recsys_lab export RUN"): "needs a trained run; tests/end_to_end/test_export.py has one",
    ("docs/moves.md", "python MODEL/serve.py"): "the same test runs it where nothing but torch and safetensors is installed",
    ("docs/moves.md", "python -m recsys_lab import FROM"): "needs weights of TorchRec's; tests/export/test_imported.py makes them",
    ("docs/run_folder.md", "python run.py start_from=RUN"): "the same",
    ("docs/python.md", "pip install"): "installs; make test-ecosystem and tests/package do",
    ("docs/python.md", "python run.py logger=mlflow"): "needs a server of MLflow; tests/ecosystem starts one",
    ("docs/trackers.md", "pip install"): "installs; make test-ecosystem does",
    ("docs/trackers.md", "python run.py logger=mlflow"): "needs a server of MLflow; tests/ecosystem starts one",
    ("docs/torchrec.md", "python -m recsys_lab torchrec_plan"): "needs a plan; tests/torchrec_plans/test_torchrec_json.py writes one",
    ("docs/security.md", "export GLOO_SOCKET_IFNAME"): "names an interface that this machine need not have",
    ("docs/security.md", "python run.py -m launcher=slurm"): "needs sbatch, and an interface that this machine need not have",
    ("docs/studies.md", "python -m recsys_lab studies --run quick"): "minutes a study; tests of the studies run some of them",
}
#: Pages whose commands belong together: they have a test of their own, which runs them in their order.
IN_ORDER = ("docs/own_data.md",)
#: What stands for DIR, relative to the folder of the data sets, by a word of the command.
DATA = {"frappe": "frappe", "data=interactions": "amazon_beauty"}
#: Generated data and steps so few that a run takes seconds.
FEW = ("data.rows_train=3000", "data.rows_validation=1000", "data.rows_test=1000", "data.batch_size=256")


@dataclass(frozen=True)
class Shown:
    """A command of a page, its continued lines joined. `output`: the lines that the page shows below it."""

    page: str
    line: int
    text: str
    output: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text, comments=True)

    @property
    def expected(self) -> str:
        """The first line of the output."""
        return self.output[0] if self.output else ""

    @property
    def prints_the_same(self) -> bool:
        """Whether every call prints the same: nothing is measured, and nothing is in the way of running it as it stands."""
        priced = any(word in self.words for word in ("mode=simulate", "mode=plan")) and "-m" not in self.words
        return self.reason_not_run is None and self.page not in IN_ORDER and (priced or self.words[3:4] in (["decide"],))

    @property
    def parts(self) -> list[str]:
        """What the output has between its `...`, with single spaces."""
        return [" ".join(part.split()) for part in "\n".join(self.output).split("...") if part.strip()]

    @property
    def reason_not_run(self) -> str | None:
        found = [why for (page, start), why in NOT_RUN.items() if page == self.page and self.text.startswith(start)]
        return found[0] if found else None


def shown(page: Path) -> list[Shown]:
    """Every command of `page`, in order: lines of indented blocks, and of fenced ones in sh, that begin as a command does."""
    lines = page.read_text(encoding="utf-8").splitlines()
    name = page.relative_to(ROOT).as_posix()
    return list(_commands(name, list(_code(lines)), lines))


def _code(lines: list[str]) -> Iterator[tuple[int, str]]:
    """(line number, text) of what stands in blocks of code."""
    fence = None
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            fence = line.strip("` \n") or "sh" if fence is None else None
        elif fence == "sh" or fence is None and _LISTED.match(line):
            yield number, line.strip()


def _commands(page: str, code: list[tuple[int, str]], lines: list[str]) -> Iterator[Shown]:
    place = 0
    while place < len(code):
        first, text = code[place]
        place += 1
        if not _START.match(text):
            continue
        while text.endswith("\\") and place < len(code):
            text = text[:-1].rstrip() + " " + code[place][1]
            place += 1
        after: list[tuple[int, str]] = []
        while place + len(after) < len(code) and not _START.match(code[place + len(after)][1]):
            after.append(code[place + len(after)])
        yield Shown(page, first, text.removeprefix("$ "), _below(first, after, lines))


def _below(first: int, after: list[tuple[int, str]], lines: list[str]) -> tuple[str, ...]:
    """Of the code that follows, what no prose parts from the command of line `first`."""
    found, last = [], first
    for number, text in after:
        if any(line.strip() and not _LISTED.match(line) for line in lines[last:number]):
            break
        found.append(text)
        last = number
    return tuple(text for text in found if text)


def small(command: Shown, folder: Path, data: Path | None, run: Path, sweep: Path) -> list[str] | None:
    """`command` as words that take seconds, writing into `folder`; None where it needs data that are not here."""
    words = [{"RUN": str(run), "resume=RUN": f"resume={run}", "SWEEP": str(sweep)}.get(word, word) for word in command.words]
    if "DIR" in command.text:
        place = next(where for word, where in DATA.items() if word in command.text)
        if data is None:
            return None
        words = [word.replace("DIR", str(data / place)) for word in words]
    if words[1] != "run.py" or "--help" in words or "--cfg" in words or any(word.startswith("resume=") for word in words):
        return words
    kind = "sweep" if "-m" in words else "run"
    words += [f"hydra.{kind}.dir={folder}"] if not any(word.startswith(f"hydra.{kind}.dir=") for word in words) else []
    words += [] if "logger=none" in words else ["logger=none"]
    if "experiment=flexshard/table5" in words or any(word in ("mode=simulate", "mode=plan") for word in words):
        return words
    generated = not any(word.startswith(("data=", "experiment=", "model=xlrm")) for word in words)
    words += [*(FEW if generated else ()), "trainer.max_epochs=1"]
    words = [word for word in words if not word.startswith("trainer.max_steps")] + ["trainer.max_steps=4"]
    words = [re.sub(r"^seed=.*,.*", "seed=1,2", word) for word in words]
    return [re.sub(r"^hydra.sweeper.n_trials=.*", "hydra.sweeper.n_trials=2", word) for word in words]


def block_with(page: str, words: str) -> str:
    """The block of code of a page in docs with these words in it, fenced or else indented, as the file that it is."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    fenced = re.compile(r"^```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE)
    runs = groupby(fenced.sub("x", text).splitlines(), lambda line: not line or line.startswith("    "))
    blocks = [*fenced.findall(text), *("\n".join(block) for indented, block in runs if indented)]
    (block,) = [block for block in blocks if words in block]
    return textwrap.dedent(block).strip() + "\n"
