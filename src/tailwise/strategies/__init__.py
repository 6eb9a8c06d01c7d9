"""Name → picks: every method of the paper behind one call, each with a balance setting.

>>> make("kcenter", balance=0.5).name
'kcenter'
"""

from .balanced_boundary import BalancedBoundary
from .bald import Bald
from .base import STRATEGIES, Strategy, make
from .coreset import CoreSet
from .direct import Direct
from .entropy import Entropy
from .galaxy import Galaxy
from .kcenter import KCenter
from .least_confidence import LeastConfidence
from .margin import Margin
from .pcb import Pcb
from .pseudo_label import PseudoLabel
from .random import Random
from .typiclust import TypiClust, cold_start
from .vaal import Vaal

__all__ = [
    "STRATEGIES",
    "BalancedBoundary",
    "Bald",
    "CoreSet",
    "Direct",
    "Entropy",
    "Galaxy",
    "KCenter",
    "LeastConfidence",
    "Margin",
    "Pcb",
    "PseudoLabel",
    "Random",
    "Strategy",
    "TypiClust",
    "Vaal",
    "cold_start",
    "make",
]
