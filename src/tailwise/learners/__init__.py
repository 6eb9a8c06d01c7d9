"""Learners: labelled inputs in, a model that gives one probability per class out, the number of classes fixed.

>>> make_learner("linear", strength=0.1).name
'linear'
"""

from .backbone import FrozenLearner
from .learner import LEARNERS, Learner, Model, make_learner
from .linear import LinearLearner
from .mlp import MlpLearner
from .resnet import ResNet8, ResNet10, ResNet18, ResNet101

__all__ = [
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
    "make_learner",
]
