"""The main flows as on another operating system: on Linux with all that is POSIX taken away, elsewhere as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .flows import FLOWS

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
SECONDS = 600  # a flow takes some seconds; on a loaded machine more


def run_here(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A Python like that of Windows: its modules, its files, its encodings; warnings of our own are errors."""
    blocked = [str(HERE / "no_posix")] if sys.platform == "linux" else []
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join([*blocked, str(SOURCE)]), "PYTHONUTF8": "0",
        "PYTHONWARNDEFAULTENCODING": "1", "PYTHONIOENCODING": "cp1252:strict", "COLUMNS": "100", **more,
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, "-W", "error::EncodingWarning:tailwise", *arguments], cwd=folder, env=environment,
        capture_output=True, text=True, encoding="cp1252", errors="replace", timeout=SECONDS,
    )  # fmt: skip


@pytest.mark.parametrize("name", FLOWS)
def test_the_flow_works_on_every_system(name: str, tmp_path: Path) -> None:
    done = run_here(tmp_path, str(HERE / "flows.py"), name)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
