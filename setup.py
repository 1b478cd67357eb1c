"""Puts what lies beside the package into the wheel, in recsys_lab/checkout, where recsys_lab/base/paths.py finds it.

The rest of the build is pyproject.toml.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

BESIDE = ("conf", "experiments", "hydra_plugins", "launchers", "requirements")
KINDS = {".py", ".yaml", ".txt", ".md", ".json", ".tsv", ".svg", ".cpp", ".j2"}


class BuildWithCheckout(build_py):
    """An editable install needs no copy: there the package lies in its checkout."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        into = Path(self.build_lib) / "recsys_lab" / "checkout"
        shutil.rmtree(into, ignore_errors=True)  # of an earlier build
        for path in sorted(path for folder in BESIDE for path in Path(folder).rglob("*") if path.suffix in KINDS):
            (into / path).parent.mkdir(parents=True, exist_ok=True)
            if path.parts[0] == "conf" and path.suffix == ".yaml":  # what they say of commands is what pip installs
                text = path.read_text(encoding="utf-8").replace("python run.py", "recsys-lab run")
                (into / path).write_text(text, encoding="utf-8")
            else:
                shutil.copyfile(path, into / path)
        shutil.copyfile("run.py", into / "run.py")


setup(cmdclass={"build_py": BuildWithCheckout})
