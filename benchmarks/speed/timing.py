"""How long a call takes: on the clock, and on the processors, which other programs disturb less."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Timed(Generic[Result]):
    """What a call gave, and what it took."""

    result: Result
    seconds: float
    processor_seconds: float  # of all threads together


def timed(call: Callable[[], Result]) -> Timed[Result]:
    """Call once, and look at the clocks before and after."""
    clock, processors = time.perf_counter(), time.process_time()
    result = call()
    return Timed(result, time.perf_counter() - clock, time.process_time() - processors)
