"""What the newest model takes each image for: arrays in, the three likeliest classes of an image out, from memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Guessed:
    """By one model.

    Attributes
    ----------
    version: of the model.
    ids: (n,) of images, ascending.
    classes: (n, k) class ids, the likeliest first.
    confidence: (n, k) their probabilities.
    """

    version: str
    ids: IntArray
    classes: IntArray
    confidence: FloatArray

    @classmethod
    def read(cls, path: Path, version: str) -> Guessed:
        """From the file that the child process wrote."""
        with np.load(path, allow_pickle=False) as file:
            order = np.argsort(file["ids"], kind="stable")
            return cls(version, file["ids"][order], file["classes"][order], file["confidence"][order])

    def top(self, image: int) -> list[tuple[int, float]]:
        """Class ids and probabilities of an image; none where it is not known."""
        at = int(np.searchsorted(self.ids, image))
        if at == len(self.ids) or self.ids[at] != image:
            return []
        return list(zip(self.classes[at].tolist(), self.confidence[at].tolist(), strict=True))


class Guesses:
    """The guesses of one model at a time; those of another are asked for once, and come when they come."""

    def __init__(self, ask: Callable[[str], None]) -> None:
        self._ask = ask
        self._kept: Guessed | None = None
        self._asked: str | None = None
        self._failed: str | None = None

    def keep(self, guessed: Guessed) -> None:
        """Take in what a model said."""
        self._kept = guessed

    def give_up(self, version: str) -> None:
        """Those of this model will not come."""
        self._failed = version

    def failed(self, version: str) -> bool:
        """Whether it is of no use to wait."""
        return self._failed == version

    def of(self, version: str | None) -> Guessed | None:
        """The guesses of a model, None as long as they are not there."""
        kept = self._kept
        if kept is not None and kept.version == version:
            return kept
        if version is not None and self._asked != version:
            self._asked = version
            self._ask(version)
        return None
