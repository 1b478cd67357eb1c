"""What holds of launcher=ray where Ray is not installed. tests/ecosystem has the rest, on a real Ray."""

from __future__ import annotations

import sys

import pytest

from launchers import ray as launcher
from recsys_lab.errors import UserError
from tests.some_keys import check_some_keys


def test_without_ray_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in launcher.OWN:
        monkeypatch.setenv(name, "")  # so that what the launcher sets is gone after the test
    monkeypatch.setenv("RAY_AUTH_TOKEN", "")
    with pytest.raises(UserError, match=r"^launcher: ray is not installed; given ray; pip install .*\[ray\]', or use launcher=local$"):
        launcher.launch(print, {}, tmp_path, hosts=1, ranks_per_host=1)


@pytest.mark.parametrize("address", ["", "ray://head:10001", "head", "head:port", "me@head:6379"])
def test_an_address_that_is_no_heads_is_refused(address):
    with pytest.raises(UserError, match="launcher.address: .*allowed: auto, or the head's HOST:PORT"):
        check_some_keys({"hosts": 1, "ranks_per_host": 1, "address": address}, "launcher", launcher.launch)
