from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tailwise.errors import BadFile, BadInput
from tailwise.learners import LinearLearner, MlpLearner
from tailwise.learners.learner import SETTINGS_FILE, StoredModel, load_model, save_model
from tailwise.learners.linear import LinearModel, all_features, dropped, row_weights


@dataclass(frozen=True)
class Lazy:
    """Inputs that are read when asked for, and remember how many were read at once."""

    array: np.ndarray
    reads: list[int]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, indices: np.ndarray, /) -> np.ndarray:
        self.reads.append(len(indices))
        return self.array[indices]


def model(**settings: object) -> tuple[LinearModel, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 2, 3], 20)
    features = rng.normal(size=(60, 5)) + labels[:, None]
    return LinearLearner(**settings).fit(features, labels, classes=4, seed=0), features


def test_pixels_are_flat_and_between_zero_and_one() -> None:
    pixels = np.arange(48, dtype=np.uint8).reshape(2, 2, 4, 3)
    np.testing.assert_allclose(all_features(pixels), np.arange(48).reshape(2, 24) / 255, rtol=1e-6)


def test_a_pool_on_the_disk_is_read_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, features = model()
    whole = fitted.predict_proba(features), fitted.embed(features), fitted.mc_proba(features, 3, 0)
    monkeypatch.setattr("tailwise.learners.linear.CHUNK_NUMBERS", 7 * 5)
    lazy = Lazy(features, [])
    parts = fitted.predict_proba(lazy), fitted.embed(lazy), fitted.mc_proba(lazy, 3, 0)
    assert max(lazy.reads) == 7
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_dropout_keeps_the_mean_and_drops_at_its_rate() -> None:
    ones = np.ones((400, 500), np.float32)
    result = dropped(ones, 0.25, np.random.default_rng(0))
    assert set(np.unique(result).tolist()) == {0.0, float(np.float32(1 / 0.75))}
    assert (result == 0).mean() == pytest.approx(0.25, abs=0.005)
    assert result.mean() == pytest.approx(1.0, abs=0.01)


def test_dropout_acts_on_the_inputs_of_the_last_layer() -> None:
    fitted, features = model(dropout=0.5)
    passes = fitted.mc_proba(features, 2, seed=9)
    hidden = dropped(fitted.embed(features), 0.5, np.random.default_rng([9, 1]))
    powers = np.exp(hidden @ fitted.weights + fitted.offsets)
    np.testing.assert_allclose(passes[1][:, fitted.seen], powers / powers.sum(axis=1, keepdims=True), rtol=1e-4)
    assert passes[:, :, 1].max() == 0  # class 1 was never seen


def test_passes_without_dropout_are_refused() -> None:
    fitted, features = model(dropout=0.0)
    with pytest.raises(BadInput, match="dropout is 0: every pass would be the same"):
        fitted.mc_proba(features, 2, seed=0)


def test_inputs_of_another_width_are_refused() -> None:
    fitted, features = model()
    with pytest.raises(BadInput, match="have 4 numbers each; the model learnt from 5"):
        fitted.predict_proba(features[:, :4])


def test_balanced_rows_weigh_the_same_per_class_and_one_on_average() -> None:
    labels = np.array([0, 0, 0, 0, 5, 5, 9])
    weights = row_weights(labels, "balanced")
    assert np.bincount(labels, weights=weights)[[0, 5, 9]] == pytest.approx([7 / 3] * 3)
    assert weights.mean() == pytest.approx(1.0)
    assert row_weights(labels, "none").tolist() == [1.0] * 7


# What is on the disk


def damage_tensors(folder: Path) -> None:
    path = next(folder.glob("*.safetensors"))
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def cut_tensors(folder: Path) -> None:
    path = next(folder.glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:20])


def lose_tensors(folder: Path) -> None:
    next(folder.glob("*.safetensors")).unlink()


def change(**changes: object) -> object:
    def write(folder: Path) -> None:
        page = json.loads((folder / SETTINGS_FILE).read_text())
        (folder / SETTINGS_FILE).write_text(json.dumps(page | changes))

    return write


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (damage_tensors, "checksum"),
        (cut_tensors, "checksum"),
        (lose_tensors, "cannot read"),
        (lambda folder: (folder / SETTINGS_FILE).unlink(), "cannot read"),
        (lambda folder: (folder / SETTINGS_FILE).write_text("{"), "not valid JSON"),
        (lambda folder: (folder / SETTINGS_FILE).write_text("[" * 100_000), "not valid JSON"),
        (lambda folder: (folder / SETTINGS_FILE).write_text("[]"), "format 1"),
        (change(format=2), "format 1"),
        (change(kind="mlp"), "holds a 'mlp' model, but a 'linear' model was asked for"),
        (change(sha256="../../etc/passwd"), "has no valid checksum"),
        (change(settings={"classes": 9, "dropout": 0.5}), "checksum"),
        (change(settings=None), "no settings"),
    ],
)
def test_a_model_that_is_damaged_or_missing_is_refused(tmp_path: Path, damage: object, complaint: str) -> None:
    model()[0].save(tmp_path)
    damage(tmp_path)  # type: ignore[operator]
    with pytest.raises(BadFile, match=complaint):
        LinearLearner().load(tmp_path)


@pytest.mark.parametrize(
    ("tensors", "settings", "complaint"),
    [
        ({"seen": None}, {}, "no fitting tensor 'seen'"),
        ({"offsets": np.zeros(7, np.float32)}, {}, "does not fit the others"),
        ({"weights": np.zeros((5, 3))}, {}, "tensor 'weights' is float64"),
        ({"seen": np.array([0, 2, 9])}, {}, "not among 0 to 3"),
        ({"seen": np.array([0, 2, 2])}, {}, "not among 0 to 3"),
        ({}, {"classes": "4"}, "it says classes '4'"),
        ({}, {"dropout": 1.0}, "dropout 1.0"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(
    tmp_path: Path, tensors: dict, settings: dict, complaint: str
) -> None:
    model()[0].save(tmp_path)
    stored = load_model(tmp_path, "linear")
    changed = {name: tensor for name, tensor in (stored.tensors | tensors).items() if tensor is not None}
    save_model(tmp_path, StoredModel("linear", stored.settings | settings, changed))
    with pytest.raises(BadFile, match=complaint):
        LinearLearner().load(tmp_path)


def test_saving_again_replaces_the_old_model_and_leaves_no_file_behind(tmp_path: Path) -> None:
    first, features = model()
    second, _ = model(strength=0.001)
    first.save(tmp_path)
    second.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert (LinearLearner().load(tmp_path).predict_proba(features) == second.predict_proba(features)).all()


def test_a_crash_between_the_two_files_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, features = model()
    second, _ = model(strength=0.001)
    first.save(tmp_path)

    def full(path: Path, content: bytes) -> None:
        if path.suffix == ".json":
            raise BadFile("the disk is full")
        path.write_bytes(content)

    monkeypatch.setattr("tailwise.learners.learner.write_whole", full)
    with pytest.raises(BadFile, match="disk is full"):
        second.save(tmp_path)
    assert (LinearLearner().load(tmp_path).predict_proba(features) == first.predict_proba(features)).all()


def test_a_file_where_the_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("")
    with pytest.raises(BadFile, match="cannot make the folder"):
        model()[0].save(tmp_path / "model")


def test_a_model_of_one_kind_is_not_read_as_another(tmp_path: Path) -> None:
    model()[0].save(tmp_path)
    with pytest.raises(BadFile, match="holds a 'linear' model, but a 'mlp' model was asked for"):
        MlpLearner().load(tmp_path)
