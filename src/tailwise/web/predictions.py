"""What the newest model takes each image for: arrays in, the three likeliest classes of an image out, from memory.

What people see of the model's guess: nothing where they label blind, else a class and the three likeliest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..campaign.ledger import Ledger
from ..campaign.state import read_settings
from ..errors import TailwiseError
from ..types import FloatArray, IntArray
from . import schemas


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


class LabelledBlind(TailwiseError, RuntimeError):
    """Something was asked for that would show what the model thinks."""


@dataclass(frozen=True, slots=True)
class Glimpse:
    """Of one model, or of none."""

    blind: bool
    guessed: Guessed | None

    def prelabel(self, image: int, predicted: int | None, confidence: float | None) -> schemas.Prelabel | None:
        """What is shown with an image; None where there is nothing to show."""
        if self.blind or predicted is None or confidence is None:
            return None
        best = schemas.Guess(class_id=predicted, confidence=_share(confidence))
        top = self.guessed.top(image) if self.guessed is not None else []
        guesses = [schemas.Guess(class_id=number, confidence=_share(share)) for number, share in top]
        return schemas.Prelabel(class_id=best.class_id, confidence=best.confidence, top=guesses or [best])


@dataclass(frozen=True, slots=True)
class Sight:
    """Of one server."""

    blind: bool  # by the server; the campaign may say so too
    guesses: Guesses

    def is_blind(self, ledger: Ledger) -> bool:
        """Whether guesses are hidden."""
        return self.blind or read_settings(ledger).blind

    def check_open(self, ledger: Ledger) -> None:
        """Refuse what is sorted by guesses, where these are hidden."""
        if self.is_blind(ledger):
            raise LabelledBlind(
                "asked for images by the class that the model takes them for, but this campaign is labelled blind; "
                "label them one by one, or start the page without --blind"
            )

    def through(self, ledger: Ledger, version: str | None) -> Glimpse:
        """What the model of a round lets people see."""
        blind = self.is_blind(ledger)
        return Glimpse(blind, None if blind else self.guesses.of(version))


def _share(value: float) -> float:
    return min(max(float(value), 0.0), 1.0)
