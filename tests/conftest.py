"""Property tests draw the same examples every time and are not timed, so that `make test` says of one tree one thing.

`pytest --hypothesis-profile explore` draws new examples. No test measures how busy the machine is: limits of time are a
minute, and what is promised in milliseconds is measured by `benchmarks/speed`.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("same")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Children can be interrupted, also if a background shell started the tests: it lets its processes ignore SIGINT.

    A child inherits what is ignored, but not what a handler of its parent does.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before or signal.SIG_DFL)
