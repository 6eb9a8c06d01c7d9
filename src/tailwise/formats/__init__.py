"""The formats in which labels are imported and exported, one file each.

Every module of this package is imported here, so that one new file with the decorator `label_format` adds a format: the
command line, the docs table and `guess_format` follow from the registry.

>>> sorted(FORMATS)
['coco', 'csv', 'cvat-imagenet', 'cvat-xml', 'datumaro', 'fiftyone', 'folders', 'huggingface', 'label-studio',
 'parquet']
"""

import importlib
import pkgutil

from .base import FORMATS, Format, Kind, Loaded, Record, Source, guess_format, label_format

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["FORMATS", "Format", "Kind", "Loaded", "Record", "Source", "guess_format", "label_format"]
