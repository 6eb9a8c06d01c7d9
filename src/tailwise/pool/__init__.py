"""Where images come from, and how a pool is made long-tailed: plain arrays and indices, nothing that knows a model.

>>> {"digits", "cifar10", "cifar100", "tiny-imagenet", "mnist", "fashion-mnist", "folder", "features"} <= set(POOLS)
True
"""

from . import cifar, digits, features, folder, idx, tiny_imagenet  # each registers its pools
from .content import pool_content
from .images import BadImage, Inputs, LabelledImages, Pool, Subset, read_all
from .registry import POOLS, load_pool
from .split import Split, Tail, split

__all__ = [
    "POOLS",
    "BadImage",
    "Inputs",
    "LabelledImages",
    "Pool",
    "Split",
    "Subset",
    "Tail",
    "cifar",
    "digits",
    "features",
    "folder",
    "idx",
    "load_pool",
    "pool_content",
    "read_all",
    "split",
    "tiny_imagenet",
]
