"""A decision beside an earlier one, as `decide --json` printed it: what still fits, and what takes more time, memory or money."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from recsys_lab.base.files import out_file, read_json, write_text
from recsys_lab.base.schema import check_shape
from recsys_lab.decide.question import Question
from recsys_lab.decide.rows import Row
from recsys_lab.errors import LimitPassed, PlanDoesNotFit, UserError
from recsys_lab.report.sections import Table
from recsys_lab.units import counted

#: Of what `--json` prints. It grows where a figure below has another name or meaning.
FORMAT = 1
REMEDY = "write it with this version and the same words: decide ... --json > FILE"
#: Rows in a table, the largest increases first.
MOST_ROWS = 20
#: A change that no digit of the tables shows.
SAME = 5e-4
#: Figures that are compared, and what they are.
FIGURES = {"time": "ms an iteration", "memory": "GB of the fullest device", "cost": "per 1e9 samples"}


@dataclass(frozen=True)
class _Row:
    """What is read of a row. Its figures are null where it does not fit."""

    cluster: str
    sharder: str
    precision: str
    optimizer: str
    profile: str
    fits: bool
    ms: float | None = None
    memory_gb: float | None = None
    usd_per_1e9: float | None = None
    device_hours_per_1e9: float | None = None
    why_not: str | None = None

    @staticmethod
    def of(row: Row) -> _Row:
        return _Row(**{name: getattr(row, name) for name in _Row.__dataclass_fields__})

    @property
    def name(self) -> str:
        return f"{self.cluster} {self.sharder} {self.precision} {self.optimizer}"

    @property
    def able(self) -> bool:
        return self.fits and self.ms is not None


@dataclass(frozen=True)
class _Winner:
    row: _Row


@dataclass(frozen=True)
class _Answer:
    batch: int
    rows: list[_Row]
    winner: _Winner


@dataclass(frozen=True)
class Difference:
    """A row then and now. By figure (`FIGURES`) its values, None where one of the two is not known. `in_usd`: the cost is in dollars."""

    name: str
    profile: str
    before: dict[str, float | None]
    now: dict[str, float | None]
    in_usd: bool

    @property
    def increase(self) -> dict[str, float]:
        """By figure, relative: 0.05 is 5 % more. Without figures that are not known."""
        pairs = {name: (self.before[name], self.now[name]) for name in FIGURES}
        return {name: now / before - 1 for name, (before, now) in pairs.items() if before and now is not None}

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"increase": self.increase}

    @property
    def largest(self) -> float:
        return max(self.increase.values(), default=0.0)

    @property
    def changes(self) -> bool:
        return any(abs(value) >= SAME for value in self.increase.values())


@dataclass(frozen=True)
class Comparison:
    """`best`: the cheapest row then and the cheapest now, which may be others. `rows`: those that fit in both answers.

    `lost`, `gained`: names of combinations that fit then or now alone. `best_is_lost`: why the best of then does not fit; None: it does.
    """

    question: Question
    before: str
    best: Difference
    rows: tuple[Difference, ...]
    lost: tuple[str, ...]
    gained: tuple[str, ...]
    best_is_lost: str | None

    def mistake(self, most: float | None) -> UserError | None:
        """PlanDoesNotFit where the best of then no longer fits, LimitPassed where a figure of the best grew by more than `most`."""
        if self.best_is_lost is not None:
            return PlanDoesNotFit(f"no longer fits: {self.best_is_lost}", where=self.before, remedy=f"the cheapest now is {self.best.name}")
        grown = [f"{increase:+.1%} {name}" for name, increase in self.best.increase.items() if most is not None and increase > most + 1e-9]
        return LimitPassed("the best row grew", where=self.best.name, given=", ".join(grown), allowed=f"{most:+.1%}") if grown else None

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints under `against`."""
        mine = {name: getattr(self, name) for name in ("before", "lost", "gained", "best_is_lost")}
        return mine | {"best": self.best.to_json(), "rows": [row.to_json() for row in self.rows]}


def described(question: Question) -> dict[str, Any]:
    """What an answer must say of its question, so that a later one can be held against it."""
    return {"format": FORMAT, "model": model_of(question), "batch": question.batch}


def model_of(question: Question) -> str:
    """The choice of model. Its tables may differ from one answer to the next: that is what is compared."""
    return next(word.partition("=")[2] for word in question.words if word.startswith("model="))


def read_answer(path: Path | str, question: Question) -> _Answer:
    """The answer in a file. Raises UserError for one that cannot be read, and for another model, batch or format."""
    path = Path(path)
    data = read_json(path, REMEDY)
    given = data.get("format") if isinstance(data, dict) else None
    if given != FORMAT:
        raise UserError("an answer of another format", where=path, given=given or "none", allowed=FORMAT, remedy=REMEDY)
    for key, asked in list(described(question).items())[1:]:
        if data.get(key) != asked:
            raise UserError(f"an answer of another {key}", where=path, given=data.get(key, "none"), allowed=asked, remedy=REMEDY)
    if data.get("not_priced"):
        raise UserError("an answer that was interrupted", where=path, given=f"{data['not_priced']} not priced", remedy=REMEDY)
    check_shape(data, _Answer, path, REMEDY)
    rows = [_row(row) for row in data["rows"]]
    return _Answer(data["batch"], rows, _Winner(_row(data["winner"]["row"])))


@dataclass(frozen=True)
class Earlier:
    """An earlier answer to hold a decision against. `most`: by how much its best may grow, 0.05 is 5 %; `file`: of the Markdown."""

    question: Question
    answer: _Answer
    most: float | None
    file: Path | None

    @staticmethod
    def of(question: Question, against: str | None, most: str | None, markdown: str | None) -> Earlier | None:
        """Of the command's words; None without `against`. Raises UserError for what cannot be read or written, before any work."""
        if against is None:
            for name, text in (("--max-increase", most), ("--markdown", markdown)):
                if text is not None:
                    raise UserError("no earlier answer", where=name, given=text, remedy="name one: --against OLD.json")
            return None
        if most is not None and not re.fullmatch(r"\d{1,6}(\.\d+)?%?", most):
            raise UserError("no percentage", where="--max-increase", given=most, allowed="such as 5%")
        limit = None if most is None else float(most.rstrip("%")) / 100
        file = None if markdown is None else out_file(markdown, "--markdown", (".md",))
        return Earlier(question, read_answer(against, question), limit, file)

    def compare(self, rows: Sequence[Row], best: Row) -> Comparison:
        return compare(self.answer, self.question, rows, best)

    def end(self, comparison: Comparison) -> None:
        """Writes the Markdown. Raises `Comparison.mistake`."""
        error = comparison.mistake(self.most)
        if self.file is not None:
            write_text(self.file, markdown(comparison, error))
        if error is not None:
            raise error

    def end_without_any(self, error: UserError) -> None:
        """Writes the Markdown where nothing fits any longer."""
        if self.file is not None:
            write_text(self.file, f"{_title(self.question)}\n\n**{_escaped(str(error))}**\n")


def compare(old: _Answer, question: Question, rows: Sequence[Row], best: Row) -> Comparison:
    """The earlier answer beside today's rows, of which `best` is the cheapest."""
    now = {_key(row): row for row in map(_Row.of, rows)}
    then = {_key(row): row for row in old.rows}
    common = [key for key in then if key in now]
    was = old.winner.row
    still = now.get(_key(was), was)
    return Comparison(
        question,
        was.name,
        _difference(was, _Row.of(best)),
        tuple(_difference(then[key], now[key]) for key in common if then[key].able and now[key].able),
        _names(now[key] for key in common if then[key].able and not now[key].able),
        _names(now[key] for key in common if now[key].able and not then[key].able),
        None if still.able else still.why_not or "no figures",
    )


def tables(comparison: Comparison) -> list[Table]:
    """The best then and now, and the rows that changed."""
    best, changed = comparison.best, [row for row in comparison.rows if row.changes]
    unit = "$" if best.in_usd else "device-hours"
    cells = []
    for name, what in FIGURES.items():
        before, now = best.before[name], best.now[name]
        label = f"{unit} {what}" if name == "cost" else what
        cells.append((label, _figure(before), _figure(now), f"{best.increase[name]:+.1%}" if name in best.increase else ""))
    same = comparison.before == best.name
    notes = ["The cheapest row is the same." if same else f"It was {comparison.before}.", "Simulated, not measured."]
    notes += [f"No longer fits: {', '.join(comparison.lost)}."] if comparison.lost else []
    notes += [f"Fits now: {', '.join(comparison.gained)}."] if comparison.gained else []
    head = Table(f"Best: {best.name}", ("figure", "before", "now", "change"), tuple(cells), " ".join(notes), ("before", "now", "change"))
    shown = sorted(changed, key=lambda row: -row.largest)[:MOST_ROWS]
    columns = ("combination", "profile", "ms", "GB", "$" if best.in_usd else "dev-hours")
    rows = tuple((row.name, row.profile, *(_cell(row, name) for name in FIGURES)) for row in shown)
    left, alike = len(changed) - len(shown), len(comparison.rows) - len(changed)
    note = " ".join([*([f"{left} more changed."] if left else []), *([f"{counted(alike, 'row')} did not change."] if alike else [])])
    return [head, Table(f"{len(changed)} of {len(comparison.rows)} rows changed", columns, rows, note, columns[2:])]


def markdown(comparison: Comparison, error: UserError | None) -> str:
    """The same for a comment on a pull request. `error`: that of `Comparison.mistake`."""
    head, rows = tables(comparison)
    lines = [_title(comparison.question), ""]
    lines += [f"**{_escaped(str(error))}**", ""] if error else []
    lines += [f"{head.title}. {head.note}", "", *_markdown_table(head)]
    if rows.rows:
        lines += ["", f"<details><summary>{rows.title}</summary>", "", *_markdown_table(rows), "", rows.note, "", "</details>"]
    return "\n".join(lines) + "\n"


def _title(question: Question) -> str:
    return f"### decide: {_escaped(model_of(question))}, {question.batch:,} samples an iteration"


def _row(data: dict[str, Any]) -> _Row:
    return _Row(**{name: data[name] for name in _Row.__dataclass_fields__ if name in data})


def _key(row: _Row) -> tuple[str, ...]:
    return row.cluster, row.sharder, row.precision, row.optimizer, row.profile


def _names(rows: Iterable[_Row]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.name for row in rows))


def _difference(before: _Row, now: _Row) -> Difference:
    in_usd = before.usd_per_1e9 is not None and now.usd_per_1e9 is not None

    def figures(row: _Row) -> dict[str, float | None]:
        return {"time": row.ms, "memory": row.memory_gb, "cost": row.usd_per_1e9 if in_usd else row.device_hours_per_1e9}

    return Difference(now.name, now.profile, figures(before), figures(now), in_usd)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"


def _cell(row: Difference, name: str) -> str:
    return f"{_figure(row.now[name])} ({row.increase[name]:+.1%})" if name in row.increase else _figure(row.now[name])


def _markdown_table(table: Table) -> list[str]:
    rules = ("---:" if column in table.right else "---" for column in table.columns)
    return ["| " + " | ".join(map(_escaped, cells)) + " |" for cells in (table.columns, tuple(rules), *table.rows)]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")
