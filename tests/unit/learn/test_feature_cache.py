"""Features on the disk: many rows at once are those that are found one by one; damage is missing, never wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailwise.learn.feature_cache import FeatureCache, remove_shard, shard_faults


def keys(count: int, seed: int = 0) -> list[bytes]:
    rng = np.random.default_rng(seed)
    return [rng.bytes(16) for _ in range(count)]


@pytest.fixture
def filled(tmp_path: Path) -> tuple[Path, list[bytes], np.ndarray]:
    names, features = keys(300), np.random.default_rng(1).normal(size=(300, 7)).astype(np.float32)
    for start in (0, 100, 200):
        FeatureCache.open(tmp_path).add(names[start : start + 100], features[start : start + 100])
    return tmp_path, names, features


def test_many_at_once_are_those_found_one_by_one(filled: tuple[Path, list[bytes], np.ndarray]) -> None:
    folder, names, features = filled
    cache = FeatureCache.open(folder)
    order = np.random.default_rng(2).permutation(300)[:120]
    asked = [*(names[at] for at in order), *keys(5, seed=9), names[order[0]]]  # strangers, and one twice
    rows, found = cache.find_all(asked)
    assert found.tolist() == [True] * 120 + [False] * 5 + [True]
    assert np.array_equal(rows[:120], features[order])
    assert not rows[120:125].any()
    assert np.array_equal(rows[-1], features[order[0]])
    for name, row, there in zip(asked, rows, found, strict=True):
        single = cache.find(name)
        assert (single is not None) == there
        if single is not None:
            assert np.array_equal(single, row)


def test_what_is_not_to_be_kept_is_not_looked_for(filled: tuple[Path, list[bytes], np.ndarray]) -> None:
    folder, names, features = filled
    rows, found = FeatureCache.open(folder).find_all(names, np.arange(300) % 2 == 0)
    assert found.tolist() == [True, False] * 150
    assert np.array_equal(rows[::2], features[::2])


def test_an_empty_cache_finds_nothing(tmp_path: Path) -> None:
    rows, found = FeatureCache.open(tmp_path / "none").find_all(keys(3))
    assert (rows.shape, found.tolist()) == ((3, 0), [False] * 3)
    assert FeatureCache.open(tmp_path).find_all([])[0].shape == (0, 0)


def test_a_damaged_row_is_missing_and_its_newer_copy_is_found(filled: tuple[Path, list[bytes], np.ndarray]) -> None:
    folder, names, features = filled
    shard = next(path for path in sorted(folder.glob("*.npy")) if not path.name.endswith(".keys.npy"))
    content = bytearray(shard.read_bytes())
    content[-3] ^= 0xFF  # a bit of the last row
    shard.write_bytes(content)
    cache = FeatureCache.open(folder)
    _, found = cache.find_all(names)
    assert (~found).sum() == 1
    lost = int(np.flatnonzero(~found)[0])
    cache.add([names[lost]], features[[lost]])
    rows, found = FeatureCache.open(folder).find_all(names)
    assert found.all()
    assert np.array_equal(rows, features)


def test_a_shard_cut_in_half_is_removed_and_its_rows_are_missing(filled: tuple[Path, list[bytes], np.ndarray]) -> None:
    folder, names, _ = filled
    shard = next(path for path in sorted(folder.glob("*.npy")) if not path.name.endswith(".keys.npy"))
    shard.write_bytes(shard.read_bytes()[:500])
    _, found = FeatureCache.open(folder).find_all(names)
    assert found.sum() == 200
    assert not shard.exists()


def test_rows_of_another_width_are_missing(filled: tuple[Path, list[bytes], np.ndarray]) -> None:
    folder, names, _ = filled
    stranger = keys(1, seed=5)
    cache = FeatureCache.open(folder)
    cache.add(stranger, np.ones((1, 3), np.float32))
    again = FeatureCache.open(folder)
    widths = [features.shape[1] for features, _ in again.shards]
    rows, found = again.find_all([*names, *stranger])
    assert rows.shape[1] == widths[0]
    assert found.tolist() == ([True] * 300 + [False] if widths[0] == 7 else [False] * 300 + [True])


def test_faults_are_named_without_removing_anything_until_that_is_asked_for(
    filled: tuple[Path, list[bytes], np.ndarray],
) -> None:
    folder, names, _ = filled
    assert shard_faults(folder) == []
    assert shard_faults(folder / "none") == []
    first, second, third = (path for path in sorted(folder.glob("*.npy")) if ".keys" not in path.name)
    content = bytearray(first.read_bytes())
    content[-3] ^= 0xFF
    first.write_bytes(content)
    second.write_bytes(b"")
    keys_of = {path: path.with_name(path.name.replace(".npy", ".keys.npy")) for path in (first, second, third)}
    keys_of[third].unlink()
    before = sorted(folder.iterdir())
    faults = dict(shard_faults(folder))
    assert sorted(folder.iterdir()) == before
    assert faults[keys_of[first]] == "1 of 100 rows fail their checksum"
    assert "cannot be read" in faults[keys_of[second]]
    assert faults[third] == "belongs to no keys"
    for path in faults:
        remove_shard(path)
    assert sorted(folder.iterdir()) == []
    assert FeatureCache.open(folder).find_all(names)[1].sum() == 0
