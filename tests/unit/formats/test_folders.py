from __future__ import annotations

from pathlib import Path

import pytest

from tailwise.errors import BadFile
from tailwise.formats import FORMATS, Record, guess_format
from tailwise.formats.base import class_folders, folded, safe_name, stem_and_ending
from tailwise.pools.folder import folder as folder_pool

from .conftest import CLASSES, Pictures, in_order

FOLDERS = FORMATS["folders"]


def told(records: list[Record]) -> set[tuple[str, str | None, str]]:
    return {(record.path, record.label, record.kind) for record in records}


def test_class_folders_of_another_tool_are_read_with_the_hashes_of_the_images(pictures: Pictures) -> None:
    pictures.add("dog/1.png", 1)
    pictures.add("cat/sub/2.png", 2)
    pictures.add("_unlabeled/3.png", 3)
    (pictures.root / ".DS_Store").write_bytes(b"x")
    assert guess_format(pictures.root) == "folders"
    loaded = FOLDERS.read(pictures.root, ())
    assert told(loaded.records) == {("1.png", "dog", "label"), ("sub/2.png", "cat", "label"), ("3.png", None, "label")}
    assert loaded.classes == ("cat", "dog")
    for record in loaded.records:
        home = record.label or "_unlabeled"
        assert pictures.hashed(Record(f"{home}/{record.path}", None)).sha256 == record.sha256


def test_folders_called_train_and_test_are_splits_if_class_folders_are_below(pictures: Pictures) -> None:
    pictures.add("train/dog/1.png", 1)
    pictures.add("val/dog/2.png", 2)
    loaded = FOLDERS.read(pictures.root, ())
    assert {(r.path, r.split, r.label) for r in loaded.records} == {("1.png", "train", "dog"), ("2.png", "val", "dog")}
    pictures.add("train/3.png", 3)
    assert FOLDERS.read(pictures.root, ()).classes == ("train", "val")


def test_files_outside_class_folders_and_links_are_told(pictures: Pictures, tmp_path: Path) -> None:
    pictures.add("dog/1.png", 1)
    pictures.add("stray.png", 2)
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"x")
    (pictures.root / "dog" / "link.png").symlink_to(secret)
    (pictures.root / "cat").symlink_to(tmp_path, target_is_directory=True)
    loaded = FOLDERS.read(pictures.root, ())
    assert told(loaded.records) == {("1.png", "dog", "label")}
    assert len(loaded.problems) == 3
    assert any("stray.png: not in a class folder" in problem for problem in loaded.problems)
    assert sum("a link" in problem for problem in loaded.problems) == 2


def test_lost_rows_of_an_export_are_told(records: list[Record], pictures: Pictures, tmp_path: Path) -> None:
    out = FOLDERS.write(records[:2], tmp_path / "out", pictures.source, CLASSES)
    lines = (out / "records.csv").read_bytes().split(b"\r\n")
    (out / "records.csv").write_bytes(b"\r\n".join(lines[:2]) + b"\r\n")
    with pytest.raises(BadFile, match=r"records\.csv has 1 rows, but 2 were written"):
        FOLDERS.read(out, ())
    (out / "records.csv").write_bytes(lines[0].replace(b"file", b"x") + b"\r\n" + b"\r\n".join(lines[1:3]))
    with pytest.raises(BadFile, match=r"no column 'file'"):
        FOLDERS.read(out, ())


def test_files_of_our_names_from_elsewhere_are_just_files(pictures: Pictures) -> None:
    pictures.add("dog/1.png", 1)
    (pictures.root / "records.csv").write_text("a,b\n", encoding="utf-8")
    (pictures.root / "classes.json").write_text('{"dog": 1}', encoding="utf-8")
    loaded = FOLDERS.read(pictures.root, ())
    assert told(loaded.records) == {("1.png", "dog", "label")}
    assert [problem.split(":")[0] for problem in loaded.problems] == ["classes.json", "records.csv"]


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="holds no class folder with images"):
        FOLDERS.read(tmp_path, ())


def test_an_image_moved_to_another_class_folder_is_relabelled_and_keeps_its_path(
    records: list[Record], pictures: Pictures, tmp_path: Path
) -> None:
    out = FOLDERS.write(records[:1], tmp_path / "out", pictures.source, CLASSES)
    (out / "a_b").mkdir()
    (out / "zebra" / "1.png").rename(out / "a_b" / "renamed.png")
    loaded = FOLDERS.read(out, ())
    assert loaded.records == [Record("a/1.png", "a/b", sha256=records[0].sha256)]  # nobody has signed this one
    assert loaded.problems == []


def test_an_image_added_to_an_export_is_read_and_one_taken_out_is_told(
    records: list[Record], pictures: Pictures, tmp_path: Path
) -> None:
    out = FOLDERS.write(records[:2], tmp_path / "out", pictures.source, CLASSES)
    (out / "test" / "zebra" / "1.png").write_bytes(b"another image")
    (out / "train" / "zebra" / "1.png").unlink()
    (out / "train" / "zebra" / "new.png").write_bytes(b"new")
    loaded = FOLDERS.read(out, ())
    assert [(record.path, record.annotator) for record in loaded.records] == [("b/1.png", "ann"), ("new.png", "")]
    assert loaded.problems == ["train/zebra/1.png: listed in records.csv, but not there"]


def test_an_image_on_which_people_differ_lies_in_both_folders_and_agreement_makes_one_copy(
    pictures: Pictures, tmp_path: Path
) -> None:
    pictures.add("1.png", 1)
    records = [Record("1.png", label, annotator=who) for label, who in (("a", "x"), ("b", "y"), ("a", "z"))]
    out = FOLDERS.write(records, tmp_path / "out", pictures.source, ("a", "b"))
    assert sorted(p.relative_to(out).as_posix() for p in out.rglob("*.png")) == ["a/1.png", "b/1.png"]
    assert in_order(FOLDERS.read(out, ()).records) == in_order(records)


def test_an_export_with_a_split_is_a_pool(pictures: Pictures, tmp_path: Path) -> None:
    for number in range(6):
        pictures.add(f"{number}.png", number)
    records = [Record(f"{n}.png", "ab"[n % 2], split="test" if n > 3 else "train") for n in range(6)]
    out = FOLDERS.write(records, tmp_path / "out", pictures.source, ("a", "b"))
    pool = folder_pool(out, size=4)
    assert (pool.train.class_names, len(pool.train), len(pool.test)) == (("a", "b"), 4, 2)


def test_class_folders_are_names_that_every_file_system_takes_and_no_two_alike() -> None:
    odd = [
        "/",
        "\\",
        "a" * 200,
        "é" * 200,
        "é" * 199 + "è",
        "nul",
        "NUL.txt",
        ".hidden",
        "x.",
        "x ",
        "X",
        "-",
        "'",
        '"',
    ]
    homes = class_folders(odd + list(CLASSES))
    assert len({folded(home) for home in homes.values()}) == len(odd) + len(CLASSES)
    for home in homes.values():
        assert 0 < len(home.encode()) <= 200
        assert not set(home) & set('/\\:*?"<>|')
        assert home == home.rstrip(". ")
        assert not home.startswith(".")
        assert home.lower().split(".")[0] not in ("con", "nul", "aux", "prn")


def test_a_name_that_is_fine_stays_as_it_is() -> None:
    for name in ("cat", "été ✓", "tabby cat", "n01440764", "条"):
        assert safe_name(name) == name


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("a/b.JPEG", ("b", ".JPEG")),
        ("a/no ending", ("no ending", "")),
        ("a/.png", ("_png", "")),
        ("x.tar.gz", ("x.tar", ".gz")),
        ("x.a b", ("x.a b", "")),
        ("x. ", ("x", "")),
    ],
)
def test_a_file_name_is_taken_apart(path: str, parts: tuple[str, str]) -> None:
    assert stem_and_ending(path) == parts
