"""Where images come from, and how a pool is made long-tailed: plain arrays and indices, nothing that knows a model.

>>> {"digits", "cifar10", "cifar100", "tiny-imagenet", "mnist", "fashion-mnist", "folder", "features"} <= set(POOLS)
True
"""

from . import cifar, features, folder, mnist, tiny_imagenet
from .longtail import Split, Tail, split
from .pool import POOLS, BadImage, Inputs, LabelledImages, Pool, Subset, load_pool, pool_content, read_all

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
    "features",
    "folder",
    "load_pool",
    "mnist",
    "pool_content",
    "read_all",
    "split",
    "tiny_imagenet",
]
