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
