"""Features on the disk: many rows at once are those that are found one by one; damage is missing, never wrong."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tailwise.errors import BadFile
from tailwise.learners.features import FeatureCache, remove_shard, shard_faults


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
    widths = [shard.width for shard in again.shards]
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
    faults = {fault.path: fault.reason for fault in shard_faults(folder)}
    assert sorted(folder.iterdir()) == before
    assert faults[keys_of[first]] == "1 of 100 rows fail their checksum"
    assert "cannot be read" in faults[keys_of[second]]
    assert faults[third] == "has no keys file"
    for path in faults:
        remove_shard(path)
    assert sorted(folder.iterdir()) == []
    assert FeatureCache.open(folder).find_all(names)[1].sum() == 0


# Files that cannot be read now are kept


def snapshot(folder: Path) -> dict[str, bytes | None]:
    return {path.name: path.read_bytes() if path.is_file() else None for path in sorted(folder.iterdir())}


FEW_FILES = """
import resource, sys
from pathlib import Path
import numpy as np
from tailwise.learners.features import FeatureCache
names = [bytes([at // 256, at % 256]) * 8 for at in range(int(sys.argv[2]))]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
cache = FeatureCache.open(Path(sys.argv[1]))
rows, found = cache.find_all(names)
print(len(cache.shards), found.sum(), rows.sum(), all(cache.find(name) is not None for name in names))
"""


def test_more_shards_than_a_process_may_open_files_are_all_read_and_kept(tmp_path: Path) -> None:
    pytest.importorskip("resource")
    for at in range(100):
        FeatureCache(tmp_path).add([bytes([0, at]) * 8], np.ones((1, 4), np.float32))
    before = snapshot(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", FEW_FILES, tmp_path, "100"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["100", "100", "400.0", "True"]
    assert snapshot(tmp_path) == before


NO_FILES = """
import os, resource, sys
from pathlib import Path
from tailwise.errors import OutOfFiles
from tailwise.learners.features import FeatureCache, shard_faults
folder = Path(sys.argv[1])
cache = FeatureCache.open(folder)
name = next(iter(cache.places))
held = []
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    os.close(held.pop())  # one is left: for the folder's list, or for the first of a shard's files
for ask in (lambda: cache.find(name), lambda: cache.find_all([name]), lambda: FeatureCache.open(folder)):
    held.append(os.open(os.devnull, os.O_RDONLY))
    try:
        ask()
        print("no error")
    except OutOfFiles as error:
        print(error)
    os.close(held.pop())
"""


def test_without_file_descriptors_it_is_an_error_and_nothing_is_removed(
    filled: tuple[Path, list[bytes], np.ndarray],
) -> None:
    pytest.importorskip("resource")
    before = snapshot(filled[0])
    done = subprocess.run([sys.executable, "-c", NO_FILES, filled[0]], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("too many files are open, so that none can be read now; close other programs")
    assert snapshot(filled[0]) == before


@pytest.mark.parametrize("ending", [".npy", ".keys.npy"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_folder_in_place_of_a_file_is_an_error_and_the_other_files_stay(
    filled: tuple[Path, list[bytes], np.ndarray], ending: str, clean: bool
) -> None:
    folder = filled[0]
    keys_file = min(folder.glob("*.keys.npy"))
    path = keys_file if ending == ".keys.npy" else keys_file.with_name(keys_file.name.replace(".keys", ""))
    path.rename(path.with_suffix(".kept"))
    path.mkdir()
    before = snapshot(folder)
    with pytest.raises(BadFile, match="it is a folder, not a file; nothing was removed"):
        FeatureCache.open(folder, clean=clean)
    assert [(fault.path, fault.damaged) for fault in shard_faults(folder)] == [(keys_file, False)]
    assert snapshot(folder) == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_shard_without_permission_is_an_error_and_stays(filled: tuple[Path, list[bytes], np.ndarray]) -> None:
    path = min(filled[0].glob("*.keys.npy"))
    path.chmod(0)
    try:
        with pytest.raises(BadFile, match="Permission denied; nothing was removed"):
            FeatureCache.open(filled[0])
        assert [fault.damaged for fault in shard_faults(filled[0])] == [False]
    finally:
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    assert FeatureCache.open(filled[0]).find_all(filled[1])[1].all()


def test_keys_without_features_are_missing_and_stay_until_they_are_back(
    filled: tuple[Path, list[bytes], np.ndarray], tmp_path: Path
) -> None:
    folder, names, _ = filled
    path = min(folder.glob("*.keys.npy"))
    features = path.with_name(path.name.replace(".keys", ""))
    shutil.move(features, tmp_path / "elsewhere")
    assert FeatureCache.open(folder).find_all(names)[1].sum() == 200
    shutil.move(tmp_path / "elsewhere", features)
    assert FeatureCache.open(folder).find_all(names)[1].all()


def test_a_shard_that_disappears_while_it_is_in_use_is_missing(filled: tuple[Path, list[bytes], np.ndarray]) -> None:
    folder, names, _ = filled
    cache = FeatureCache.open(folder)
    for path in list(folder.iterdir()):
        path.unlink()
    assert not cache.find_all(names)[1].any()
    assert cache.find(names[0]) is None


def test_few_rows_of_a_shard_are_those_of_all(filled: tuple[Path, list[bytes], np.ndarray]) -> None:
    folder, names, features = filled
    cache = FeatureCache.open(folder)
    for step in (1, 2, 7, 50, 99):
        rows, found = cache.find_all(names[::step])
        assert found.all()
        assert np.array_equal(rows, features[::step])


def test_the_same_image_twice_is_found_twice(filled: tuple[Path, list[bytes], np.ndarray]) -> None:
    folder, names, features = filled
    cache = FeatureCache.open(folder)
    for chosen in ([0, 0, 2], [5, 5], [9, 7, 9, 8, 8], [0, 0, 99]):
        rows, found = cache.find_all([names[at] for at in chosen])
        assert found.all()
        assert np.array_equal(rows, features[chosen])


@pytest.mark.parametrize("cut", range(0, 200, 7))
def test_every_damaged_start_of_a_file_is_found_and_removed(
    filled: tuple[Path, list[bytes], np.ndarray], cut: int
) -> None:
    folder, names, _ = filled
    for path in (
        min(folder.glob("*.keys.npy")),
        max(path for path in folder.glob("*.npy") if ".keys" not in path.name),
    ):
        content = bytearray(path.read_bytes())
        content[cut % len(content)] ^= 0x15
        path.write_bytes(content)
    rows, found = FeatureCache.open(folder).find_all(names)
    assert found.sum() >= 100
    assert np.array_equal(rows[found], filled[2][found])
