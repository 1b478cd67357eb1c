"""A run in the terminal: the tables of its page, without the pictures."""

from __future__ import annotations

from rich.console import Console

from recsys_lab.plan.explain import explain
from recsys_lab.record.run_folder import Run
from recsys_lab.report import sections
from recsys_lab.report.advice import advice
from recsys_lab.report.breakdown import print_breakdown
from recsys_lab.report.stores import stores, stores_here
from recsys_lab.report.terminal import print_table
from recsys_lab.report.tiers import coverage, tiers

MOST_TABLES = 30


def print_run(run: Run, out: Console) -> None:
    """Headline, quality, plan, iteration, collectives, environment."""
    result = run.result
    out.print(run.folder.resolve().name, style="bold")
    out.print(" ".join(f"{group}={choice}" for group, choice in result["choices"].items() if choice is not None))
    out.print(f"{result['status']}, mode={result['mode']}, seed={result['seed']}, config {result['config_fingerprint']}")
    if error := result.get("error"):
        out.print(f"the run failed: {error['type']}: {error['message']}", style="bold red")
    for note in run.data_notes:
        out.print(note, style="dim")
    out.print()
    print_table(out, sections.headline(run))
    for sentence in advice(run):
        out.print(sentence)
    out.print()
    if sections.has_quality(run):
        print_table(out, sections.quality(run))
        print_breakdown(result, out)
    if run.plan:
        print_table(out, sections.plan_facts(run, run.plan, "Plan", True))
    for table in (stores(run), stores_here(run), tiers(run), coverage(run)):
        if table is not None:
            print_table(out, table, MOST_TABLES)
    for origin in [part for part in ("measured", "simulated") if result[part] or result.get("error")]:
        print_table(out, sections.phases(run, origin))
        print_table(out, sections.collectives(run, origin))
    print_table(out, sections.environment(run))


def print_plan(run: Run, out: Console) -> None:
    """The plan for the named cluster, and the one that trained here where that is another."""
    if run.plan is None:
        out.print(f"no plan.json: {sections.absent(run.result, 'plan')}")
        return
    cluster = run.result["choices"].get("cluster") or "the named cluster"
    for plan, title in ((run.plan, f"Plan for {cluster}"), (run.plan_here, "Plan that trained here in its place")):
        if plan is not None:
            print_table(out, sections.plan_facts(run, plan, title, plan is run.plan))
            for sentence in explain(plan):
                out.print(sentence)
            out.print()
            print_table(out, sections.tables(plan, "Tables"), MOST_TABLES)
            print_table(out, sections.reasons(plan), MOST_TABLES)
            if plan is run.plan:
                print_reasons(run, out)
    for table in (stores(run), tiers(run)):
        if table is not None:
            print_table(out, table, MOST_TABLES)


def print_reasons(run: Run, out: Console) -> None:
    """Why the plan for the named cluster is as it is, where its planner tells."""
    others = sections.alternatives(run)
    if run.reasons is None or others is None:
        return
    for sentence in run.reasons["sentences"]:
        out.print(f"- {sentence}")
    out.print()
    print_table(out, others)
