"""What a pool is made of: inputs (features or pixels, in memory or decoded when asked for) with their true labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..types import IntArray

InputArray: TypeAlias = NDArray[Any]
"""Features (n, d) as floats, or pixels (n, height, width, 3) as uint8."""


class Inputs(Protocol):
    """One input per image, read by index; a numpy array is one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, d) or (N, height, width, 3)."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, indices: IntArray, /) -> InputArray:
        """The inputs at these indices, in their order."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Subset:
    """Some of the inputs, read only when asked for."""

    inputs: Inputs
    indices: IntArray  # (n,)

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the inputs, with n in front."""
        return (len(self.indices), *self.inputs.shape[1:])

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, indices: IntArray, /) -> InputArray:
        return self.inputs[self.indices[indices]]


def read_all(inputs: Inputs) -> InputArray:
    """Every input, in memory."""
    return inputs if isinstance(inputs, np.ndarray) else inputs[np.arange(len(inputs))]


@dataclass(frozen=True, slots=True, eq=False)
class LabelledImages:
    """Inputs with their true labels."""

    inputs: Inputs  # (N, …)
    labels: IntArray  # (N,) in 0..classes-1
    class_names: tuple[str, ...]  # (C,)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> int:
        """C, also where some classes have no image."""
        return len(self.class_names)

    def take(self, indices: IntArray) -> LabelledImages:
        """Some of the images, in the order of the indices; those that are not in memory stay on the disk."""
        in_memory = isinstance(self.inputs, np.ndarray)
        inputs = self.inputs[indices] if in_memory else Subset(self.inputs, indices)
        return LabelledImages(inputs, self.labels[indices], self.class_names)

    def counts(self) -> IntArray:
        """Images per class, (C,); a class without images counts 0, it is not missing."""
        return np.bincount(self.labels, minlength=self.classes).astype(np.int64)


@dataclass(frozen=True, slots=True)
class BadImage:
    """A file that could not be used, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """A data set: what may be labelled, what is tested on, and what could not be read."""

    name: str
    train: LabelledImages
    test: LabelledImages
    bad: tuple[BadImage, ...] = ()
    content: str = ""
    """Its identity where the loader knows it better than `content_of`, say before rounding; else empty."""
