"""What a device-hour costs: the user's figure first, then a dated list price of just that device, then nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from recsys_lab.cluster import ListPrice, Price
from recsys_lab.config.command_line import read
from recsys_lab.config.folders import stored
from recsys_lab.config.frozen import differences, fingerprint, identity, plain, save
from recsys_lab.config.targets import Named
from recsys_lab.errors import UserError
from recsys_lab.experiment import resolve
from tests.simulate.clusters import cluster, of_file

LISTED = ListPrice(2.0, "2026-09-20", "a list", "device", 8)
LAMBDA = ("2026-09-20", "https://lambda.ai/instances")
CRUSOE = ("2026-09-20", "https://www.crusoe.ai/cloud/pricing")
PRICED = {
    "h100": (3.99, *LAMBDA),
    "h100_roce": (3.99, *LAMBDA),
    "b200": (6.69, *LAMBDA),
    "a100": (2.79, *LAMBDA),
    "a100_40": (1.99, *LAMBDA),
    "a100x32": (1.99, *LAMBDA),
    "zionex_x16": (1.99, *LAMBDA),
    "h100_pcie": (3.29, *LAMBDA),
    "gh200": (2.29, *LAMBDA),
    "h200": (4.29, *CRUSOE),
    "a100_pcie": (2.0, *CRUSOE),
    "l40s": (1.5, *CRUSOE),
    "mi300x": (3.45, *CRUSOE),
    "gb200": (10.5, "2026-09-20", "https://www.coreweave.com/pricing"),
    "b300": (7.4, "2026-08-26", "https://www.hyperstack.cloud/gpu-pricing"),
    "a40": (0.44, "2026-08-19", "https://www.runpod.io/pricing"),
}


def price_of(*words: str) -> Price | None:
    return resolve(read(["logger=none", *words]).config).cluster.price


def test_the_users_figure_wins_over_the_list() -> None:
    on = replace(cluster(1, 8), list_price=LISTED)
    assert on.price == Price(2.0, "list price of 2026-09-20", "2026-09-20", "a list")
    assert replace(on, price_per_device_hour=5.0).price == Price(5.0, "given")
    assert cluster(1, 8).price is None


def test_another_size_is_said_and_another_device_has_no_such_price() -> None:
    on = replace(cluster(8, 8), list_price=LISTED)
    assert on.price is not None and on.price.extrapolates == "from 8 devices to 64"
    assert on.price.words == "2.00 $ a device-hour (list price of 2026-09-20, a list, extrapolated from 8 devices to 64)"
    assert replace(on, price_per_device_hour=5.0).price == Price(5.0) and Price(5.0).words == "5.00 $ a device-hour (given)"
    assert replace(on, device=replace(on.device, name="another")).price is None
    of_any = replace(on, list_price=replace(LISTED, device=None, devices=None)).price
    assert of_any is not None and of_any.extrapolates is None


@pytest.mark.parametrize("choice", [*PRICED, "h20", "gb300", "v100", "spr"])
def test_the_prices_on_file_are_of_their_devices(choice: str) -> None:
    price: Any = of_file("cluster", choice).price  # type: ignore[union-attr]
    assert (price and (price.usd_per_device_hour, price.date, price.source)) == PRICED.get(choice)


def test_words_change_the_price_the_list_and_the_device() -> None:
    assert price_of("cluster=h100x64", "cluster.price_per_device_hour=2.5") == Price(2.5)
    assert price_of("cluster=h100x64", "cluster.list_price=null") is None
    assert price_of("cluster=h100x64", "cluster.device.name=my own") is None
    price = price_of("cluster=h200", "cluster.list_price={usd_per_device_hour: 4.5, date: 2026-10-01, source: an offer}")
    assert price == Price(4.5, "list price of 2026-10-01", "2026-10-01", "an offer")


@pytest.mark.parametrize(
    ("word", "part"),
    [
        ("cluster.list_price={usd_per_device_hour: 4.5, date: never}", "cluster.list_price.date: "),
        ("cluster.list_price.date=2026-13-01", "cluster.list_price.date: "),
        ("cluster.list_price.date=yesterday", "a day such as 2026-09-20"),
        ("cluster.list_price.usd_per_device_hour=0", "cluster.list_price.usd_per_device_hour: out of range"),
        ("cluster.list_price.usd_per_device_hour=nan", "cluster.list_price.usd_per_device_hour: out of range"),
        ("cluster.price_per_device_hour=-1", "cluster.price_per_device_hour: out of range"),
    ],
)
def test_a_price_that_is_none_is_one_line(word: str, part: str) -> None:
    with pytest.raises(UserError) as caught:
        read(["cluster=h100x64", "logger=none", word])
    assert part in str(caught.value)


def test_a_run_from_before_there_were_list_prices_is_the_same_run(tmp_path: Path) -> None:
    """As its config.yaml was then: without the key. Its record and checkpoints hold its fingerprint."""
    config = read(["cluster=h100x64", "logger=none"]).config
    assert config is not None and config.cluster.list_price is not None
    old = plain(config)
    del old["cluster"]["list_price"]
    save(old, tmp_path)
    again = stored(tmp_path, Named())
    assert again.cluster.list_price is None and differences(config, again) == []
    assert fingerprint(config) == fingerprint(again) == fingerprint(OmegaConf.create(old))
    assert identity(plain(config)) == identity(old)
    dearer = read(["cluster=h100x64", "logger=none", "cluster.list_price.usd_per_device_hour=9"]).config
    assert dearer is not None and fingerprint(dearer) == fingerprint(config)
    new = read(["cluster=h100x64", "logger=none", "cluster.price_per_device_hour=9"]).config
    assert new is not None and fingerprint(new) != fingerprint(config)
