from __future__ import annotations

import hashlib
import os
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tailwise.errors import BadFile
from tailwise.pools.datasets import CIFAR10, CIFAR100, Layout, cifar10, find_cifar, read_cifar
from tailwise.pools.download import Source
from tailwise.pools.pool import LabelledImages, load_pool

if TYPE_CHECKING:
    from conftest import Site

TEN = replace(CIFAR10, train_records=4, test_records=3)
HUNDRED = replace(CIFAR100, train_records=6, test_records=5)
LAYOUTS = pytest.mark.parametrize("layout", [TEN, HUNDRED], ids=["cifar10", "cifar100"])


def write(folder: Path, layout: Layout) -> dict[str, np.ndarray]:
    """Files of noise in the official layout; the records of each, by file."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    written = {}
    for file in (*layout.train, layout.test):
        number = layout.test_records if file == layout.test else layout.train_records
        labels = [rng.integers(0, values, (number, 1)) for values in layout.labels]
        written[file] = np.hstack([*labels, rng.integers(0, 256, (number, 3072))]).astype(np.uint8)
        (folder / file).write_bytes(written[file].tobytes())
    names = "\n".join(f"class_{number}" for number in range(layout.labels[-1]))
    (folder / layout.names).write_text(names + "\n\n", encoding="ascii")
    return written


def pixel_by_pixel(record: np.ndarray) -> np.ndarray:
    """The official description, literally: 1,024 red bytes in rows, then green, then blue."""
    planes = record[-3072:]
    image = np.zeros((32, 32, 3), np.uint8)
    for channel in range(3):
        for row in range(32):
            for column in range(32):
                image[row, column, channel] = planes[1024 * channel + 32 * row + column]
    return image


def compare(half: LabelledImages, records: np.ndarray) -> None:
    assert half.inputs.shape == (len(records), 32, 32, 3)
    assert half.labels.tolist() == records[:, -3073].tolist()  # the byte before the pixels: the (fine) label
    assert half.labels.dtype == np.int64
    for at, record in enumerate(records):
        assert np.array_equal(half.inputs[np.array([at])][0], pixel_by_pixel(record))


@LAYOUTS
def test_pixels_and_labels_are_where_the_official_description_puts_them(tmp_path: Path, layout: Layout) -> None:
    written = write(tmp_path / "data", layout)
    pool = read_cifar(layout, tmp_path / "data")
    compare(pool.train, np.vstack([written[file] for file in layout.train]))
    compare(pool.test, written[layout.test])
    assert pool.train.inputs.dtype == np.uint8  # type: ignore[attr-defined]
    assert pool.train.inputs.flags["C_CONTIGUOUS"]  # type: ignore[attr-defined]
    assert pool.train.class_names[:2] == ("class_0", "class_1")
    assert pool.train.classes == layout.labels[-1]


def pack(folder: Path, archive: Path) -> Path:
    with tarfile.open(archive, "w:gz") as tar:
        for file in sorted(folder.iterdir(), reverse=True):  # not in the order in which they are needed
            tar.add(file, f"{folder.name}/{file.name}")
    return archive


@LAYOUTS
def test_an_archive_reads_like_the_folder_and_nothing_is_written(tmp_path: Path, layout: Layout) -> None:
    write(tmp_path / layout.source.folder, layout)
    archive = pack(tmp_path / layout.source.folder, tmp_path / "mine.tar.gz")
    before = sorted(tmp_path.rglob("*"))
    one, two = read_cifar(layout, tmp_path / layout.source.folder), read_cifar(layout, find_cifar(layout, archive))
    assert sorted(tmp_path.rglob("*")) == before
    assert np.array_equal(one.train.inputs, two.train.inputs)  # type: ignore[arg-type]
    assert np.array_equal(one.test.labels, two.test.labels)
    assert one.train.class_names == two.train.class_names


def test_the_files_are_found_in_the_folder_its_parent_the_cache_and_as_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "tailwise"
    official = home / TEN.source.folder
    write(official, TEN)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert find_cifar(TEN, official) == find_cifar(TEN, home) == find_cifar(TEN, None) == official
    (tmp_path / "other").mkdir()
    archive = pack(official, tmp_path / "other" / "cifar-10-binary.tar.gz")
    assert find_cifar(TEN, tmp_path / "other") == archive


def test_what_is_missing_is_named_with_the_way_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"no cifar10 at .*pass download=True.*cifar-10-binary\.tar\.gz"):
        cifar10(tmp_path)
    with pytest.raises(BadFile, match=r"no cifar100 at .*cifar-100-binary\.tar\.gz"):
        load_pool("cifar100", tmp_path)
    write(tmp_path / "data", TEN)
    (tmp_path / "data" / "data_batch_3.bin").unlink()
    with pytest.raises(BadFile, match=r"has no data_batch_3\.bin"):
        read_cifar(TEN, tmp_path / "data")


@LAYOUTS
@pytest.mark.parametrize(("change", "says"), [(-1, "but has"), (1, "but has more"), (-3073, "but has")])
def test_a_file_of_another_size_is_named(tmp_path: Path, layout: Layout, change: int, says: str) -> None:
    write(tmp_path / "data", layout)
    file = tmp_path / "data" / layout.train[-1]
    file.write_bytes((file.read_bytes() + b"\0")[: file.stat().st_size + change])
    with pytest.raises(BadFile, match=rf"{layout.train[-1]} must have {file.stat().st_size - change:,} bytes, {says}"):
        read_cifar(layout, tmp_path / "data")


@pytest.mark.parametrize(
    ("layout", "place", "label", "last"), [(TEN, 0, 10, 9), (HUNDRED, 0, 20, 19), (HUNDRED, 1, 100, 99)]
)
def test_a_label_out_of_range_is_named(tmp_path: Path, layout: Layout, place: int, label: int, last: int) -> None:
    records = write(tmp_path / "data", layout)[layout.test]
    records[2, place] = label
    (tmp_path / "data" / layout.test).write_bytes(records.tobytes())
    says = rf"{layout.test} gives image 2 the label {label}, but labels end at {last}"
    with pytest.raises(BadFile, match=says):
        read_cifar(layout, tmp_path / "data")


def test_names_must_be_as_many_as_classes(tmp_path: Path) -> None:
    write(tmp_path / "data", TEN)
    (tmp_path / "data" / TEN.names).write_text("cat\ndog\n", encoding="ascii")
    with pytest.raises(BadFile, match=r"batches\.meta\.txt must name 10 classes, but has 2"):
        read_cifar(TEN, tmp_path / "data")


def test_a_download_is_unpacked_into_the_cache_and_read(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "made" / "cifar-10-batches-bin", TEN)
    archive = pack(tmp_path / "made" / "cifar-10-batches-bin", tmp_path / "made.tar.gz").read_bytes()
    site.pages["cifar-10-binary.tar.gz"] = archive
    checksum = f"md5:{hashlib.md5(archive).hexdigest()}"
    layout = replace(TEN, source=Source(site.url("cifar-10-binary.tar.gz"), checksum, "cifar-10-batches-bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    told: list[float] = []
    found = find_cifar(layout, None, download=True, report=lambda share, _: told.append(share))
    assert found == tmp_path / "tailwise" / "cifar-10-batches-bin"
    assert len(read_cifar(layout, found).train) == 20
    assert told[-1] == 1.0


def test_the_official_sources_and_sizes() -> None:
    assert [CIFAR10.bytes_of(file) for file in (*CIFAR10.train, CIFAR10.test)] == [30_730_000] * 6
    assert [CIFAR100.bytes_of(file) for file in (*CIFAR100.train, CIFAR100.test)] == [153_700_000, 30_740_000]
    assert CIFAR10.source.checksum == "md5:c32a1d4ab5d03f1284b67883e8d87530"
    assert CIFAR100.source.checksum == "md5:03b5dce01913d631647c71ecec9e9cb8"
    assert {layout.source.url.rpartition("/")[0] for layout in (CIFAR10, CIFAR100)} == {
        "https://www.cs.toronto.edu/~kriz"
    }


def test_the_real_cifar10_has_its_images_and_balanced_classes() -> None:
    folder = Path(os.environ.get("TAILWISE_DATA", "")) / "cifar-10-batches-bin"
    if not (folder / "test_batch.bin").exists():
        pytest.skip("TAILWISE_DATA names no folder with cifar-10-batches-bin")
    pool = load_pool("cifar10", folder)
    assert pool.train.counts().tolist() == [5000] * 10
    assert pool.test.counts().tolist() == [1000] * 10
    assert pool.train.class_names[3] == "cat"
