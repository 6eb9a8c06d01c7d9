"""Name → picks: every method of the paper behind one call, each with a balance setting.

>>> make("kcenter", balance=0.5).name
'kcenter'
"""

from .bald import Bald
from .base import STRATEGIES, Strategy, make
from .coreset import CoreSet
from .entropy import Entropy
from .kcenter import KCenter
from .least_confidence import LeastConfidence
from .margin import Margin
from .pseudo_label import PseudoLabel
from .random import Random
from .typiclust import TypiClust, cold_start
from .vaal import Vaal

__all__ = [
    "STRATEGIES",
    "Bald",
    "CoreSet",
    "Entropy",
    "KCenter",
    "LeastConfidence",
    "Margin",
    "PseudoLabel",
    "Random",
    "Strategy",
    "TypiClust",
    "Vaal",
    "cold_start",
    "make",
]
