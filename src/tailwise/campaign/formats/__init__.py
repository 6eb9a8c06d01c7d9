"""The formats in which labels come and go: one file each, told apart by `guess_format`.

>>> sorted(FORMATS)
['csv', 'cvat-imagenet', 'cvat-xml', 'fiftyone', 'folders', 'huggingface', 'label-studio', 'parquet']
"""

from . import (  # each registers its format
    csv_file,
    cvat_imagenet,
    cvat_xml,
    fiftyone,
    folders,
    huggingface,
    label_studio,
    parquet,
)
from .base import FORMATS, Format, Kind, Loaded, Record, Source
from .guess import guess_format

__all__ = [
    "FORMATS",
    "Format",
    "Kind",
    "Loaded",
    "Record",
    "Source",
    "csv_file",
    "cvat_imagenet",
    "cvat_xml",
    "fiftyone",
    "folders",
    "guess_format",
    "huggingface",
    "label_studio",
    "parquet",
]
