"""A child process that says how far it is: a task in, progress on the way, its result or why it failed out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from tempfile import TemporaryFile
from typing import Any

from ..errors import TailwiseError
from ..types import Progress

MODULE = "tailwise.web.choosing_child"
LAST_WORDS = 300  # of what a child wrote before it died


class JobFailed(TailwiseError, RuntimeError):
    """Training or choosing in the background failed."""


class Child:
    """One process; `stop` may be called from another thread."""

    def __init__(self) -> None:
        # A file: a pipe that nobody reads would stop the child when it is full.
        self._errors = TemporaryFile()  # noqa: SIM115 — closed with the process, by `do`
        # One thread of BLAS: the other core is for those who label.
        calm = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            text=True, encoding="utf-8", env={**os.environ, **calm},
        )  # fmt: skip

    def do(self, task: Mapping[str, Any], report: Progress) -> Mapping[str, Any]:
        """Give the task, pass the progress on, and wait for the result."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with process, self._errors:
            try:
                process.stdin.write(json.dumps(task) + "\n")
                process.stdin.flush()
            except OSError:  # it died at once, which Windows calls an invalid argument; below is said why
                with suppress(OSError):
                    process.stdin.close()  # or its end would try to write the rest, and fail for that reason
            for line in process.stdout:
                said = json.loads(line)
                if "result" in said:
                    result: Mapping[str, Any] = said["result"]
                    return result
                if "error" in said:
                    raise JobFailed(str(said["error"]))
                report(float(said["share"]), str(said["what"]))
            raise JobFailed(self._last_words())

    def stop(self) -> None:
        """End it now, whatever it is doing."""
        self._process.kill()

    def _last_words(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        why = f"it was ended by signal {-code}; is there enough memory?" if code < 0 else f"it ended with code {code}"
        return f"the background process failed: {why} {said[-1][:LAST_WORDS] if said else ''}".strip()
