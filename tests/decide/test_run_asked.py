"""A whole run in words: its length, its offers, its targets, and clusters in several sizes. A mistake is one line."""

from __future__ import annotations

import pytest

from recsys_lab.__main__ import main
from recsys_lab.decide.question import Question, parse_question
from recsys_lab.decide.rows import Row
from recsys_lab.decide.run_asked import RunAsked, Spot
from recsys_lab.decide.sizes import SizeRange, smallest_sentences


def asked(*words: str) -> Question:
    return parse_question(["model=dcn", "batch=65536", *words])


def test_a_run_is_read() -> None:
    run = asked("clusters=h100x64,a100x128", "samples=4.2e9", "spot=h100x64:1.10@0.05,a100x128:0.7", "target_hours=24", "evaluation=0").run
    spot = {"h100x64": Spot(1.1, 0.05), "a100x128": Spot(0.7)}
    assert run == RunAsked(samples=4.2e9, evaluation=0.0, target_hours=24.0, spot=spot)
    assert run.is_billed and run.has_target and not asked("clusters=h100x64").run.is_billed


def test_a_range_doubles_its_devices_and_keeps_its_price() -> None:
    question = asked("clusters=h100x8..128:2.50,a100x16", "samples=1e9", "spot=h100x8..128:1.2@0.01")
    labels = ["h100x8", "h100x16", "h100x32", "h100x64", "h100x128"]
    assert [one.label for one in question.clusters] == [*labels, "a100x16"]
    assert [one.price for one in question.clusters] == [2.5] * 5 + [None]
    assert question.ranges == (SizeRange("h100x8..128", tuple(labels)),)
    assert set(question.run.spot) == set(labels)
    assert [one.label for one in asked("clusters=h100x8..8").clusters] == ["h100x8"]


def fitting(cluster: str, fits: bool) -> Row:
    return Row(cluster, "torchrec", "fp32", "adam", "torchrec", 8, 1, 8, fits, ms=1.0 if fits else None)


def test_the_smallest_size_that_fits_is_one_sentence() -> None:
    sizes = SizeRange("h100x8..32", ("h100x8", "h100x16", "h100x32"))
    rows = [fitting("h100x8", False), fitting("h100x16", True), fitting("h100x32", True), fitting("a100x8", True)]
    assert smallest_sentences([sizes], rows) == ["The smallest cluster of h100x8..32 that fits is h100x16; nothing fits h100x8."]
    (sentence,) = smallest_sentences([sizes], rows[2:])
    assert sentence == "The smallest cluster of h100x8..32 that fits is h100x32; nothing fits h100x8, h100x16."
    assert smallest_sentences([sizes], [fitting("h100x8", True)]) == ["The smallest cluster of h100x8..32 that fits is h100x8."]
    assert smallest_sentences([sizes], rows[:1]) == ["No size of h100x8..32 fits."]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["clusters=h100x8..7"], ["clusters: ", "ends below its first size", "given h100x8..7"]),
        (["clusters=h100x8.."], ["not a range of sizes", "given h100x8..", "h100x8..128"]),
        (["clusters=h100..128"], ["not a range of sizes", "h100x8..128"]),
        (["clusters=h100x0..8"], ["not a range of sizes"]),
        (["clusters=h100x8..100"], ["sizes double", "h100x8..64 or h100x8..128"]),
        (["clusters=h100x8..16:nan"], ["price of h100x8", "given nan"]),
        (["clusters=h100x8..16:-1"], ["price of h100x8", "given -1"]),
        (["clusters=h1000x8..16"], ["no such cluster", "given h1000x8"]),
        (["clusters=h100x8..16,h100x16"], ["named twice", "give h100x16 one price"]),
        (["clusters=h100x8", "samples=0"], ["samples: out of range", "given 0"]),
        (["clusters=h100x8", "samples=nan"], ["samples: out of range", "given nan"]),
        (["clusters=h100x8", "samples=inf"], ["samples: out of range", "given inf"]),
        (["clusters=h100x8", "samples=many"], ["samples: not a number", "given many"]),
        (["clusters=h100x8", "hours=-1"], ["hours: out of range", "given -1"]),
        (["clusters=h100x8", "samples=1e9", "hours=4"], ["said twice", "samples=1e9 hours=4", "drop one"]),
        (["clusters=h100x8", "samples=1e9", "samples=2e9"], ["samples: said twice"]),
        (["clusters=h100x8", "target_hours=4"], ["target_hours: ", "length is not known", "samples=4.2e9"]),
        (["clusters=h100x8", "spot=h100x8:1"], ["spot: ", "length is not known"]),
        (["clusters=h100x8", "samples=1e9", "target_hours=0"], ["target_hours: out of range"]),
        (["clusters=h100x8", "target_samples_per_s=nan"], ["target_samples_per_s: out of range"]),
        (["clusters=h100x8", "samples=1e9", "checkpoint_minutes=0"], ["checkpoint_minutes: out of range"]),
        (["clusters=h100x8", "samples=1e9", "spot=h100x16:1"], ["spot: not one of clusters=", "allowed: h100x8"]),
        (["clusters=h100x8", "samples=1e9", "spot=h100x8"], ["spot: not an offer", "h100x64:1.10@0.05"]),
        (["clusters=h100x8", "samples=1e9", "spot=h100x8:1@"], ["spot: not an offer", "given h100x8:1@"]),
        (["clusters=h100x8", "samples=1e9", "spot="], ["spot: not an offer", "given nothing"]),
        (["clusters=h100x8", "samples=1e9", "spot=h100x8:nan"], ["spot: price of h100x8", "given nan"]),
        (["clusters=h100x8", "samples=1e9", "spot=h100x8:1@-2"], ["spot: interruptions of h100x8", "given -2"]),
        (["clusters=h100x8", "samples=1e9", "spot=h100x8:1,h100x8:2"], ["spot: named twice", "give h100x8 one offer"]),
    ],
)
def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture, words: list[str], parts: list[str]) -> None:
    assert main(["decide", "model=dcn", "batch=65536", *words]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and all(part in err for part in parts), err
