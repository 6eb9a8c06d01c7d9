"""The command line: parse, call, print. Nothing heavy loads here; each command loads what it needs."""

from __future__ import annotations

import io
import logging
import sys
import warnings


def main() -> int:
    """Run `tailwise` with the arguments of the process; the exit code is the answer."""
    from .output import run

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek shows ? for λ rather than an error
    logging.basicConfig(format="%(message)s")  # warnings of the library, which is silent by itself, on stderr
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"  # without lines of our source
    return run(sys.argv[1:])
