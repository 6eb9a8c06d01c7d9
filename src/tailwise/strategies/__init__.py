"""Name → picks: every method, the paper's and others, behind one call, each with a balance setting.

>>> make("kcenter", balance=0.5).name
'kcenter'
"""

from .badge import Badge
from .balanced_boundary import BalancedBoundary
from .bald import Bald
from .base import DEFAULT, STRATEGIES, WITHOUT_EMBEDDINGS, Strategy, make
from .boundary import Boundary
from .coreset import CoreSet
from .direct import Direct
from .dropquery import DropQuery
from .entropy import Entropy
from .falcun import Falcun
from .galaxy import Galaxy
from .kcenter import KCenter
from .least_confidence import LeastConfidence
from .margin import Margin
from .maxherding import MaxHerding
from .pcb import Pcb
from .pseudo_label import PseudoLabel
from .random import Random
from .refine import Refine
from .tcm import Tcm
from .typiclust import TypiClust, cold_start
from .uherding import UHerding
from .vaal import Vaal

__all__ = [
    "DEFAULT",
    "STRATEGIES",
    "WITHOUT_EMBEDDINGS",
    "Badge",
    "BalancedBoundary",
    "Bald",
    "Boundary",
    "CoreSet",
    "Direct",
    "DropQuery",
    "Entropy",
    "Falcun",
    "Galaxy",
    "KCenter",
    "LeastConfidence",
    "Margin",
    "MaxHerding",
    "Pcb",
    "PseudoLabel",
    "Random",
    "Refine",
    "Strategy",
    "Tcm",
    "TypiClust",
    "UHerding",
    "Vaal",
    "cold_start",
    "make",
]
