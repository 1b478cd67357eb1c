"""What a run says in the terminal while it goes: a line a fact, measured and simulated told apart."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from recsys_lab.base.paths import sweep_of
from recsys_lab.cluster import Cluster, doubt
from recsys_lab.data.protocol import DataSet
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.store import DISK_HOST_CACHED, HOST_CACHED, UNCACHED
from recsys_lab.plan.store_facts import StoreFacts
from recsys_lab.record.item_baselines import item_sentences
from recsys_lab.record.started_from import StartedFrom
from recsys_lab.report.baselines import baseline_sentences, overrides_text
from recsys_lab.report.breakdown import print_breakdown
from recsys_lab.report.terminal import console
from recsys_lab.report.tiers import verdict_of
from recsys_lab.simulate import Simulated
from recsys_lab.units import counted, grid, human_bytes, human_count

#: A plan for more than so many can take minutes.
MANY_RANKS, MANY_TABLES = 1024, 500
CONSOLE = Console(highlight=False, soft_wrap=True)
_INDENT, _NARROWEST = 12, 40


def _line(word: str, text: str, wraps: bool = True) -> None:
    """A fact behind its word. On a terminal it is wrapped between words, unless it is a command. In a file it stays one line."""
    width = max(CONSOLE.width - _INDENT, _NARROWEST)
    if wraps and CONSOLE.is_terminal:
        text = "\n".join(textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False))
    CONSOLE.print(Text.assemble((f"{word:>10}", "bold"), "  ", text.replace("\n", "\n" + " " * _INDENT)))


def job(number: int, overrides: Sequence[str]) -> None:
    """The head of one job of a sweep."""
    CONSOLE.print()
    _line(f"job {number}", " ".join(overrides))


def not_repeated(name: str) -> None:
    """A job of a sweep whose config has finished before, in the sweep's folder `name`."""
    _line("", f"finished before, in folder {name}: not repeated (ablation.repeat=true runs it again)")


def other_data() -> None:
    """A job of a sweep whose config has run before, on other data."""
    _line("", "its data have changed since it ran: runs again")


def best(metric: str, value: float | None, overrides: Sequence[str]) -> None:
    """The best configuration of a search, as words of a command."""
    CONSOLE.print()
    _line("best", f"validation {metric} {value:.4f}, median over seeds; of so many trials the best, so a little of it is luck")
    _line("", " ".join(f"'{word}'" if set(word) & set("[]{}() ") else word for word in overrides), wraps=False)


def sweep(summary: str) -> None:
    """How far a sweep is, after a job."""
    _line("sweep", summary)


def set_aside(where: Path) -> None:
    """What another config or an earlier run left in a job's folder."""
    _line("", f"what was in its folder is now in {where}")


def data(data_set: DataSet) -> None:
    splits = ", ".join(f"{name} {split.rows:,}" for name, split in data_set.splits.items())
    rows = sum({f.table_name: f.rows for f in data_set.features}.values())
    _line(
        "data",
        f"{splits} rows; {data_set.dense_features} dense and {len(data_set.features)} categorical features, {human_count(rows)} table rows",
    )
    for note in data_set.notes:
        _line("", note)


def chosen(settings: Mapping[str, Any]) -> None:
    """What the config left open, where it was chosen by the data's rows."""
    if settings:
        _line("chosen", f"by the number of rows: {overrides_text(settings)} (a key of yours wins)")


def planning(cluster: Cluster, tables: int) -> None:
    """Before a plan that takes its time."""
    if cluster.world_size > MANY_RANKS or tables > MANY_TABLES:
        _line("planning", f"{counted(tables, 'table')} for {counted(cluster.world_size, 'rank')}: minutes, by the sharder")


def towers(strategy: str, steps: int) -> None:
    """Before towers are found on the run's own data."""
    _line(
        "towers",
        f"{strategy}, found on {counted(steps, 'step')} of a short training, or kept from an earlier run with the same model and data",
    )


def growth(lengths: float, skew: float) -> None:
    """Nothing where both are 1."""
    if not lengths == skew == 1:
        _line("growth", f"planned and simulated for histories {lengths:g} times as long, and frequencies to the power {skew:g}")


def plan(sharding: ShardingPlan, cluster: Cluster) -> None:
    held = sharding.weight_bytes_of_ranks()
    schemes: dict[str, int] = {}
    for placement in sharding.placements:
        schemes[placement.scheme] = schemes.get(placement.scheme, 0) + 1
    kinds = ", ".join(f"{count} {scheme}" for scheme, count in sorted(schemes.items(), key=lambda item: -item[1]))
    most = f"weights {human_bytes(max(held))} at most a rank" + (", not all in its memory" if sharding.has_stores else "")
    _line("plan", f"{cluster.name}: {grid(cluster.hosts, cluster.ranks_per_host)}; {kinds}; {most}")
    if words := doubt(cluster):
        _line("", words)


def stores(facts: Sequence[StoreFacts]) -> None:
    """Of tables that are not in device memory as a whole."""
    for kind in dict.fromkeys(one.kind for one in facts):
        own = [one for one in facts if one.kind == kind]
        moved = human_bytes(sum(one.bytes_moved for one in own))
        if kind in UNCACHED:
            _line("", f"{counted(len(own), 'table')} in the host's memory: {moved} an iteration over links")
            continue
        place = {HOST_CACHED: "the host's memory", DISK_HOST_CACHED: "files behind the host's memory"}.get(kind, "files")
        rates = " to ".join(dict.fromkeys(f"{rate:.0%}" for rate in (min(o.hit_rate for o in own), max(o.hit_rate for o in own))))
        shares = " to ".join(dict.fromkeys(f"{s:.1%}" for s in (min(o.cached_share for o in own), max(o.cached_share for o in own))))
        _line("", f"{counted(len(own), 'table')} in {place}, {shares} of rows cached: {rates} hits expected, {moved} an iteration")


def dedup(asked: bool | str, planned_so: bool, all_bytes: float, once_bytes: float) -> None:
    """What `sharder.dedup`, `asked` for, does. Bytes of ids, rows and gradients over all ranks: with all ids, and with equal ones once."""
    if not all_bytes:
        _line("dedup", "nothing to save: no rows of sequences travel here; of bags their sums travel, whatever the ids")
        return
    size = f"{human_bytes(once_bytes)} of ids, rows and gradients an iteration in place of {human_bytes(all_bytes)}, over all ranks"
    if planned_so:
        _line("dedup", f"equal ids of a rank's batch travel once: {size}{', simulated faster' if asked == 'auto' else ''}")
    else:
        _line("dedup", f"off, as it is not simulated faster: with it, {size}")


def simulated(iteration: Simulated, batch_per_rank: int, small: str | None = None) -> None:
    """`small`: what is said of a model far too small for its cluster."""
    phases = ", ".join(f"{name.replace('_', ' ')} {ms:.2f}" for name, ms in iteration.phases_ms.items())
    _line(
        "simulated",
        f"{iteration.cluster}: {iteration.examples_per_second:,.0f} examples/s, {iteration.iteration_ms:.2f} ms an iteration "
        f"of {counted(batch_per_rank, 'sample')} a rank ({phases} ms), profile {iteration.profile}",
    )
    if interval := iteration.interval_ms:
        _line("", f"90 % interval: {interval.low:.2f} to {interval.high:.2f} ms")
    if iteration.extrapolates:
        _line("", iteration.extrapolates)
    if iteration.cost_per_billion_samples is not None:
        at = f" at {iteration.price.words}" if iteration.price else ""
        _line("", f"a billion samples cost {iteration.cost_per_billion_samples:,.2f} ${at}")
    if small:
        _line("", small)


def in_run(iteration: Simulated) -> None:
    """Of the training that follows, whose caches and files still fill."""
    assert iteration.in_run is not None
    at = iteration.in_run
    _line("", f"{at.iteration_ms:.2f} ms on average over this run's {counted(at.steps, 'step')}; the figures above are of the long run")


def not_calibrated(cluster: str) -> None:
    """In place of a simulation of a machine that nobody has measured."""
    _line("simulated", f"{cluster}: not calibrated, so no times; python -m recsys_lab calibrate measures this machine")


def trains_here(named: ShardingPlan, here: ShardingPlan) -> None:
    if here is named:
        return
    _line(
        "here",
        f"trains on {grid(here.hosts, here.ranks_per_host)} of this machine in place of {grid(named.hosts, named.ranks_per_host)}",
    )
    cut = [(a, b) for a, b in zip(named.tables, here.tables) if a.rows != b.rows]
    if cut:
        rows = [sum(t.rows for t in plan.tables) for plan in (named, here)]
        _line(
            "",
            f"{len(cut)} of {counted(len(here.tables), 'table')} scaled down to fit: "
            f"{human_count(rows[0])} rows in all become {human_count(rows[1])}",
        )


def _ranks(q: dict[str, Any], suffix: str) -> str:
    if q[f"ndcg_10{suffix}"] is None:
        return "not ranked (more than trainer.evaluate_pairs)"
    return f"hit rate@10 {q[f'hit_rate_10{suffix}']:.4f}, NDCG@10 {q[f'ndcg_10{suffix}']:.4f}"


def resumes(sentence: str) -> None:
    """What a run that resumes elsewhere, or for longer, does not have as before."""
    _line("resumes", sentence)


def finished(record: dict[str, Any], folder: Path, batch: int) -> None:
    """How a run ended. `batch`: samples a step over all ranks that trained here."""
    if measured := record["measured"]:
        ms = measured["iteration_ms"]
        _line(
            "measured",
            f"{measured['examples_per_second']:,.0f} examples/s on average, {ms['median']:.1f} ms an iteration "
            f"(median; 95th percentile {ms['p95']:.1f}), batch {batch:,} over {counted(measured['world_size'], 'rank')} here",
        )
        if measured.get("coverage"):
            _line("", verdict_of(measured["coverage"]))
    for split, q in (record["quality"] or {}).items():
        if "auc" in q:
            _line("quality", f"{split}: AUC {q['auc']:.4f}, NE {q['ne']:.4f}, log loss {q['log_loss']:.4f}, {q['examples']:,} examples")
        if "users" in q:
            _line("quality", f"{split}: {_ranks(q, '')} among all items; {_ranks(q, '_of_100')} among 100; {q['users']:,} users")
    if not CONSOLE.quiet:
        print_breakdown(record, console())
    if started := record.get("started_from"):
        _line("weights", StartedFrom(**started).sentence())
    if written := record.get("predictions"):
        _line("predictions", f"{written['file']}: {written['rows']:,} rows of {written['split']}")
    for sentence in item_sentences(record):
        _line("baselines", sentence)
    if record.get("baselines"):
        for sentence in baseline_sentences(record):
            _line("baselines", sentence)
    _line("report", str(folder / "report.html"))
    if sweep_of(folder) is None:
        offline(folder)


def offline(folder: Path) -> None:
    """How W&B runs of a run, or of a sweep and its jobs, get to its server. Nothing where they are there, or none are."""
    runs = [place for place in ("wandb", "*/wandb") if any(folder.glob(f"{place}/offline-run-*"))]
    if runs:
        _line("wandb", "offline; to send it:", wraps=False)
        _line("", f"wandb sync {' '.join(f'{shlex.quote(str(folder))}/{place}/offline-run-*' for place in runs)}", wraps=False)
