"""What people see of the model's guess: nothing where they label blind, else a class and the three likeliest."""

from __future__ import annotations

from dataclasses import dataclass

from ..campaign.ledger import Ledger
from ..campaign.state import read_settings
from ..errors import TailwiseError
from . import wire
from .guesses import Guessed, Guesses


class LabelledBlind(TailwiseError, RuntimeError):
    """Something was asked for that would show what the model thinks."""


@dataclass(frozen=True, slots=True)
class Glimpse:
    """Of one model, or of none."""

    blind: bool
    guessed: Guessed | None

    def prelabel(self, image: int, predicted: int | None, confidence: float | None) -> wire.Prelabel | None:
        """What is shown with an image; None where there is nothing to show."""
        if self.blind or predicted is None or confidence is None:
            return None
        best = wire.Guess(class_id=predicted, confidence=_share(confidence))
        top = self.guessed.top(image) if self.guessed is not None else []
        guesses = [wire.Guess(class_id=number, confidence=_share(share)) for number, share in top]
        return wire.Prelabel(class_id=best.class_id, confidence=best.confidence, top=guesses or [best])


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
