"""Whether two checkouts give the same results, bit for bit: every sharder trained in each, quality and recorded collectives compared.

python -m experiments.validation.same_results record . new.json; the same in the other checkout; then ... compare old.json new.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PRECISIONS = ("fp32", "split_sgd_bf16")
CLUSTERS = ("local", "h100x64")
LINE = ("data=synthetic_brief", "seed=1", "logger=none")


def record(checkout: Path) -> dict[str, Any]:
    """By sharder, precision and cluster: what must not differ."""
    sharders = sorted(path.stem for path in (checkout / "conf" / "sharder").glob("*.yaml"))
    lines = [(sharder, precision, cluster) for cluster in CLUSTERS for precision in PRECISIONS for sharder in sharders]
    return {" ".join(line): _results(checkout, *line) for line in lines}


def _results(checkout: Path, sharder: str, precision: str, cluster: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        choices = (f"sharder={sharder}", f"precision={precision}", f"cluster={cluster}")
        subprocess.run([sys.executable, "run.py", *choices, *LINE, f"hydra.run.dir={folder}"], cwd=checkout, check=True, stdout=sys.stderr)
        result = json.loads((folder / "result.json").read_text())
        plans = {name: _placements(folder / name) for name in ("plan.json", "plan_here.json")}
    collectives = [{key: one[key] for key in ("kind", "group", "bytes")} for one in result["measured"]["collectives"]]
    simulated = {key: result["simulated"][key] for key in ("iteration_ms", "phases_ms", "collectives", "bytes_per_rank", "feasible")}
    fingerprint = result["plan_fingerprint"]
    return {"quality": result["quality"], "recorded": collectives, "fingerprint": fingerprint, "plans": plans, "simulated": simulated}


def _placements(path: Path) -> Any:
    return json.loads(path.read_text()) if path.is_file() else None


def compare(before: dict[str, Any], after: dict[str, Any]) -> dict[str, list[str]]:
    """By line, what differs; a line that only one has differs whole."""
    differing = {}
    for line in sorted(before.keys() | after.keys()):
        one, other = before.get(line, {}), after.get(line, {})
        if parts := [part for part in sorted(one.keys() | other.keys()) if one.get(part) != other.get(part)]:
            differing[line] = parts
    return differing


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("first", type=Path, help="record: a checkout; compare: the results of one")
    parser.add_argument("second", type=Path, help="record: where the results go; compare: the results of the other")
    options = parser.parse_args(argv)
    if options.action == "record":
        options.second.write_text(json.dumps(record(options.first), indent=1))
        return 0
    first, second = (json.loads(path.read_text()) for path in (options.first, options.second))
    differing = compare(first, second)
    print(json.dumps({"lines": len(first), "same": len(first) - len(differing), "differing": differing}))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
