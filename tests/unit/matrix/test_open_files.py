"""A matrix in files reads as the array in memory does, whatever the files; picks from it are the same."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tailwise
from tailwise.errors import BadFile
from tailwise.matrix import npy as mapped
from tailwise.matrix import npy as npy_files
from tailwise.matrix import parquet
from tailwise.matrix import parquet as spool
from tailwise.matrix.open import as_matrix, open_matrix

SIZES = (7, 0, 1, 40, 12, 3, 3, 3, 3, 3, 25)  # rows of the shards, one of them empty
Write = Callable[[Path, np.ndarray], Path]


def cut(array: np.ndarray) -> list[np.ndarray]:
    return np.split(array, np.cumsum(SIZES)[:-1])


def one_npy(folder: Path, array: np.ndarray) -> Path:
    np.save(folder / "p.npy", array)
    return folder / "p.npy"


def fortran_npy(folder: Path, array: np.ndarray) -> Path:
    return one_npy(folder, np.asfortranarray(array))


def npy_shards(folder: Path, array: np.ndarray) -> Path:
    """Numbers without leading zeros, next to other files."""
    for number, part in enumerate(cut(array)):
        np.save(folder / f"shard-{number}.npy", part)
    (folder / "manifest.json").write_text("{}")
    (folder / ".shard-3.npy.part").write_text("half")
    np.save(folder / ".hidden.npy", array)
    (folder / "embeddings").mkdir()
    np.save(folder / "embeddings" / "part-0.npy", array[:, :1])
    return folder


def flat_table(array: np.ndarray) -> pa.Table:
    columns = {f"prob_{k}": np.ascontiguousarray(array[:, k]) for k in range(array.shape[1])}
    return pa.table({"name": ["ä"] * len(array), **columns, "height": np.arange(len(array), dtype=float)})


def one_parquet(folder: Path, array: np.ndarray) -> Path:
    pq.write_table(flat_table(array), folder / "p.parquet", row_group_size=9)
    return folder / "p.parquet"


def one_row_group(folder: Path, array: np.ndarray) -> Path:
    pq.write_table(flat_table(array), folder / "p.parquet")
    return folder / "p.parquet"


def parquet_dataset(folder: Path, array: np.ndarray) -> Path:
    """Nested, named like one file, with marks that writers leave."""
    home = folder / "p.parquet"
    for number, part in enumerate(cut(array)):
        below = home / f"year={2020 + number // 6}"
        below.mkdir(parents=True, exist_ok=True)
        pq.write_table(flat_table(part), below / f"part-{number:02d}.parquet", row_group_size=4)
    (home / "_SUCCESS").write_text("")
    pq.write_table(flat_table(array), home / "_metadata.parquet")
    return home


def shuffled_dataset(folder: Path, array: np.ndarray) -> Path:
    """Every other file has its columns in another order."""
    for number, part in enumerate(cut(array)):
        table = flat_table(part)
        names = table.column_names[::-1] if number % 2 else table.column_names
        pq.write_table(table.select(names), folder / f"part-{number:02d}.parquet")
    return folder


def dotted_lists(folder: Path, array: np.ndarray) -> Path:
    pq.write_table(pa.table({"model.proba": pa.array(list(array))}), folder / "p.parquet", row_group_size=11)
    return folder / "p.parquet"


def lists(folder: Path, array: np.ndarray) -> Path:
    table = pa.table({"path": ["x"] * len(array), "embedding": pa.array(list(array)), "height": np.ones(len(array))})
    pq.write_table(table, folder / "p.parquet", row_group_size=11)
    return folder / "p.parquet"


def fixed_lists(folder: Path, array: np.ndarray) -> Path:
    values = pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), array.shape[1])
    pq.write_table(pa.table({"proba": values, "embedding": values}), folder / "p.parquet", row_group_size=11)
    return folder / "p.parquet"


def tensors(folder: Path, array: np.ndarray) -> Path:
    kind = pa.fixed_shape_tensor(pa.from_numpy_dtype(array.dtype), (array.shape[1],))
    values = pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), array.shape[1])
    pq.write_table(pa.table({"softmax": pa.ExtensionArray.from_storage(kind, values)}), folder / "p.parquet")
    return folder / "p.parquet"


KINDS: list[Write] = [
    one_npy, fortran_npy, npy_shards, one_parquet, one_row_group, parquet_dataset, shuffled_dataset, lists,
    dotted_lists, fixed_lists, tensors,
]  # fmt: skip


@pytest.fixture(params=KINDS, ids=lambda write: write.__name__)
def write(request: pytest.FixtureRequest) -> Write:
    kind: Write = request.param
    return kind


@pytest.fixture(params=[np.float16, np.float32, np.float64])
def proba(request: pytest.FixtureRequest) -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.ones(5), size=sum(SIZES)).astype(request.param)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row group a part of its own, two files open at a time, pages given back all the time."""
    monkeypatch.setattr(parquet, "PART_BYTES", 1)
    monkeypatch.setattr(parquet, "BATCH_ELEMENTS", 15)
    monkeypatch.setattr(npy_files, "PART_BYTES", 100)
    monkeypatch.setattr(mapped, "MOST_OPEN", 2)
    monkeypatch.setattr(mapped, "MOST_RESIDENT", 1)


@pytest.mark.usefixtures("small_parts")
def test_all_slices_and_row_numbers_read_as_from_the_array(write: Write, proba: np.ndarray, tmp_path: Path) -> None:
    matrix = open_matrix(write(tmp_path, proba))
    assert (matrix.shape, matrix.dtype, matrix.ndim, len(matrix)) == (proba.shape, proba.dtype, 2, len(proba))
    rng = np.random.default_rng(1)
    for start, stop in rng.integers(-5, len(proba) + 5, size=(60, 2)).tolist():
        assert np.array_equal(matrix[start:stop], proba[start:stop])
    for size in rng.integers(0, 60, size=30).tolist():
        rows = rng.integers(0, len(proba), size=size)
        assert np.array_equal(matrix[np.sort(rows)], proba[np.sort(rows)])
        assert np.array_equal(matrix[rows], proba[rows])
    for where in (slice(None), slice(3, 3), slice(90, 10), slice(2, 80, 7), slice(None, None, -1)):
        assert np.array_equal(matrix[where], proba[where])
        assert matrix[where].dtype == proba.dtype
    assert np.array_equal(np.asarray(matrix), proba)


def test_rows_that_are_not_there_are_an_index_error(write: Write, proba: np.ndarray, tmp_path: Path) -> None:
    matrix = open_matrix(write(tmp_path, proba))
    for row in (-1, len(proba)):
        with pytest.raises(IndexError, match="were asked for"):
            matrix[np.array([row])]


def test_a_pickle_is_a_description_that_opens_again(write: Write, proba: np.ndarray, tmp_path: Path) -> None:
    matrix = open_matrix(write(tmp_path, proba))
    before = matrix[5:9].copy()  # files are open now, and parts are spooled
    again = pickle.loads(pickle.dumps(matrix))
    assert np.array_equal(again[5:9], before)
    assert np.array_equal(np.asarray(again), proba)
    assert again.location == matrix.location


@pytest.mark.parametrize("write", [one_npy, one_row_group])
def test_a_pickle_is_small_whatever_the_size_of_the_matrix(write: Write, tmp_path: Path) -> None:
    array = np.full((20_000, 10), 0.1)
    matrix = open_matrix(write(tmp_path, array))
    assert matrix[:].nbytes == array.nbytes
    assert len(pickle.dumps(matrix)) < 2_000


def test_a_relative_path_is_kept_as_an_absolute_one(
    proba: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npy_shards(tmp_path, proba)
    monkeypatch.chdir(tmp_path.parent)
    matrix = open_matrix(tmp_path.name)
    monkeypatch.chdir("/")
    assert np.array_equal(pickle.loads(pickle.dumps(matrix))[:], proba)


def test_file_urls_are_paths(proba: np.ndarray, tmp_path: Path) -> None:
    folder = tmp_path / "für alle"
    folder.mkdir()
    path = one_npy(folder, proba)
    assert np.array_equal(open_matrix(path.as_uri())[:], proba)
    assert np.array_equal(open_matrix(f"file://{folder}/p.npy")[:], proba)


def test_a_file_that_has_become_shorter_is_reported(proba: np.ndarray, tmp_path: Path) -> None:
    path = one_npy(tmp_path, proba)
    matrix = open_matrix(path)
    assert np.array_equal(matrix[10:20], proba[10:20])
    os.truncate(path, path.stat().st_size - 8)
    with pytest.raises(BadFile, match="shorter"):
        matrix[len(proba) - 5 :]


def test_views_stay_readable_while_their_pages_and_files_are_let_go(
    proba: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped, "MOST_OPEN", 1)
    monkeypatch.setattr(mapped, "MOST_RESIDENT", 1)
    matrix = open_matrix(npy_shards(tmp_path, proba))
    views = [(row, matrix[row : row + 1]) for row in range(len(proba))]
    for row, view in views:
        assert np.array_equal(view[0], proba[row])


def test_thousands_of_shards_need_few_open_files(tmp_path: Path) -> None:
    array = np.arange(3_000, dtype=np.float32)[:, None]
    for number in range(3_000):
        np.save(tmp_path / f"{number}.npy", array[number : number + 1])
    before = len(list(Path("/proc/self/fd").iterdir()))
    matrix = open_matrix(tmp_path)
    assert np.array_equal(matrix[:], array)
    assert len(list(Path("/proc/self/fd").iterdir())) - before <= 2 * mapped.MOST_OPEN


def test_arrays_and_open_matrices_are_taken_as_they_are(proba: np.ndarray, tmp_path: Path) -> None:
    matrix = open_matrix(one_npy(tmp_path, proba))
    assert as_matrix(matrix) is matrix
    assert as_matrix(proba) is proba


def test_a_mapped_array_is_read_from_its_file(proba: np.ndarray, tmp_path: Path) -> None:
    mapped_array = np.load(one_npy(tmp_path, proba), mmap_mode="r")
    for some in (mapped_array, mapped_array[3:], mapped_array[7:19]):
        matrix = as_matrix(some)
        assert isinstance(matrix, npy_files.NpyMatrix)
        assert np.array_equal(matrix[:], np.asarray(some))
        assert np.array_equal(matrix[np.array([0, 2, 5])], np.asarray(some)[[0, 2, 5]])


def test_a_mapped_array_that_its_file_does_not_hold_is_taken_as_it_is(proba: np.ndarray, tmp_path: Path) -> None:
    path = one_npy(tmp_path, proba)
    changed = np.load(path, mmap_mode="c")
    changed[0] = changed[1]
    mapped_array = np.load(path, mmap_mode="r")
    for some in (changed, mapped_array[::2], mapped_array[:, 1:], mapped_array[:0], mapped_array + 1):
        assert np.shares_memory(as_matrix(some), some) or not some.size
        assert np.array_equal(as_matrix(some), some)
    path.unlink()
    assert np.shares_memory(as_matrix(mapped_array), mapped_array)


def test_a_read_of_more_bytes_than_one_call_gives_is_whole(
    proba: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = os.preadv
    monkeypatch.setattr(os, "preadv", lambda file, into, place: read(file, [into[0][:37]], place))
    assert np.array_equal(open_matrix(one_npy(tmp_path, proba))[:], proba)


# Parts are read once, by all threads


class Counting(spool.Source):
    """Rows made on the spot, with a note of every part that was read."""

    def __init__(self, array: np.ndarray, parts: int) -> None:
        super().__init__("nowhere", np.linspace(0, len(array), parts + 1).astype(np.int64), array.shape[1], array.dtype)
        self.array, self.read = array, list[int]()

    def blocks(self, part: int):  # noqa: ANN201 - of the base
        self.read.append(part)
        yield from np.array_split(self.array[self.bounds[part] : self.bounds[part + 1]], 3)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_every_part_of_a_slow_source_is_read_once(threads: int) -> None:
    array = np.random.default_rng(3).random((10_000, 4))
    source = Counting(array, 23)
    matrix = spool.SpooledMatrix(source)
    starts = list(range(0, 10_000, 37)) * 2
    with ThreadPoolExecutor(threads) as pool:
        blocks = list(
            pool.map(lambda start: np.array_equal(matrix[start : start + 37], array[start : start + 37]), starts)
        )
    assert all(blocks)
    assert sorted(source.read) == list(range(23))


def test_only_the_parts_that_are_asked_for_are_read() -> None:
    source = Counting(np.ones((100, 3)), 10)
    matrix = spool.SpooledMatrix(source)
    assert matrix[35:52].shape == (17, 3)
    assert matrix[np.array([3, 99])].shape == (2, 3)
    assert source.read == [3, 4, 5, 0, 9]


def test_a_thread_that_would_wait_reads_ahead() -> None:
    first_is_read, second_is_read = threading.Event(), threading.Event()

    class Slow(Counting):
        def blocks(self, part: int):  # noqa: ANN202 - of the base
            if part == 0:
                first_is_read.set()
                assert second_is_read.wait(20)
            if part == 1:
                second_is_read.set()
            yield from super().blocks(part)

    array = np.random.default_rng(4).random((20, 2))
    matrix = spool.SpooledMatrix(Slow(array, 2))
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(lambda: matrix[0:3])
        assert first_is_read.wait(20)
        other = pool.submit(lambda: matrix[3:6])  # in the part that is being read
        assert np.array_equal(one.result(20), array[0:3])
        assert np.array_equal(other.result(20), array[3:6])


def test_the_temporary_file_has_no_name_and_goes_with_the_matrix(
    proba: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    matrix = open_matrix(one_parquet(tmp_path, proba))
    before = len(list(Path("/proc/self/fd").iterdir()))
    matrix[:]
    assert len(list(Path("/proc/self/fd").iterdir())) > before
    assert list(temporary.iterdir()) == []
    del matrix
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# The same picks from everywhere


def test_picks_are_those_from_the_array(write: Write, tmp_path: Path) -> None:
    proba = np.random.default_rng(5).dirichlet([4.0, 2.0, 1.0, 0.5, 0.25], size=sum(SIZES)).astype(np.float32)
    path = write(tmp_path, proba)
    wanted = tailwise.select(proba, 12, counts=[9, 5, 3, 2, 1], balance=1.0, score="entropy")
    found = tailwise.select(str(path), 12, counts=[9, 5, 3, 2, 1], balance=1.0, score="entropy")
    assert found.indices.tolist() == wanted.indices.tolist()
    assert found.objective == wanted.objective


PEAK = """
import sys
import numpy as np
from tailwise.score import entropy
from tailwise.matrix.shards import Rows
from tailwise.matrix.open import open_proba
from tailwise.matrix.shards import scan

def peak():
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024

if sys.argv[1].endswith("parquet"):
    import pyarrow.fs, pyarrow.parquet
before = peak()
rows = Rows(open_proba(sys.argv[1]))
costs = [scan(rows, entropy) for _ in range(2)]
taken = rows.take(np.arange(0, rows.size, 97))
print(rows.size * rows.classes * 2, taken.nbytes, peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["npy", "shards", pytest.param("parquet", marks=pytest.mark.long)])
def test_a_large_matrix_is_not_held_in_memory(kind: str, tmp_path: Path) -> None:
    raw = np.random.default_rng(6).standard_exponential((160_000, 125), dtype=np.float32)
    proba = (raw / raw.sum(axis=1, keepdims=True)).astype(np.float16)
    path = tmp_path / kind if kind != "npy" else tmp_path / "p.npy"
    write_large(path, kind, proba, shards=15)
    done = subprocess.run([sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    size, taken, grown = map(int, done.stdout.split())
    assert size == 600_000_000
    assert grown - 2 * taken < size / 2  # 128 MB of the file, costs of 40 MB, blocks and what decoding takes


def write_large(path: Path, kind: str, proba: np.ndarray, shards: int) -> None:
    if kind == "npy":
        shape = (shards * len(proba), proba.shape[1])
        whole = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=shape)
        whole.reshape(shards, *proba.shape)[:] = proba
        return
    path.mkdir()
    values = pa.FixedSizeListArray.from_arrays(pa.array(proba.reshape(-1)), proba.shape[1])
    for number in range(shards):
        if kind == "shards":
            np.save(path / f"part-{number:05d}.npy", proba)
        else:
            pq.write_table(pa.table({"prob": values}), path / f"{number:02d}.parquet", use_dictionary=False)
