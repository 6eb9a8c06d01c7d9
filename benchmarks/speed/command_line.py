"""The command in a fresh process: interpreter, imports, reading, selecting and printing, all counted."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .instances import Instance, write
from .measured import Measured, Row, Run, Sheet
from .timing import timed

NAME = "command-line"
INSTANCE = Instance(45_000, 100, 0)


def measure(run: Run) -> Iterator[Measured]:
    """λ = 1, which has a limit, and λ = auto, which is told."""
    sheet = Sheet(NAME, INSTANCE.name, INSTANCE.seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proba.npy"
        write(INSTANCE, path, "float32")
        for _ in run.seeds(full=3):
            yield from _with_balance(sheet, path, "1", 3.0)
            yield from _with_balance(sheet, path, "auto", None)


def _with_balance(sheet: Sheet, path: Path, balance: str, limit: float | None) -> Iterator[Measured]:
    quantity = f"seconds, --balance {balance}"
    before = _processor_seconds()
    ran = timed(lambda: _command(path, balance))
    fault = _fault(ran.result)
    if fault:
        yield sheet.failed(quantity, f"<= {limit:g}" if limit else "", fault)
    elif limit:
        yield sheet.at_most(quantity, ran.seconds, limit)
    else:
        yield sheet.tell(quantity, ran.seconds)
    yield sheet.tell(f"processor {quantity}", _processor_seconds() - before)


def _processor_seconds() -> float:
    """Of all commands so far."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def _command(path: Path, balance: str) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).parent / "tailwise"
    if not command.exists():
        return subprocess.CompletedProcess([], 1, "", "the command is not installed")
    return subprocess.run(
        [str(command), "select", str(path), "--budget", str(INSTANCE.budget), "--balance", balance, "--json"],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


def _fault(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode:
        return f"exit code {done.returncode}: {(done.stderr.strip() or 'no message').splitlines()[-1]}"
    try:
        picks = json.loads(done.stdout)["indices"]
    except (ValueError, KeyError, TypeError):
        return "what it printed is not the JSON of a selection"
    return "" if len(picks) == INSTANCE.budget else f"{len(picks)} picks instead of {INSTANCE.budget}"


ROW = Row(NAME, "a fresh `tailwise select` process ≤ 3 s in all", measure)
