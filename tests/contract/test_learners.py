"""What every registered learner promises, checked on each of them whose libraries are installed, on small images."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tailwise.errors import BadFile, BadInput, UnknownName
from tailwise.learners import LEARNERS, Learner, Model, make_learner
from tailwise.pools.pool import Subset

NET = {"epochs": 1, "milestones": (), "batch": 16, "width": 4, "weights": "", "device": "cpu"}
QUICK: dict[str, dict[str, object]] = {
    "mlp": {"width": 16, "least_steps": 60},
    "resnet18": NET,
    "resnet10": NET,
    "resnet8": NET,
    "resnet101": NET | {"stem": "3x3"},
    "frozen": {"backbone": "torch.nn:Flatten", "size": 0},
}
WITHOUT_TORCH = {"linear", "mlp"}
CLASSES, UNLABELLED = 5, 3


@cache
def labelled() -> tuple[np.ndarray, np.ndarray]:
    """Images (40, 8, 8, 3) whose class shows in their brightness; class 3 has none."""
    rng = np.random.default_rng(0)
    labels = np.tile([0, 1, 2, 4], 10)
    return (rng.integers(0, 100, (40, 8, 8, 3)) + 30 * labels[:, None, None, None]).astype(np.uint8), labels


@cache
def pool() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 220, (23, 8, 8, 3)).astype(np.uint8)


def make(name: str, **settings: object) -> Learner:
    if name not in WITHOUT_TORCH:
        pytest.importorskip("torch")
    return make_learner(name, **(QUICK.get(name, {}) | settings))


@cache
def fitted(name: str, seed: int = 0) -> Model:
    return make(name).fit(*labelled(), classes=CLASSES, seed=seed)


@pytest.fixture(params=list(LEARNERS))
def name(request: pytest.FixtureRequest) -> str:
    make(request.param)
    return str(request.param)


def test_probabilities_have_a_column_per_class_and_rows_sum_to_one(name: str) -> None:
    model = fitted(name)
    proba = model.predict_proba(pool())
    assert model.classes == CLASSES
    assert proba.shape == (23, CLASSES)
    assert proba.min() >= 0
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-5)


def test_a_class_without_labels_is_not_likelier_than_the_others(name: str) -> None:
    proba = fitted(name).predict_proba(labelled()[0])
    assert np.isfinite(proba).all()
    assert proba[:, UNLABELLED].mean() <= 1 / CLASSES


@pytest.mark.parametrize("labels", [np.zeros(4, dtype=np.int64), np.array([4, 4, 1, 1])])
def test_it_learns_from_few_images_and_few_classes(name: str, labels: np.ndarray) -> None:
    proba = make(name).fit(labelled()[0][:4], labels, classes=CLASSES, seed=0).predict_proba(pool())
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-5)


def test_embeddings_have_a_row_per_image_and_are_finite(name: str) -> None:
    embedded = fitted(name).embed(pool())
    assert embedded.ndim == 2
    assert len(embedded) == 23
    assert np.isfinite(embedded).all()
    assert np.issubdtype(embedded.dtype, np.floating)


def test_answers_do_not_depend_on_the_company_or_the_order_of_the_images(name: str) -> None:
    model = fitted(name)
    whole, order = model.predict_proba(pool()), np.random.default_rng(2).permutation(23)
    np.testing.assert_allclose(model.predict_proba(pool()[order]), whole[order], atol=1e-5)
    alone = np.concatenate([model.predict_proba(pool()[[row]]) for row in range(23)])
    np.testing.assert_allclose(alone, whole, atol=1e-5)
    np.testing.assert_allclose(model.embed(pool()[:7]), model.embed(pool())[:7], rtol=1e-3, atol=1e-4)


def test_images_that_stay_on_the_disk_give_the_same_answers(name: str) -> None:
    lazy = Subset(pool(), np.arange(23))
    np.testing.assert_array_equal(fitted(name).predict_proba(lazy), fitted(name).predict_proba(pool()))


def test_asking_leaves_the_model_as_it_was(name: str) -> None:
    model = fitted(name)
    before = model.predict_proba(pool())
    model.embed(labelled()[0])
    model.mc_proba(labelled()[0], 2, seed=1)
    np.testing.assert_array_equal(model.predict_proba(pool()), before)


def test_the_same_seed_gives_the_same_model(name: str) -> None:
    again = make(name).fit(*labelled(), classes=CLASSES, seed=0)
    np.testing.assert_array_equal(again.predict_proba(pool()), fitted(name).predict_proba(pool()))


def test_a_model_that_was_saved_answers_bit_by_bit_the_same(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    model.save(tmp_path / "model")
    loaded = make(name).load(tmp_path / "model")
    assert loaded.classes == CLASSES
    np.testing.assert_array_equal(loaded.predict_proba(pool()), model.predict_proba(pool()))
    np.testing.assert_array_equal(loaded.embed(pool()), model.embed(pool()))
    np.testing.assert_array_equal(loaded.mc_proba(pool(), 3, 5), model.mc_proba(pool(), 3, 5))


def test_no_pickle_is_written(name: str, tmp_path: Path) -> None:
    fitted(name).save(tmp_path)
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".json", ".safetensors"}


def test_a_folder_without_a_model_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadFile):
        make(name).load(tmp_path)


def test_dropout_passes_are_seeded_and_differ_from_each_other(name: str) -> None:
    model = fitted(name)
    passes, again, other = (model.mc_proba(pool(), 4, seed) for seed in (7, 7, 8))
    assert passes.shape == (4, 23, CLASSES)
    np.testing.assert_allclose(passes.sum(axis=2), 1, atol=1e-5)
    np.testing.assert_array_equal(passes, again)
    assert np.abs(passes - other).max() > 1e-4
    assert np.abs(passes[0] - passes[1]).max() > 1e-4
    assert np.abs(passes - model.predict_proba(pool())).max() > 1e-4


def test_the_first_passes_do_not_depend_on_how_many_follow(name: str) -> None:
    model = fitted(name)
    np.testing.assert_array_equal(model.mc_proba(pool(), 2, 7), model.mc_proba(pool(), 4, 7)[:2])


def test_progress_rises_to_one(name: str) -> None:
    heard: list[float] = []
    make(name).fit(*labelled(), classes=CLASSES, seed=0, report=lambda done, _what: heard.append(done))
    assert heard == sorted(heard)
    assert heard[-1] == 1.0
    assert heard[0] >= 0


@pytest.mark.parametrize(
    ("rows", "labels", "complaint"),
    [
        (0, [], "labelled set is empty"),
        (3, [0, 1], "differ in length"),
        (2, [0, 5], "labels run from 0 to 5, but there are 5 classes"),
    ],
)
def test_a_labelled_set_that_nothing_can_be_learnt_from_is_refused(
    name: str, rows: int, labels: list[int], complaint: str
) -> None:
    with pytest.raises(BadInput, match=complaint):
        make(name).fit(labelled()[0][:rows], np.array(labels, dtype=np.int64), classes=CLASSES, seed=0)


def test_settings_are_frozen_and_a_wrong_one_names_the_right_ones(name: str) -> None:
    setting = fields(make(name))[0].name  # type: ignore[arg-type] # every learner is a dataclass
    with pytest.raises((FrozenInstanceError, AttributeError)):
        setattr(make(name), setting, 1)
    with pytest.raises(BadInput, match=f"learner '{name}' has no setting 'lamda'; its settings are .*{setting}"):
        make_learner(name, lamda=1)


def test_an_unknown_learner_is_refused() -> None:
    with pytest.raises(UnknownName, match="no learner is called 'lineal'; did you mean 'linear'"):
        make_learner("lineal")
