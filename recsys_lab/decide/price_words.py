"""Which prices the costs of rows are at, in words."""

from __future__ import annotations

from collections.abc import Sequence

from recsys_lab.cluster.price import GIVEN
from recsys_lab.decide.rows import Row


def price_words(rows: Sequence[Row]) -> list[str]:
    """The price of each cluster, and where those came from that nobody gave. Nothing without any price."""
    prices = {row.cluster: row.price for row in rows if row.price is not None}
    if not prices:
        return []
    each = ", ".join(f"{cluster} {price.usd_per_device_hour:,.2f} ({price.origin})" for cluster, price in prices.items())
    sentences = [f"Dollars per device-hour: {each}."]
    listed = {cluster: price for cluster, price in prices.items() if price.origin != GIVEN}
    for source in dict.fromkeys(price.source for price in listed.values()):
        larger = dict.fromkeys(price.extrapolates for price in listed.values() if price.source == source and price.extrapolates)
        sentences.append(f"List price: {source}" + (f", extrapolated {', '.join(map(str, larger))}." if larger else "."))
    if listed:
        sentences.append(f"Your own price wins: clusters={','.join(f'{cluster}:2.50' for cluster in listed)}.")
    return sentences
