"""What Hydra lists for `--help`, without the copies that it would make."""

from __future__ import annotations

from pathlib import Path

from hydra import initialize_config_dir
from hydra._internal.config_repository import CachingConfigRepository
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType

from recsys_lab.config.command_line import CONF
from recsys_lab.config.composition import lists_are_read


def listed() -> dict[tuple[str, ObjectType], list[str]]:
    loader = GlobalHydra.instance().config_loader()
    groups = [*loader.list_groups(""), "cluster/device", "experiment/neo", "hydra/launcher", "no_such_group"]
    return {(group, kind): loader.get_group_options(group, kind) for group in groups for kind in (ObjectType.CONFIG, ObjectType.GROUP)}


def test_lists_are_hydras_own(monkeypatch) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        usual, copied = listed(), []
        made = CachingConfigRepository.__init__
        monkeypatch.setattr(CachingConfigRepository, "__init__", lambda self, of: copied.append(of) or made(self, of))
        with lists_are_read():
            assert listed() == usual and not copied
        assert listed() == usual and copied, "afterwards Hydra is as it was"
    assert "h100x64" in usual["cluster", ObjectType.CONFIG] and "device" in usual["cluster", ObjectType.GROUP]


def test_a_list_that_names_another_folder_is_made_as_ever(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "of_my_own.yaml").write_text("name: of_my_own\n")
    with initialize_config_dir(str(CONF), version_base="1.3"), lists_are_read():
        loader = GlobalHydra.instance().config_loader()
        found = loader.get_group_options("cluster", config_name="config", overrides=[f"hydra.searchpath=[file://{tmp_path}]"])
    assert "of_my_own" in found
