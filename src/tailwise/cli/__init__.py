"""The command line: parse, call, print. Nothing heavy loads here; each command loads what it needs."""

from __future__ import annotations

import sys


def main() -> int:
    """Run `tailwise` with the arguments of the process; the exit code is the answer."""
    from .outcome import run

    return run(sys.argv[1:])
