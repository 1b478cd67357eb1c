"""`make env` on a checkout whose environment is there already."""

from __future__ import annotations

import os
import subprocess
from importlib.util import cache_from_source
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_our_modules_are_compiled_where_python_may_not_write_what_it_compiles() -> None:
    """Else each start would compile them."""
    source = ROOT / "recsys_lab" / "units.py"
    compiled = Path(cache_from_source(str(source)))
    compiled.unlink(missing_ok=True)
    subprocess.run(["make", "env"], cwd=ROOT, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}, check=True, capture_output=True)
    assert compiled.is_file()
    missing = [file for file in (ROOT / "launchers").glob("*.py") if not Path(cache_from_source(str(file))).is_file()]
    assert not missing


def test_the_package_is_importable_from_any_folder(tmp_path: Path) -> None:
    """Also beside a checkout, whose folder is called as the package is."""
    subprocess.run(["make", "env"], cwd=ROOT, check=True, capture_output=True)
    (tmp_path / "recsys_lab" / "recsys_lab").mkdir(parents=True)
    (tmp_path / "script.py").write_text("import recsys_lab, recsys_lab.units; print(recsys_lab.__version__)")
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    python = ROOT / ".venv" / "bin" / "python"
    done = subprocess.run([python, "script.py"], cwd=tmp_path, env=plain, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([python.with_name("recsys-lab"), "--help"], cwd=tmp_path, env=plain, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "decide" in done.stdout, done.stderr
