"""Randomness and arithmetic that repeat: a seed and what it is for in, the same draws and the same bits out.

torch's global generator and switches are put back as they were. torch is imported here: load this module when used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from ..errors import BadInput

START, ORDER, AUGMENT, DROPOUT, NOISE = range(1, 6)
"""What draws are for; each purpose has a stream of its own."""


def derived(seed: int, *purpose: int) -> int:
    """A seed of its own for each purpose, such as an epoch.

    >>> derived(1, 7) == derived(1, 7) != derived(1, 8)
    True
    """
    return int(np.random.SeedSequence([seed, *purpose]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def generator(seed: int, *purpose: int) -> torch.Generator:
    """A generator on the processor, seeded for a purpose."""
    return torch.Generator().manual_seed(derived(seed, *purpose))


@contextmanager
def global_seed(seed: int, *purpose: int, device: torch.device) -> Iterator[None]:
    """torch's own generator, seeded for a while: layers are initialised and dropout is drawn from it."""
    with torch.random.fork_rng([] if device.type == "cpu" else [device]):
        torch.manual_seed(derived(seed, *purpose))
        yield


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """The same bits in every run; on a graphics card as far as it has such kernels."""
    before, only_warned = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=device.type != "cpu")
    memory.fill_uninitialized_memory = False  # a help in debugging that costs time
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warned)
        memory.fill_uninitialized_memory = filled


def device_named(name: str) -> torch.device:
    """A device by torch's name; "auto" is the graphics card where there is one.

    >>> device_named("cpu")
    device(type='cpu')
    """
    found = "cuda" if torch.cuda.is_available() else "cpu"
    if name.split(":")[0] not in {"auto", "cpu", found}:
        raise BadInput(f"device {name!r} was asked for, but this machine has {found!r}; use 'auto' or 'cpu'")
    return torch.device(found if name == "auto" else name)
