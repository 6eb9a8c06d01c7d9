"""Learners: labelled inputs in, a model that gives one probability per class out, the number of classes fixed.

Every module of this package is imported here, so that one file with the decorator `learner` adds a learner. A module
that registers a learner imports torch only inside functions; modules that need torch at the top are in TORCH_MODULES.

>>> make_learner("linear", strength=0.1).name
'linear'
"""

import importlib
import pkgutil

from .backbone import BACKBONES, FrozenLearner
from .learner import LEARNERS, Learner, Model, fit_calibrated, make_learner
from .linear import LinearLearner
from .mlp import MlpLearner
from .resnet import ResNet8, ResNet10, ResNet18, ResNet101

TORCH_MODULES = {"nets", "torch_models", "training", "vaal_training"}

for _module in pkgutil.iter_modules(__path__):
    if _module.name not in TORCH_MODULES:
        importlib.import_module(f"{__name__}.{_module.name}")

__all__ = [
    "BACKBONES",
    "LEARNERS",
    "FrozenLearner",
    "Learner",
    "LinearLearner",
    "MlpLearner",
    "Model",
    "ResNet8",
    "ResNet10",
    "ResNet18",
    "ResNet101",
    "fit_calibrated",
    "make_learner",
]
