"""Parts of a cluster on the command line, broken files of the user's own, and the words that are recorded."""

from __future__ import annotations

import pytest

from recsys_lab.config.command_line import read
from recsys_lab.config.words import as_hydra_names
from recsys_lab.errors import UserError


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["cluster=h100", "cluster/device=l5"], ["cluster/device: no such choice; given l5", "l4, l40s", "did you mean 'l4'?"]),
        (["cluster/devise@cluster.device=l4"], ["cluster/devise: no such group", "did you mean 'cluster/device'?"]),
        (["cluster=l40s", "+cluster/disc=nvme4_x4"], ["cluster/disc: no such group", "did you mean 'cluster/disk'?"]),
        (["clustr/disk=nvme4_x4"], ["clustr/disk: no such group", "did you mean 'cluster'?"]),
        (["cluster=h100", "+cluster/disk=nvme4_x4"], ["Multiple values for cluster/disk", "leave out its +"]),
        (["cluster=l40s", "cluster/disk=nvme4_x4"], ["use +cluster/disk=nvme4_x4"]),
    ],
)
def test_a_part_that_is_not_there_is_named_with_the_nearest(words, parts):
    with pytest.raises(UserError) as caught:
        read(words)
    assert all(part in str(caught.value) for part in parts), str(caught.value)


@pytest.mark.parametrize("key", ["cluster/device", "cluster/device@cluster.device"])
def test_a_cluster_takes_another_device_on_file(key):
    assert read(["cluster=h100", f"{key}=l4"]).config.cluster.device.memory_gb == 24
    assert read(["-m", "cluster=h100", f"{key}=l4,h200"]).jobs == (
        ("cluster=h100", "cluster/device=l4"),
        ("cluster=h100", "cluster/device=h200"),
    )
    words = ["cluster=h100", "cluster/link@cluster.cross_host=xdr", "+cluster/disk@cluster.other=nvme4_x4"]
    assert as_hydra_names(words[1]) == words[1] and as_hydra_names(words[2]) == words[2]
    assert as_hydra_names("~cluster/disk@cluster.disk") == "~cluster/disk"


def test_a_broken_file_of_the_users_own_is_named(tmp_path):
    (tmp_path / "cluster").mkdir()
    files = {name: tmp_path / "cluster" / f"{name}.yaml" for name in ("latin", "one", "two")}
    files["latin"].write_bytes(b"# caf\xe9\ndefaults: [h100]\n")
    files["one"].write_text("defaults: [h100, two]\n")
    files["two"].write_text("defaults: [one, _self_]\nname: two\n")
    with pytest.raises(UserError) as caught:
        read(["--config-dir", str(tmp_path), "cluster=latin"])
    assert str(caught.value) == f"{files['latin']}: not UTF-8 text; given byte 0xe9; save it as UTF-8"
    with pytest.raises(UserError) as caught:
        read(["--config-dir", str(tmp_path), "cluster=one"])
    around = " > ".join(str(files[name]) for name in ("one", "two", "one"))
    assert str(caught.value).startswith(f"{files['one']}: its defaults list leads back to itself: {around}; ")


def test_the_recorded_words_name_the_folder_once(tmp_path):
    for words, kind in ((["seed=2"], "run"), (["-m", "seed=1,2"], "sweep")):
        argv = read([*words, f"hydra.{kind}.dir={tmp_path}/x", "model=dlrm"]).argv
        assert [word for word in argv if word.startswith("hydra.")] == [f"hydra.{kind}.dir='{tmp_path}/x'"] == [argv[-1]]
