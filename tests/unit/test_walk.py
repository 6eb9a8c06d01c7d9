"""How many of our files a reader has to open to follow one call of `tailwise.select`.

`python tests/unit/test_walk.py` prints the files and the functions that are entered.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np

import tailwise

PACKAGE = Path(tailwise.__file__).parent
MOST_FILES = 12  # of the default call
MOST_FILES_WITH_EMBEDDINGS = 16


def entered(call: Callable[[], object]) -> dict[str, set[str]]:
    """The files of the package that a call enters, and their functions; imports are done by a first call."""
    call()
    found: dict[str, set[str]] = defaultdict(set)

    def note(frame: FrameType, event: str, _argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            found[path.relative_to(PACKAGE).as_posix()].add(frame.f_code.co_qualname)

    before, before_in_threads = sys.getprofile(), threading.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
        threading.setprofile(before_in_threads)
    return dict(found)


def default_call() -> tailwise.Selection:
    proba = np.random.default_rng(0).dirichlet(np.full(10, 0.3), 2_000)
    return tailwise.select(proba, 50, counts=np.arange(10))


def call_with_embeddings() -> tailwise.Selection:
    rng = np.random.default_rng(0)
    proba, pool, labelled = (
        rng.dirichlet(np.full(10, 0.3), 2_000),
        rng.normal(size=(2_000, 16)),
        rng.normal(size=(45, 16)),
    )
    return tailwise.select(proba, 50, counts=np.arange(10), embeddings=pool, labelled_embeddings=labelled)


def test_the_default_call_enters_few_files() -> None:
    files = entered(default_call)
    assert {"strategies/select.py", "strategies/strategy.py", "strategies/balanced_boundary.py"} <= set(files)
    assert len(files) <= MOST_FILES, sorted(files)


def test_a_call_with_embeddings_enters_few_files() -> None:
    files = entered(call_with_embeddings)
    assert {"strategies/select.py", "strategies/boundary.py"} <= set(files)
    assert len(files) <= MOST_FILES_WITH_EMBEDDINGS, sorted(files)


if __name__ == "__main__":
    for each in (default_call, call_with_embeddings):
        walked = entered(each)
        lines = [f"  {file}: {', '.join(sorted(functions))}" for file, functions in sorted(walked.items())]
        sys.stdout.write("\n".join([f"{each.__name__}: {len(walked)} files", *lines, ""]))
