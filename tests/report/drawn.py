"""What stands in a chart: its tips and its words."""

from __future__ import annotations

from xml.etree import ElementTree

from recsys_lab.report.charts import Chart


def tips(chart: Chart) -> list[str]:
    """What hovering over its parts says, in the order in which they are drawn."""
    return [title.text or "" for title in ElementTree.fromstring(chart.svg).iter("title")]


def words(chart: Chart) -> list[str]:
    """Its texts: of ticks, axes, legends and labels."""
    return ["".join(text.itertext()) for text in ElementTree.fromstring(chart.svg).iter("text")]
