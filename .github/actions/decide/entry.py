"""Prices a model with the files of a pull request and with those of its base, and writes what changed into the job's summary.

Environment: WORDS (of decide), BASE (a commit), MAX_INCREASE (such as 5%, or empty), GITHUB_STEP_SUMMARY (a file).
The exit code is that of `decide`: 3 where nothing fits or the base's best no longer does, 5 where the best grew by more than MAX_INCREASE.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> int:
    words, base = shlex.split(os.environ["WORDS"]), os.environ.get("BASE", "")
    with tempfile.TemporaryDirectory() as folder:
        old, markdown = Path(folder, "base.json"), Path(folder, "changes.md")
        why = write_base(words, base, old, Path(folder, "base")) if base else "no commit to compare with"
        against = [] if why else ["--against", str(old), "--markdown", str(markdown)]
        if against and (most := os.environ.get("MAX_INCREASE")):
            against += ["--max-increase", most]
        done = decide([*words, *against], Path.cwd())
        sys.stderr.write(done.stderr)
        text = markdown.read_text(encoding="utf-8") if markdown.is_file() else alone(done, why)
    with open(os.environ["GITHUB_STEP_SUMMARY"], "a", encoding="utf-8") as summary:
        summary.write(text)
    print(text)
    return done.returncode


def decide(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """In `folder`, so that names of files in `words` are its own. -P: a package that lies there is not ours."""
    line = [sys.executable, "-P", "-m", "recsys_lab", "decide", *words, "--json"]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)


def write_base(words: list[str], base: str, answer: Path, worktree: Path) -> str:
    """Writes the answer with the files of commit `base`. Returns why there is none, or nothing."""
    made = subprocess.run(["git", "worktree", "add", "--detach", str(worktree), base], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"git has no files of {base}"
    try:
        here = subprocess.run(["git", "rev-parse", "--show-prefix"], capture_output=True, text=True, check=True).stdout.strip()
        done = decide(words, worktree / here) if (worktree / here).is_dir() else None
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(worktree)], capture_output=True, check=False)
    if done is None or done.returncode:
        return done.stderr.strip() if done else f"no folder {here}"
    answer.write_text(done.stdout, encoding="utf-8")
    return ""


def alone(done: subprocess.CompletedProcess[str], why: str) -> str:
    """The summary of an answer without one to compare with."""
    said = f"No answer of the base: {why}\n" if why else ""
    if done.returncode:
        return f"### decide\n\n**{done.stderr.strip()}**\n\n{said}"
    row = json.loads(done.stdout)["winner"]["row"]
    name = " ".join(row[key] for key in ("cluster", "sharder", "precision", "optimizer"))
    return f"### decide\n\nBest: {name}, {row['ms']:.2f} ms an iteration. Simulated, not measured.\n\n{said}"


if __name__ == "__main__":
    sys.exit(main())
