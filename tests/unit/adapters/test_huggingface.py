"""Image classifiers of transformers over data sets of datasets; picks as a column. The models are tiny and random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")

import tailwise  # noqa: E402 - after the skips
from tailwise.adapters.huggingface import add_picks, predict, select  # noqa: E402
from tailwise.errors import BadInput  # noqa: E402

NAMES = ["heron", "kite", "owl"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("vit")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=16, patch_size=8,
        num_labels=3, hidden_dropout_prob=0.3,
    )  # fmt: skip
    transformers.utils.logging.disable_progress_bar()
    transformers.ViTForImageClassification(config).save_pretrained(place)
    transformers.utils.logging.enable_progress_bar()
    transformers.ViTImageProcessorPil(size={"height": 16, "width": 16}).save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def dataset() -> Any:  # noqa: ANN401 - datasets has no types
    """Ten pictures, some of them grey; the first four are labelled."""
    rng = np.random.default_rng(0)
    pictures = [Image.fromarray(rng.integers(0, 255, (20, 24, 3), dtype=np.uint8)) for _ in range(9)]
    pictures.append(Image.fromarray(rng.integers(0, 255, (20, 24), dtype=np.uint8)))
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)})
    columns = {"image": pictures, "label": [0, 0, 1, 0, *[None] * 6]}
    return datasets.Dataset.from_dict(columns, features=features)


@pytest.fixture(scope="module")
def truth(folder: Path, dataset: Any) -> np.ndarray:  # noqa: ANN401
    """As the documentation of transformers does it."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    model = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
    ready = processor([one.convert("RGB") for one in dataset["image"]], return_tensors="pt")
    with torch.no_grad():
        return np.asarray(torch.softmax(model(**ready).logits, dim=1))


def test_a_data_set_gives_what_the_library_itself_gives(folder: Path, dataset: Any, truth: np.ndarray) -> None:  # noqa: ANN401
    found = predict(folder, dataset, batch_size=4, passes=2)
    np.testing.assert_allclose(np.asarray(found.proba), truth, atol=1e-5)
    assert np.asarray(found.embeddings).shape == (10, 16)
    assert np.asarray(found.mc_proba).shape == (2, 10, 3)


def test_lists_of_pictures_paths_and_undecoded_images_are_the_same(
    folder: Path, dataset: Any, truth: np.ndarray, tmp_path: Path  # noqa: ANN401
) -> None:  # fmt: skip
    pictures = list(dataset["image"])
    for number, picture in enumerate(pictures):
        picture.save(tmp_path / f"{number}.png")
    raw = dataset.cast_column("image", datasets.Image(decode=False))
    for images in (pictures, [tmp_path / f"{number}.png" for number in range(10)], raw):
        np.testing.assert_allclose(np.asarray(predict(folder, images).proba), truth, atol=1e-5)


def test_a_loaded_model_needs_its_processor_and_stays_in_its_mode(
    folder: Path, dataset: Any, truth: np.ndarray  # noqa: ANN401
) -> None:  # fmt: skip
    model = transformers.AutoModelForImageClassification.from_pretrained(folder).train()
    with pytest.raises(BadInput, match="give processor="):
        predict(model, dataset)
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    np.testing.assert_allclose(np.asarray(predict(model, dataset, processor=processor).proba), truth, atol=1e-5)
    assert model.training


def test_labelled_rows_come_along(folder: Path, dataset: Any, truth: np.ndarray) -> None:  # noqa: ANN401
    found = predict(folder, dataset.select(range(4, 10)), labelled=dataset.select(range(4)), batch_size=3)
    np.testing.assert_allclose(np.asarray(found.labelled_proba), truth[:4], atol=1e-5)
    assert found.labelled_labels is not None
    assert found.labelled_labels.tolist() == [0, 0, 1, 0]
    assert np.asarray(found.labelled_embeddings).shape == (4, 16)


def test_select_leaves_labelled_rows_out_counts_them_and_names_classes(dataset: Any, truth: np.ndarray) -> None:  # noqa: ANN401
    batch = select(dataset, 3, tailwise.Predictions(truth), label="label", strategy="margin", balance=0)
    plain = tailwise.select(truth[4:], 3, strategy="margin", balance=0)
    np.testing.assert_array_equal(np.sort(batch.indices), np.sort(4 + plain.indices))
    assert "owl" in repr(batch)
    points = np.arange(20.0).reshape(10, 2)
    spread = select(dataset, 3, tailwise.Predictions(truth, points), label="label", strategy="kcenter", balance=0)
    around = tailwise.select(
        truth[4:], 3, embeddings=points[4:], labelled_embeddings=points[:4], strategy="kcenter", balance=0
    )
    np.testing.assert_array_equal(spread.indices, 4 + around.indices)
    balanced = select(dataset, 3, tailwise.Predictions(truth), label="label")
    np.testing.assert_allclose(balanced.target, tailwise.select(truth[4:], 3, counts=[3, 1, 0]).target)


def test_probabilities_may_be_a_column(dataset: Any, truth: np.ndarray) -> None:  # noqa: ANN401
    with_proba = dataset.add_column("proba", truth.tolist())
    by_column = select(with_proba, 3, "proba", balance=0)
    np.testing.assert_array_equal(by_column.indices, tailwise.select(truth, 3, balance=0).indices)
    with pytest.raises(BadInput, match="the data set has no column 'prob'; its columns are image, label, proba"):
        select(with_proba, 3, "prob")


def test_picks_are_a_column_that_is_kept_in_files(dataset: Any, truth: np.ndarray, tmp_path: Path) -> None:  # noqa: ANN401
    batch = tailwise.select(truth, 3)
    marked = add_picks(dataset, batch)
    assert [marked["pick"][row] for row in batch.indices.tolist()] == [1, 2, 3]
    assert sum(rank is None for rank in marked["pick"]) == 7
    add_picks(marked, batch).save_to_disk(str(tmp_path / "kept"))  # a second time replaces the column
    kept = datasets.load_from_disk(str(tmp_path / "kept"))
    assert list(kept["pick"]) == list(marked["pick"])
    assert len(kept.filter(lambda row: row["pick"])) == 3
    with pytest.raises(BadInput, match="the data set 2 rows"):
        add_picks(dataset.select(range(2)), batch)


def test_wrong_inputs_are_named(folder: Path, dataset: Any, tmp_path: Path) -> None:  # noqa: ANN401
    with pytest.raises(BadInput, match="has no column 'img'"):
        predict(folder, dataset, column="img")
    with pytest.raises(BadInput, match="an image is 3; give PIL images"):
        predict(folder, [3])
    named = datasets.Dataset.from_dict({"label": ["owl"]})
    with pytest.raises(BadInput, match="class_encode_column"):
        select(named, 1, tailwise.Predictions(np.ones((1, 1))), label="label")
    transformers.utils.logging.disable_progress_bar()
    transformers.AutoModel.from_pretrained(folder).save_pretrained(tmp_path)
    transformers.utils.logging.enable_progress_bar()
    transformers.ViTImageProcessorPil(size={"height": 16, "width": 16}).save_pretrained(tmp_path)
    with pytest.raises(BadInput, match=r"has no weights for classifier\.bias, so it is not a trained classifier"):
        predict(tmp_path, dataset)
