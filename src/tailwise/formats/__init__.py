"""The formats in which labels come and go: one file each, told apart by `guess_format`.

>>> sorted(FORMATS)
['csv', 'cvat-imagenet', 'cvat-xml', 'fiftyone', 'folders', 'huggingface', 'label-studio', 'parquet']
"""

from . import cvat, fiftyone, folders, huggingface, label_studio, tables
from .base import FORMATS, Format, Kind, Loaded, Record, Source
from .guess import guess_format

__all__ = [
    "FORMATS",
    "Format",
    "Kind",
    "Loaded",
    "Record",
    "Source",
    "cvat",
    "fiftyone",
    "folders",
    "guess_format",
    "huggingface",
    "label_studio",
    "tables",
]
