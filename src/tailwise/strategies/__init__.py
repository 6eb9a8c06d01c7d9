"""Every method, the paper's and others, by name, behind one call, each with a balance setting.

The modules of this folder are imported here, and their decorators register their strategies: a new strategy is one new
file. Type checkers read the imports below instead.

>>> make("kcenter", balance=0.5).name
'kcenter'
"""

import importlib
import pkgutil
from typing import TYPE_CHECKING

from .strategy import DEFAULT, STRATEGIES, WITHOUT_EMBEDDINGS, Strategy, make
from .typiclust import cold_start

if TYPE_CHECKING:
    from .badge import Badge, Falcun
    from .balanced_boundary import BalancedBoundary
    from .boundary import Boundary
    from .coreset import CoreSet
    from .dropquery import DropQuery
    from .galaxy import Direct, Galaxy
    from .herding import MaxHerding, Refine, UHerding
    from .kcenter import KCenter
    from .pseudo_label import Pcb, PseudoLabel
    from .typiclust import Tcm, TypiClust
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

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f".{_module.name}", __name__)
globals().update({_kind.__name__: _kind for _kind in map(STRATEGIES.__getitem__, STRATEGIES)})
