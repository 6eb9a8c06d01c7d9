"""The command in a fresh process: interpreter, imports, reading, selecting and printing, all counted."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from .instances import Instance, write
from .measured import Measured, Row, Run, Sheet

NAME = "command-line"
INSTANCE = Instance(45_000, 100, 0)


def measure(run: Run) -> Iterator[Measured]:
    """λ = 1, which has a limit, and λ = auto, which is told."""
    sheet = Sheet(NAME, INSTANCE.name, INSTANCE.seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proba.npy"
        write(INSTANCE, path, "float32")
        for _ in run.seeds(full=3):
            seconds, fault = _timed(path, "1")
            if fault:
                yield sheet.failed("seconds, --balance 1", "<= 3", fault)
            else:
                yield sheet.at_most("seconds, --balance 1", seconds, 3.0)
            seconds, fault = _timed(path, "auto")
            yield sheet.tell("seconds, --balance auto", seconds, fault)


def _timed(path: Path, balance: str) -> tuple[float, str]:
    """Seconds of one command, and what went wrong with it."""
    command = Path(sys.executable).parent / "tailwise"
    if not command.exists():
        return float("nan"), "the command is not installed"
    started = time.perf_counter()
    done = subprocess.run(
        [str(command), "select", str(path), "--budget", str(INSTANCE.budget), "--balance", balance, "--json"],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    return time.perf_counter() - started, _fault(done)


def _fault(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode:
        return f"exit code {done.returncode}: {(done.stderr.strip() or 'no message').splitlines()[-1]}"
    try:
        picks = json.loads(done.stdout)["indices"]
    except (ValueError, KeyError, TypeError):
        return "what it printed is not the JSON of a selection"
    return "" if len(picks) == INSTANCE.budget else f"{len(picks)} picks instead of {INSTANCE.budget}"


ROW = Row(NAME, "a fresh `tailwise select` process ≤ 3 s in all", measure)
