"""Calls a function of this package in a fresh process with a wall limit: its memory and its crashes are its own.

Keyword arguments go in as JSON on standard input, the answer (a dict) comes back as the last line of standard output.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
Answer = dict[str, Any]


def call_apart(function: str, wall: float, **arguments: object) -> Answer:
    """Call "module:function" of this package; {"error": …} where it fails or has to be ended after `wall` seconds."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.speed.apart", function], cwd=ROOT, text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        out, err = process.communicate(json.dumps(arguments), timeout=wall)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the session is the child's own
        process.communicate()
        return {"error": f"ended from outside after {wall:.0f} s", "ended": True}
    if process.returncode != 0:
        last = (err.strip() or "no message").splitlines()[-1]
        return {"error": f"exit code {process.returncode}: {last}", "ended": False}
    answer: Answer = json.loads(out.strip().splitlines()[-1])
    return answer


def peak_memory() -> int:
    """Bytes of the largest resident set of this process.

    Not getrusage: its ru_maxrss also remembers the parent's size at the moment of the fork.
    """
    return status_bytes("VmHWM")


def status_bytes(*fields: str) -> int:
    """The sum of some sizes in /proc/self/status."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.split(":")[0] in fields)


def main() -> None:
    """Be the fresh process."""
    module, name = sys.argv[1].split(":")
    function = getattr(importlib.import_module(f"benchmarks.speed.{module}"), name)
    print("\n" + json.dumps(function(**json.load(sys.stdin))))


if __name__ == "__main__":
    main()
