"""Where images come from, and how a pool is made long-tailed: plain arrays and indices, nothing that knows a model.

Every module of this package is imported here, so that one file with `@POOLS.register("name")` adds a pool. Libraries
that are slow to import are loaded by the functions that need them.

>>> {"digits", "cifar10", "cifar100", "tiny-imagenet", "mnist", "fashion-mnist", "folder", "features"} <= set(POOLS)
True
"""

import importlib
import pkgutil

from .pool import (
    POOLS,
    BadImage,
    Inputs,
    LabelledImages,
    Pool,
    Split,
    Subset,
    Tail,
    load_pool,
    pool_content,
    read_all,
    split,
)

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = [
    "POOLS",
    "BadImage",
    "Inputs",
    "LabelledImages",
    "Pool",
    "Split",
    "Subset",
    "Tail",
    "load_pool",
    "pool_content",
    "read_all",
    "split",
]
