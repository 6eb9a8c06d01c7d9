"""Name → picks: every method of the paper behind one call, each with a balance setting.

>>> make("kcenter", balance=0.5).name
'kcenter'
"""

from .base import STRATEGIES, Strategy, make
from .entropy import Entropy
from .margin import Margin
from .least_confidence import LeastConfidence
from .random import Random
from .kcenter import KCenter
from .bald import Bald
from .vaal import Vaal
from .coreset import CoreSet
from .pseudo_label import PseudoLabel

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
    "Vaal",
    "make",
]
