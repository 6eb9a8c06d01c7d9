"""Name → picks: every method, the paper's and others, behind one call, each with a balance setting.

>>> make("kcenter", balance=0.5).name
'kcenter'
"""

from .badge import Badge
from .balanced_boundary import BalancedBoundary
from .boundary import Boundary
from .coreset import CoreSet
from .dropquery import DropQuery
from .falcun import Falcun
from .galaxy import Direct, Galaxy
from .herding import MaxHerding, Refine, UHerding
from .kcenter import KCenter
from .pcb import Pcb
from .pseudo_label import PseudoLabel
from .strategy import DEFAULT, STRATEGIES, WITHOUT_EMBEDDINGS, Strategy, make
from .typiclust import Tcm, TypiClust, cold_start
from .uncertainty import Bald, Entropy, LeastConfidence, Margin, Random, Vaal

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
