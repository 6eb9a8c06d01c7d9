"""The identity of a pool: the same content anywhere is the same, one other number or byte is not."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tailwise.pools import LabelledImages, Pool, load_pool, pool_content
from tailwise.pools import pool as content
from tailwise.types import IntArray


def write_features(path: Path, *, seed: int = 0, dtype: str = "float32", names: tuple[str, ...] = ()) -> Path:
    rng = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {"x_train": rng.integers(-99, 99, (60, 4)), "x_test": rng.integers(-99, 99, (20, 4))}
    arrays = {name: value.astype(dtype) for name, value in values.items()}
    arrays |= {"y_train": np.arange(60) % 3, "y_test": np.arange(20) % 3}
    np.savez(path, **arrays, **({"class_names": np.array(names)} if names else {}))
    return path


def features_content(path: Path, **settings: object) -> str:
    return pool_content(load_pool("features", path, **settings))


def test_features_of_one_name_and_other_numbers_differ_and_those_of_another_place_do_not(tmp_path: Path) -> None:
    first = write_features(tmp_path / "v1" / "features.npz")
    second = write_features(tmp_path / "v2" / "features.npz", seed=1)
    moved = write_features(tmp_path / "elsewhere" / "renamed.npz")
    assert features_content(first) == features_content(moved)
    assert features_content(first) != features_content(second)


def test_one_number_in_any_row_or_one_label_changes_the_content(tmp_path: Path) -> None:
    path = write_features(tmp_path / "features.npz")
    before = features_content(path)
    arrays = dict(np.load(path))
    for name in ("x_train", "y_train", "x_test", "y_test"):
        other = {key: value.copy() for key, value in arrays.items()}
        other[name].flat[37 % other[name].size] = 1 + other[name].flat[37 % other[name].size] % 2
        np.savez(path, **other)
        assert features_content(path) != before, name


def test_the_type_of_a_file_the_names_of_classes_and_settings_are_not_part_of_the_content(tmp_path: Path) -> None:
    whole = features_content(write_features(tmp_path / "a.npz"))
    assert features_content(write_features(tmp_path / "b.npz", dtype="float16")) == whole  # whole numbers: the same
    assert features_content(write_features(tmp_path / "c.npz", names=("x", "y", "z"))) == whole
    assert features_content(tmp_path / "a.npz", scale=False) == whole
    folder = tmp_path / "npy"
    folder.mkdir()
    for name, array in np.load(tmp_path / "a.npz").items():
        np.save(folder / f"{name}.npy", array)
    assert features_content(folder) == whole


def test_byte_order_and_layout_of_an_array_do_not_count_but_its_type_and_shape_do() -> None:
    array = np.arange(24, dtype="<f4").reshape(4, 6)
    digest = content.array_digest(array)
    assert content.array_digest(array.astype(">f4")) == digest
    assert content.array_digest(np.asfortranarray(array)) == digest
    assert content.array_digest(np.repeat(array, 2, axis=0)[::2]) == digest
    assert content.array_digest(array.reshape(6, 4)) != digest
    assert content.array_digest(array.astype("<f8")) != digest
    assert content.array_digest(array[:0]) != content.array_digest(array[:0].reshape(0, 1))


def test_arrays_larger_than_a_block_are_hashed_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.arange(1000, dtype=np.int32).reshape(100, 10)
    whole = content.array_digest(array)
    monkeypatch.setattr(content, "BLOCK", 128)
    assert content.array_digest(array) == whole
    other = array.copy()
    other[-1, -1] += 1
    assert content.array_digest(other) != whole


def draw(folder: Path, *, colour: int = 0) -> Path:
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True)
        for number in range(6):
            Image.new("RGB", (8, 8), (colour, 10 * number, len(label))).save(folder / label / f"{number}.bmp")
    return folder


def folder_content(path: Path) -> str:
    return pool_content(load_pool("folder", path, size=8))


def test_a_folder_that_was_copied_is_the_same_and_one_other_picture_is_not(tmp_path: Path) -> None:
    folder = draw(tmp_path / "pets")
    before = folder_content(folder)
    assert folder_content(Path(shutil.copytree(folder, tmp_path / "copies" / "animals"))) == before
    Image.new("RGB", (8, 8), (0, 0, 99)).save(folder / "cat" / "3.bmp")  # as many bytes
    assert folder_content(folder) != before


def test_of_a_large_folder_every_name_and_size_counts_and_the_bytes_of_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailwise.pools.folder.MOST_HASHED", 100)
    monkeypatch.setattr(content, "SAMPLE", 2)
    folder = draw(tmp_path / "pets")
    before = folder_content(folder)
    first = folder / "cat" / "0.bmp"
    kept = first.read_bytes()
    first.write_bytes(kept[:-1] + b"\x77")
    assert folder_content(folder) != before  # the first is in the sample
    first.write_bytes(kept)
    assert folder_content(folder) == before
    third = folder / "dog" / "3.bmp"
    Image.new("RGB", (9, 8), (0, 0, 0)).save(third)
    assert folder_content(folder) != before  # another size


@dataclass(frozen=True, slots=True, eq=False)
class Lazy:
    """Inputs of a user's own, which are read by index alone."""

    values: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, indices: IntArray, /) -> np.ndarray:
        return self.values[indices]


def lazy_pool(values: np.ndarray) -> Pool:
    images = LabelledImages(Lazy(values), np.arange(len(values)) % 2, ("a", "b"))
    return Pool("lazy", images.take(np.arange(0, len(values), 2)), images.take(np.arange(1, len(values), 2)))


def test_inputs_of_a_users_own_are_identified_by_rows_that_are_read() -> None:
    values = np.random.default_rng(0).normal(size=(40, 3))
    assert pool_content(lazy_pool(values)) == pool_content(lazy_pool(values.copy()))
    assert pool_content(lazy_pool(values)) != pool_content(lazy_pool(values + 1))
    assert pool_content(lazy_pool(values)) != pool_content(lazy_pool(values[:-2]))


def test_every_pool_without_files_has_one_content() -> None:
    assert pool_content(load_pool("digits")) == pool_content(load_pool("digits"))
