"""FlexShard's tables and figures: within the bounds that the README states, reproducible, and every figure with its origin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from experiments.flexshard import figure1, figure3, figure5, figure6, figure7, fit, memory, table5, table6
from experiments.flexshard.command import main
from experiments.flexshard.models import MODELS, TIERS, access, cluster, law, mean_length, paper_options, plan, published, table, tier_rows
from recsys_lab.errors import UserError
from recsys_lab.plan.validate import validate
from recsys_lab.studies.catalogue import studies_of
from recsys_lab.studies.study import ORIGINS, Study


def test_the_published_tables_agree_with_each_other() -> None:
    """Typing errors would show here: rows add up to the table, shares to 100 %."""
    for model in MODELS:
        for row in published().table5[model].values():
            assert sum(row.rows.values()) == published().table4[model].rows
            assert sum(row.share.values()) == pytest.approx(100)
            assert all(rows % 32 == 0 for rows in row.rows.values())
    assert table6.run("table6").statements[0][1]


def test_the_laws_are_those_that_the_script_fits() -> None:
    again = fit.fit(published())
    for model in MODELS:
        assert law(model).exponents == pytest.approx(again[model]["law"]["exponents"], rel=1e-6)
        assert law(model).shift == pytest.approx(again[model]["law"]["shift"], rel=1e-6)
        assert mean_length(model) == pytest.approx(again[model]["mean_length"], rel=1e-9)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("tiers", [2, 3])
def test_table_5_within_5_percent_of_rows_and_a_point_of_look_ups(model: str, tiers: int) -> None:
    sharding = plan(model, tiers, **paper_options())
    validate(sharding)
    row, rows = published().table5[model][f"{tiers}-tier"], tier_rows(sharding)
    assert sum(rows.values()) == table(model).rows
    begin = 0
    for tier in TIERS:
        assert rows[tier] == pytest.approx(row.rows[tier], rel=0.05)
        share = access(model)["history"].length_of(begin, begin + rows[tier]) / mean_length(model)
        assert 100 * share == pytest.approx(row.share[tier], abs=1)
        begin += rows[tier]


def test_flex_rows_follow_though_no_fit_used_them() -> None:
    errors = {line.what: line.error for line in table5.run("table5").lines if "host_sharded rows" in line.what and not line.by_construction}
    assert len(errors) == 4
    assert all(error is not None and abs(error) < (0.013 if "RM-2" in what else 0.002) for what, error in errors.items())


def test_without_the_break_point_the_laws_give_fewer_replicated_rows() -> None:
    """The README says so; it would be wrong to say that coverage alone gives table 5."""
    for coverage in table5.coverage_only().values():
        assert -0.4 < coverage["replicated_rows_error"] < -0.2
        assert abs(coverage["flex_rows_error"]) < 0.04 and abs(coverage["covered_points"]) < 0.3
        assert 3.5 < coverage["look_ups_of_last_published_row"] < 5.3


def test_on_its_own_cluster_rm_2_meets_the_communication_neutral_break_point() -> None:
    rows = tier_rows(plan("RM-2", 3, replica_multiplier=6.0))
    assert rows["host_sharded"] == pytest.approx(949_576, rel=0.001)
    assert cluster().world_size == 32


@pytest.mark.parametrize(("study", "holding"), [(figure1, 4), (figure3, 2), (figure5, 4), (table5, 2), (table6, 1), (memory, 2)])
def test_what_the_paper_says_holds(study, holding: int) -> None:
    outcome: Study = study.run("any")
    assert [holds for _, holds in outcome.statements] == [True] * holding
    assert all(line.origin in ORIGINS for line in outcome.lines)


def test_nearly_six_times_holds_in_one_of_its_two_readings() -> None:
    hidden, serial = figure7.run("figure7").statements
    assert "hidden" in hidden[0] and hidden[1]
    assert "one after the other" in serial[0] and not serial[1]


def test_drawn_look_ups_go_where_the_plan_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure6, "SAMPLES", 200)
    rows = tier_rows(plan("RM-4", 3, **paper_options()))
    share = 100 * float(law("RM-4").share(rows["replicated"] + rows["host_sharded"]))
    assert figure6.counted("RM-4", rows) == pytest.approx(share, abs=0.6)  # 4 standard errors of 95,000 look-ups


def test_the_command_prints_one_json_object_with_origins(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table5", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["models"]["RM-1"]["3-tier"]["published"]["rows"]["host_sharded"] == 1184544
    assert set(record["models"]["RM-1"]["3-tier"]["planned"]) == {"rows", "share_percent"}
    assert {line["published_origin"] for line in record["lines"]} == {"published"}


def test_the_command_prints_a_table_and_refuses_what_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figure7"]) == 0
    printed = capsys.readouterr().out
    assert "RM-2 3-tier" in printed and "DOES NOT HOLD" in printed
    with pytest.raises(UserError, match="figure2"):
        main(["figure2"])


def test_pictures_are_the_same_every_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pictures = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        assert main(["figure3", "--out", str(folder)]) == 0
        pictures.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert set(pictures[0]) == {"figure3.svg", "figure3.png"}
    assert pictures[0] == pictures[1]


def test_every_study_is_in_the_readme() -> None:
    readme = Path(table5.__file__).with_name("README.md").read_text(encoding="utf-8")
    assert all(study in readme for study in studies_of("flexshard"))
    assert OmegaConf.to_container(published())["source"] == "arXiv 2301.02959"


def test_memory_falls_as_section_63_measured() -> None:
    """The paper measured 2.5 and 1.5 GiB less than row-wise."""
    for tiers, measured_gib in ((2, 2.5), (3, 1.5)):
        assert 0 < memory.saved_gib(tiers) == pytest.approx(measured_gib, abs=1.0)
