"""`report.html`: a run on one self-contained page. What the run did not do is said, never left blank."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path

import yaml

from recsys_lab.base.files import write_text
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.explain import explain
from recsys_lab.record.run_folder import Run, read_run
from recsys_lab.report import html, plots, sections
from recsys_lab.report.advice import advice
from recsys_lab.report.breakdown import by_column, by_column_charts, gauc, reliability_charts
from recsys_lab.report.charts import Chart, element, side_by_side
from recsys_lab.report.plan_map import plan_map
from recsys_lab.report.stores import store_curve, stores, stores_here
from recsys_lab.report.tiers import coverage, tiers
from recsys_lab.report.timeline_chart import timeline_charts

PAGE_FILE = "report.html"
#: Modes that log steps.
TRAINING = ("auto", "train")
#: Anchors and headings of the page, in its order.
CONTENTS = {
    "quality": "Quality",
    "plan": "Plan",
    "iteration": "One iteration",
    "collectives": "Collectives of one iteration",
    "environment": "Environment",
    "config": "Config",
}


def write_page(folder: Path | str) -> Path:
    """Write `folder`/report.html from the run's other files. UserError where they are missing or broken."""
    run = read_run(folder)
    return write_text(run.folder / PAGE_FILE, page(run))


def write_missing_page(folder: Path) -> None:
    """The page of a finished run that was killed between its record and its page. Nothing where there is no plan, as of a study."""
    if not (folder / PAGE_FILE).is_file() and (folder / "plan.json").is_file():
        write_page(folder)


def page(run: Run) -> str:
    """The page's text."""
    name = run.folder.resolve().name
    body = [*_top(run, name), *_learning(run), *_plan(run), *_iteration(run), *_config(run)]
    return html.document(f"{name}: recsys_lab", body)


def _top(run: Run, name: str) -> list[str]:
    result = run.result
    choices = " ".join(f"{group}={choice}" for group, choice in result["choices"].items() if choice is not None)
    parts = [
        f"<h1>{escape(_title(result['choices']) or name)}</h1>",
        f'<p class="soft">{escape(choices)}<br>{escape(name)}: {escape(result["status"])}, mode={escape(result["mode"])}, '
        f"seed={result['seed']}, config {escape(str(result['config_fingerprint']))}</p>",
    ]
    if cut := result.get("pruned"):
        bound = f"{sections.number(cut['value'], 4)} after epoch {cut['epoch']}, bound {sections.number(cut['bound'], 4)}"
        parts.append(f'<p class="note"><b>Cut short by a search</b>, so these are no figures of a whole run: {cut["metric"]} {bound}.</p>')
    if error := result.get("error"):
        parts.append(f'<p class="failed"><b>The run failed.</b> {escape(error["type"])}: {escape(error["message"])}</p>')
    parts += map(html.cards, sections.headline_groups(run))
    parts += [f'<p class="note">{escape(words)}</p>'] if (words := sections.outside_words(result)) else []
    parts += [f"<p>{escape(sentence)}</p>" for sentence in advice(run)]
    missing = [part for part in ("measured", "simulated") if result[part] is None and not result.get("error")]
    notes = [*(sections.absent(result, part).capitalize() + "." for part in missing), *run.data_notes]
    parts += [f'<p class="note">{escape(note)}</p>' for note in notes]
    there = [anchor for anchor in CONTENTS if anchor != "quality" or sections.has_quality(run)]
    links = "".join(f'<a href="#{anchor}">{CONTENTS[anchor]}</a>' for anchor in there)
    return [*parts, f'<nav class="contents" aria-label="Contents">{links}</nav>']


def _title(choices: Mapping[str, str | None]) -> str:
    """What ran, in the words of the command line. Empty where the record does not say it all."""
    model, sharder, cluster = (choices.get(group) for group in ("model", "sharder", "cluster"))
    return f"{model} under {sharder} on {cluster}" if model and sharder and cluster else ""


def _head(anchor: str) -> str:
    return f'<h2 id="{anchor}">{CONTENTS[anchor]}</h2>'


def _learning(run: Run) -> list[str]:
    """Nothing of a run that only planned or simulated."""
    if not sections.has_quality(run):
        return []
    curve = side_by_side(plots.learning_curve(run.metrics, run.best_auc.get("validation")))
    why = sections.absent(run.result, "measured") if run.result["measured"] is None else "no step was logged"
    parts = [_head("quality"), html.table(sections.quality(run), 0)]
    if run.result["mode"] in TRAINING or run.result.get("error"):
        parts.append(curve or f'<p class="note">No learning curve: {escape(why)}.</p>')
    parts.append(side_by_side(reliability_charts(run.result)))
    if (grouped := gauc(run.result)) is not None:
        parts.append(html.table(grouped))
    for table, charts in zip(by_column(run.result), by_column_charts(run.result)):
        parts += [html.table(table), side_by_side(charts)]
    return parts


def _plan(run: Run) -> list[str]:
    parts = [_head("plan")]
    if run.plan is None:
        return [*parts, f'<p class="note">No plan.json: {escape(sections.absent(run.result, "plan"))}.</p>']
    fullest = (run.result["plan"] or {}).get("fullest_bytes")
    cluster = run.result["choices"].get("cluster") or "the named cluster"
    parts += _one_plan(run, run.plan, f"For {cluster}", run.memory_there_bytes, fullest)
    if (larger := stores(run)) is not None:
        parts.append(html.table(larger))
    if (curve := store_curve(run)) is not None:
        parts.append(element(curve))
    if (planned := tiers(run)) is not None:
        parts.append(html.table(planned))
    others = sections.alternatives(run)
    if run.reasons is not None and others is not None:
        parts.append(
            "<ul>" + "".join(f"<li>{escape(sentence)}</li>" for sentence in run.reasons["sentences"]) + "</ul>" + html.table(others)
        )
    if run.plan_here is not None:
        parts += _one_plan(run, run.plan_here, "What trained here in its place", None, None)
    if (cached := stores_here(run)) is not None:
        parts.append(html.table(cached))
    if (covered := coverage(run)) is not None:
        parts.append(html.table(covered))
    return parts


def _one_plan(run: Run, plan: ShardingPlan, title: str, limit: float | None, fullest: float | None) -> list[str]:
    of_record = plan is run.plan
    which = "named" if of_record else "here"
    return [
        html.table(sections.plan_facts(run, plan, title, of_record)),
        "" if fullest is None or limit is None else plots.gauge(fullest, limit),
        side_by_side([plots.rank_weights(plan, f"weights-{which}", limit), plan_map(plan, f"map-{which}")]),
        "".join(f"<p>{escape(sentence)}</p>" for sentence in explain(plan)),
        html.table(sections.tables(plan, f"Tables, {title[0].lower()}{title[1:]}")),
    ]


def _iteration(run: Run) -> list[str]:
    parts = [_head("iteration")]
    measured, simulated = run.result["measured"], run.result["simulated"]
    bars: list[Chart] = []
    if measured and measured["phases_ms"]:
        mean = sum(value or 0 for value in measured["phases_ms"].values())
        median = sections.ms(measured["iteration_ms"]["median"])
        title = f"measured: {sections.ms(mean)} an iteration on average, median {median}"
        bars.append(plots.iteration_bar("phases-measured", measured["phases_ms"], mean, title))
    if run.hides_simulation:
        simulated = None
    if simulated and simulated["phases_ms"] and simulated["iteration_ms"] is not None:
        whole = simulated["iteration_ms"]
        title = f"simulated: {sections.ms(whole)} an iteration"
        bars.append(plots.iteration_bar("phases-simulated", simulated["phases_ms"], whole, title))
        if saved := simulated.get("bound_by"):
            bars.append(plots.bound_by(saved, whole))
    parts.append(side_by_side(bars))
    if measured and simulated:
        parts.append('<p class="note">Each bar fills its own scale: one ran here, the other is computed for the named cluster.</p>')
    if run.trace is not None and not run.hides_simulation:
        parts.append(side_by_side(timeline_charts(run.trace)))
    there = [origin for origin in ("measured", "simulated") if run.result[origin] or run.result.get("error")]
    parts += [html.table(sections.phases(run, origin)) for origin in there]
    parts.append(_head("collectives"))
    parts += [html.table(sections.collectives(run, origin)) for origin in there]
    parts += [] if there else ['<p class="note">Nothing was recorded or simulated.</p>']
    return parts


def _config(run: Run) -> list[str]:
    text = yaml.safe_dump(run.config, sort_keys=False, allow_unicode=True) if run.config else "no config.yaml in the run folder"
    packages = run.environment.get("packages") or {}
    every = ", ".join(f"{name} {version}" for name, version in packages.items()) or "not recorded"
    return [
        _head("environment"),
        html.table(sections.environment(run), 0),
        f"<details><summary>All packages</summary><p>{escape(every)}</p></details>",
        _head("config"),
        f"<details><summary>All keys</summary><pre>{escape(text)}</pre></details>",
    ]
