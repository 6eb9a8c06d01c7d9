"""Hugging Face: `predict` runs an image classifier over a data set, `select` picks rows, `add_picks` adds a column.

Backbones of transformers (DINOv2, CLIP, SigLIP) need no call: name one in a campaign, such as "facebook/dinov2-small".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import BadInput, MissingExtra
from ..inputs import shown, whole_number
from ..matrix.open import as_matrix
from ..selection import Selection
from ..strategies.select import select as select_rows
from ..types import IntArray, Predictions

if TYPE_CHECKING:
    from datasets import Dataset

LABEL = "label"  # the usual name of the column
NO_LABEL = -1  # as datasets writes a missing class


def predict(
    model: Any,  # noqa: ANN401 - a name, or a model of transformers, which is loaded only when it is used
    images: Dataset | Sequence[Any],
    *,
    processor: Any = None,  # noqa: ANN401 - an image processor of transformers
    column: str = "image",
    labelled: Dataset | None = None,
    label: str = LABEL,
    batch_size: int = 32,
    layer: str | None = "last",
    passes: int = 0,
    device: str | None = None,
    amp: bool = False,
    dtype: Literal["float32", "float16"] = "float32",
    out: str | Path | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Predictions:
    """Probabilities and pooled embeddings of images, by an image classifier of transformers.

    Parameters
    ----------
    model: a name of the hub, a folder, or a loaded `AutoModelForImageClassification`.
    images: a `datasets.Dataset`, or a list of PIL images or paths.
    processor: prepares the images; of a name or a folder it is loaded with the model, by Pillow, without torchvision.
    column: of the images.
    labelled, label: a data set of labelled images and its column of classes; fills `labelled_proba`,
        `labelled_labels` and `labelled_embeddings`.
    layer, passes, device, amp, dtype, out, seed, progress: those of `tailwise.adapters.torch.predict`; the embeddings
        are what goes into the classifier's last layer.
    """
    try:
        import torch  # noqa: F401 - the question is whether they are there
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingExtra.named(
            "tailwise.adapters.huggingface", error.name or "transformers", "huggingface"
        ) from error
    from .torch import predict as predict_batches

    whole_number(batch_size, "batch_size", least=1)
    net, prepare = _loaded(model, processor)
    pool = _Batches(images, prepare, column, batch_size)
    known = None if labelled is None else _Batches(labelled, prepare, column, batch_size, label)
    return predict_batches(
        net, pool, layer=layer, passes=passes, labelled=known, device=device, amp=amp, dtype=dtype, out=out, seed=seed,
        progress=progress,
    )  # fmt: skip


def select(
    dataset: Dataset, budget: int, predictions: Predictions | str, *, label: str | None = None, **options: Any,  # noqa: ANN401 - those of tailwise.select
) -> Selection:  # fmt: skip
    """Choose rows of a data set to label next.

    Parameters
    ----------
    predictions: of every row, by `predict`; or the name of a column of probabilities.
    label: a column of classes, with None or -1 for unlabelled rows. Labelled rows are counted and not picked, their
        embeddings show strategies what is covered, and a `ClassLabel` names the classes.
    options: those of `tailwise.select`.
    """
    given: Any = predictions
    if isinstance(given, str):
        given = np.asarray(dataset.with_format("numpy")[_known_column(dataset, given)][:], np.float32)
    if label is not None:
        labels = _classes(dataset, label)
        classes = as_matrix(given.proba if isinstance(given, Predictions) else given, "proba").shape[1]
        options.setdefault("counts", np.bincount(labels[labels >= 0], minlength=classes))
        options.setdefault("mask", labels < 0)
        given = _with_labelled(given, labels) if isinstance(given, Predictions) else given
        names = getattr(dataset.features[label], "names", None)
        if names and len(names) == classes:
            options.setdefault("class_names", names)
    return select_rows(given, budget, **options)


def _with_labelled(predictions: Predictions, labels: IntArray) -> Predictions:
    """The predictions with those of the labelled rows, unless they have some already."""
    known, embeddings = np.flatnonzero(labels >= 0), predictions.embeddings
    if predictions.labelled_embeddings is not None or embeddings is None:
        return predictions
    return replace(
        predictions, labelled_embeddings=as_matrix(embeddings, "embeddings")[known],
        labelled_proba=as_matrix(predictions.proba, "proba")[known], labelled_labels=labels[known],
    )  # fmt: skip


def add_picks(dataset: Dataset, batch: Selection, column: str = "pick") -> Dataset:
    """The data set with a column of ranks: 1 for the best pick, None for rows that were not picked.

    The rows to label are `dataset.filter(lambda row: row["pick"])`.
    """
    if len(batch.indices) and int(batch.indices.max()) >= len(dataset):
        raise BadInput(
            f"the batch has row {int(batch.indices.max())}, and the data set {len(dataset)} rows; give the one that it "
            "was chosen from"
        )
    ranks: list[int | None] = [None] * len(dataset)
    for rank, row in enumerate(batch.indices.tolist(), start=1):
        ranks[row] = rank
    kept = dataset.remove_columns(column) if column in dataset.column_names else dataset
    return kept.add_column(column, ranks)


@dataclass(frozen=True, slots=True, eq=False)
class _Batches:
    """Images of a data set, or of a list, batch by batch as a model takes them."""

    images: Any
    prepare: Any
    column: str
    size: int
    label: str = ""  # the column of classes that go along, if any

    def __len__(self) -> int:
        return -(-len(self.images) // self.size)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        source, labels = self.images, None
        if hasattr(source, "column_names"):
            labels = _classes(source, self.label) if self.label else None
            source = source.select_columns([_known_column(source, self.column)])
        for start in range(0, len(self.images), self.size):
            rows = source[start : start + self.size]
            pictures = [_picture(one) for one in (rows[self.column] if isinstance(rows, dict) else rows)]
            batch = {"pixel_values": self.prepare(pictures, return_tensors="pt")["pixel_values"]}
            yield batch if labels is None else batch | {"labels": labels[start : start + self.size]}


def _loaded(model: Any, processor: Any) -> tuple[Any, Any]:  # noqa: ANN401 - of transformers
    """A classifier and its image processor."""
    if not isinstance(model, str | Path):
        if processor is None:
            raise BadInput("give processor=, the image processor of the model, or the model's name or folder instead")
        return model, processor
    from ..learners.torch_models import hugging_face_folder, quiet_transformers

    folder = hugging_face_folder(str(model))
    with quiet_transformers(folder) as transformers:
        net, found = transformers.AutoModelForImageClassification.from_pretrained(
            folder, output_loading_info=True, use_safetensors=True, local_files_only=True
        )
        if processor is None:
            processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil", local_files_only=True)
    if missing := sorted(found["missing_keys"]):
        raise BadInput(
            f"the model {str(model)!r} has no weights for {missing[0]}, so it is not a trained classifier; train its "
            "last layer first, or use it as the backbone of a campaign"
        )
    return net, processor


def _picture(image: Any) -> Any:  # noqa: ANN401 - a PIL image, a path, or what datasets gives undecoded
    """A PIL image, upright and RGB."""
    from io import BytesIO

    from PIL import Image, ImageOps

    if isinstance(image, dict):
        image = BytesIO(image["bytes"]) if image.get("bytes") else image.get("path")
    if isinstance(image, str | Path | BytesIO):
        image = Image.open(image)
    if not isinstance(image, Image.Image):
        raise BadInput(f"an image is {shown(image)}; give PIL images, paths, or a data set with a column of images")
    return ImageOps.exif_transpose(image).convert("RGB")


def _known_column(dataset: Any, name: str) -> str:  # noqa: ANN401 - of datasets, which has no types
    if name not in dataset.column_names:
        raise BadInput(f"the data set has no column {name!r}; its columns are {', '.join(dataset.column_names)}")
    return name


def _classes(dataset: Any, column: str) -> IntArray:  # noqa: ANN401 - of datasets, which has no types
    """Classes by number, (N,); -1 without a class."""
    values = dataset[_known_column(dataset, column)][:]
    if any(isinstance(one, str) for one in values):
        raise BadInput(
            f"column {column!r} holds names; turn them into numbers with dataset.class_encode_column({column!r})"
        )
    return np.array([NO_LABEL if one is None else int(one) for one in values], dtype=np.int64)
