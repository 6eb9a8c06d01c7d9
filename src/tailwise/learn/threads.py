"""Answers that do not depend on how many cores there are: BLAS and torch on one thread each for a while."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..blas import one_blas_thread


@contextmanager
def one_core() -> Iterator[None]:
    """Compute on one thread, whichever thread of Python asks: sums are added in the same order on every machine."""
    torch = sys.modules.get("torch")  # where it is not loaded no net is asked, and loading it takes seconds
    before = torch.get_num_threads() if torch else 1
    with one_blas_thread():
        try:
            if torch:
                torch.set_num_threads(1)
            yield
        finally:
            if torch:
                torch.set_num_threads(before)
