from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tailwise.errors import BadFile, BadInput
from tailwise.pools.folder import Files, list_images
from tailwise.pools.folder import test_counts as counts_to_test
from tailwise.pools.pool import Pool, load_pool


def save(path: Path, shade: int = 100, kind: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (12, 10), (shade, shade, shade)).save(path, kind)
    return path


def names(pool: Pool) -> tuple[list[str], list[str]]:
    """Names of the training and of the test images, told by their shades: each image has its own."""
    return tuple(  # type: ignore[return-value]
        [
            f"{label}:{image[0, 0, 0]}"
            for label, image in zip(half.labels, half.inputs[np.arange(len(half))], strict=True)
        ]
        for half in (pool.train, pool.test)
    )


def reasons(pool: Pool) -> dict[str, str]:
    return {Path(bad.path).name: bad.reason for bad in pool.bad}


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Ten cats and five dogs, each of its own shade."""
    root = tmp_path / "pets"
    for number in range(10):
        save(root / "cat" / f"{number}.png", number)
    for number in range(5):
        save(root / "dog" / "deep" / f"{number}.bmp", 100 + number)
    return root


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    return {str(f): (f.stat().st_mtime_ns, f.read_bytes()) for f in sorted(root.rglob("*")) if f.is_file()}


def test_class_folders_become_classes_and_a_stratified_split(pets: Path) -> None:
    before = snapshot(pets)
    pool = load_pool("folder", pets, size=8)
    assert pool.name == "pets"
    assert pool.train.class_names == ("cat", "dog")
    assert (pool.train.counts().tolist(), pool.test.counts().tolist()) == ([8, 4], [2, 1])
    assert pool.train.inputs.shape == (12, 8, 8, 3)
    assert pool.bad == ()
    train, test = names(pool)
    assert sorted(train + test) == sorted([f"0:{n}" for n in range(10)] + [f"1:{n}" for n in range(100, 105)])
    assert snapshot(pets) == before


def test_the_split_depends_on_its_seed_alone(pets: Path) -> None:
    one, again, other = (names(load_pool("folder", pets, size=4, seed=seed)) for seed in (0, 0, 3))
    assert one == again != other


@pytest.mark.parametrize("tested", ["test", "val"])
def test_a_given_split_is_kept_and_classes_are_those_of_both(tmp_path: Path, tested: str) -> None:
    save(tmp_path / "train" / "cat" / "a.png", 1)
    save(tmp_path / "train" / "dog" / "a.png", 2)
    save(tmp_path / tested / "dog" / "a.png", 3)
    save(tmp_path / tested / "eel" / "a.png", 4)
    pool = load_pool("folder", tmp_path, size=4)
    assert pool.train.class_names == pool.test.class_names == ("cat", "dog", "eel")
    assert names(pool) == (["0:1", "1:2"], ["1:3", "2:4"])


def test_train_can_be_the_name_of_a_class(tmp_path: Path) -> None:
    for name in ("train", "tram"):
        for number in range(2):
            save(tmp_path / name / f"{number}.png", number)
    assert load_pool("folder", tmp_path).train.class_names == ("train", "tram")


def test_three_split_folders_are_ambiguous(tmp_path: Path) -> None:
    for name in ("train", "val", "test"):
        save(tmp_path / name / "cat" / "a.png")
    with pytest.raises(BadFile, match="has test, train, val; it must have train and test"):
        load_pool("folder", tmp_path)


def test_an_empty_class_folder_is_a_class_without_images(pets: Path) -> None:
    (pets / "ant").mkdir()
    pool = load_pool("folder", pets)
    assert pool.train.class_names == ("ant", "cat", "dog")
    assert pool.train.counts().tolist() == [0, 8, 4]


def test_bad_files_are_reported_with_reasons_and_left_out(pets: Path, tmp_path: Path) -> None:
    cat = pets / "cat"
    whole = save(tmp_path / "whole.jpg").read_bytes()
    (cat / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (cat / "empty.png").touch()
    (cat / "drawing.svg").write_text("<svg/>", encoding="ascii")
    (cat / "page.jpg").write_text("<html>not found</html>", encoding="ascii")
    (pets / "stray.txt").write_text("hello", encoding="ascii")
    (cat / ".hidden.png").write_text("hidden files are passed over", encoding="ascii")
    (cat / "Thumbs.db").touch()
    os.mkfifo(cat / "pipe.png")
    save(cat / "really_a_png.jpg", 77, "PNG")  # a wrong suffix is no fault
    for verify in ("header", "decode"):
        pool = load_pool("folder", pets, verify=verify)
        assert len(pool.train) + len(pool.test) == 16
        told = reasons(pool)
        assert set(told) == {"cut.jpg", "empty.png", "drawing.svg", "page.jpg", "stray.txt", "pipe.png"}
        assert "cannot be decoded" in told["cut.jpg"]
        assert told["empty.png"] == "the file is empty"
        assert "SVG or HTML" in told["drawing.svg"]
        assert "SVG or HTML" in told["page.jpg"]
        assert told["stray.txt"] == "not in a class folder"
        assert told["pipe.png"] == "not a regular file"


def test_links_out_of_the_folder_are_refused_and_links_inside_are_kept(pets: Path, tmp_path: Path) -> None:
    secret = save(tmp_path / "secret.png", 200)
    save(tmp_path / "others" / "x.png", 201)
    (pets / "cat" / "out.png").symlink_to(secret)
    (pets / "cat" / "up.png").symlink_to("../../secret.png")
    (pets / "cat" / "folder").symlink_to(tmp_path / "others")
    (pets / "linked").symlink_to(tmp_path / "others")
    (pets / "cat" / "gone.png").symlink_to(pets / "nothing.png")
    (pets / "cat" / "loop.png").symlink_to("loop.png")
    (pets / "dog" / "inside.png").symlink_to("../cat/3.png")
    pool = load_pool("folder", pets, size=4)
    assert reasons(pool) == {
        "out.png": "it leads out of the folder",
        "up.png": "it leads out of the folder",
        "folder": "it leads out of the folder",
        "linked": "a linked folder, which is not followed",
        "gone.png": "no such file",
        "loop.png": "a link that leads nowhere",
    }
    assert "1:3" in [*names(pool)[0], *names(pool)[1]]
    assert pool.train.class_names == ("cat", "dog")


def test_damage_that_the_header_hides_is_found_by_decoding(pets: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (50, 50, 3), dtype=np.uint8)
    Image.fromarray(noise).save(pets / "cat" / "noisy.png")
    content = bytearray((pets / "cat" / "noisy.png").read_bytes())
    content[len(content) // 2] ^= 0xFF
    (pets / "cat" / "noisy.png").write_bytes(content)
    assert reasons(load_pool("folder", pets, verify="decode")).keys() == {"noisy.png"}
    pool = load_pool("folder", pets)
    assert pool.bad == ()
    with pytest.raises(BadFile, match=r"cannot use the image .*noisy\.png"):
        names(pool)


def write_csv(root: Path, text: str, name: str = "labels.csv") -> Path:
    (root / name).write_text(text, encoding="utf-8")
    return root / name


@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_a_csv_gives_labels_and_splits(pets: Path, bom: str) -> None:
    table = write_csv(
        pets,
        f'{bom}path,label,split,note\ncat/3.png,"big, soft",train,x\n./cat/1.png,b,test,\ndog/deep/0.bmp,b,train,\n',
    )
    for place in (pets, table):
        pool = load_pool("folder", place, size=4)
        assert pool.train.class_names == ("b", "big, soft")
        assert names(pool) == (["1:3", "0:100"], ["0:1"])


def test_a_csv_that_was_written_on_windows_names_the_same_files(tmp_path: Path) -> None:
    for name in ("in/a.png", "in/b.png", "out/c.png", "out/d.png"):
        save(tmp_path / name)
    listed = [
        list_images(write_csv(tmp_path, f"path,label\nin{slash}a.png,x\nout{slash}.{slash}c.png,y\n")).entries
        for slash in ("/", "\\")
    ]
    assert [entry.name for entry in listed[0]] == ["in/a.png", "out/c.png"]
    assert listed[0] == listed[1]


def test_a_csv_without_splits_is_split_by_chance(pets: Path) -> None:
    rows = "".join(f"cat/{number}.png,{number % 2}\n" for number in range(10))
    pool = load_pool("folder", write_csv(pets, "path,label\n" + rows, "mine.csv"), test_share=0.4)
    assert (pool.name, pool.train.counts().tolist(), pool.test.counts().tolist()) == ("mine", [3, 3], [2, 2])


def test_paths_of_a_csv_may_not_leave_its_folder(pets: Path, tmp_path: Path) -> None:
    secret = save(tmp_path / "secret.png")
    (pets / "away").symlink_to(tmp_path)
    rows = f"cat/1.png,a\n../secret.png,a\n{secret},a\naway/secret.png,a\ncat/none.png,b\ncat,b\ndog/../cat/2.png,a\n"
    pool = load_pool("folder", write_csv(pets, "path,label\n" + rows), size=4)
    assert [bad.reason for bad in pool.bad] == ["it leads out of the folder"] * 3 + ["no such file", "a folder"]
    assert sorted([*names(pool)[0], *names(pool)[1]]) == ["0:1", "0:2"]
    assert pool.train.class_names == ("a", "b")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no column 'label'"),
        ("file,label\nx,y\n", "has no column 'path'"),
        ("path,label\ncat/1.png,\n", "row 2, has no label"),
        ("path,label\n,cat\n", "row 2, has no path"),
        ("path,label\ncat/1.png,a\n./cat/1.png,b\n", r"names cat/1\.png in rows 2 and 3"),
        ("path,label,split\ncat/1.png,a,dev\n", "row 2, has the split 'dev'"),
        ("path,label,split\ncat/1.png,a,train\ncat/2.png,a\n", "row 3, has the split ''"),
        ("path,label\n", "holds no usable image"),
        ("path,label\nnone.png,a\n", r"holds no usable image.*1 faults: .*none\.png: no such file"),
    ],
)
def test_a_bad_csv_is_refused_with_its_row(pets: Path, text: str, says: str) -> None:
    write_csv(pets, text)
    with pytest.raises(BadFile, match=says):
        load_pool("folder", pets)


def test_a_csv_that_is_no_text_is_refused(pets: Path) -> None:
    (pets / "labels.csv").write_bytes(b"path,label\n\xff\xfe,x\n")
    with pytest.raises(BadFile, match="cannot be read as CSV in UTF-8"):
        load_pool("folder", pets)


def test_names_in_any_language_are_kept(tmp_path: Path) -> None:
    for name in ("Füchse", "狐", "a b=c"):
        save(tmp_path / name / "ü 1.png")
        save(tmp_path / name / "ü 2.png")
    assert load_pool("folder", tmp_path).train.class_names == tuple(sorted(["Füchse", "狐", "a b=c"]))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"size": 0}, "size is 0"),
        ({"test_share": 1.0}, "test_share is 1"),
        ({"verify": "hope"}, "verify is 'hope'"),
        ({"sise": 3}, "has no setting 'sise'; its settings are size, test_share, seed, verify, report"),
    ],
)
def test_impossible_settings_are_refused(pets: Path, settings: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        load_pool("folder", pets, **settings)


def test_a_folder_that_is_not_there_or_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="needs a path"):
        load_pool("folder")
    with pytest.raises(BadFile, match="no folder at"):
        load_pool("folder", tmp_path / "none")
    with pytest.raises(BadFile, match="holds no usable image; put them into one folder per class"):
        load_pool("folder", tmp_path)


def test_nothing_is_tested_on_where_nothing_is_asked_for(pets: Path) -> None:
    pool = load_pool("folder", pets, test_share=0.0)
    assert (len(pool.train), len(pool.test)) == (15, 0)


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.99])
def test_both_sides_have_every_class_that_has_two(share: float) -> None:
    counts = np.arange(1, 60)
    tested = counts_to_test(counts, share)
    assert tested[0] == 0
    assert (tested[1:] >= 1).all()
    assert (counts - tested >= 1).all()
    assert (np.abs(tested - share * counts) <= 1).all()


def test_checking_reports_its_progress_and_ends_its_threads(pets: Path) -> None:
    reported: list[tuple[float, str]] = []
    before = threading.active_count()
    load_pool("folder", pets, report=lambda *at: reported.append(at))
    assert reported[0] == (0.0, "checking 15 images")
    assert threading.active_count() == before


def test_images_are_decoded_when_asked_for_not_before(pets: Path) -> None:
    pool = load_pool("folder", pets, size=4)
    inputs = pool.train.inputs.inputs  # type: ignore[attr-defined]
    assert isinstance(inputs, Files)
    for file in (pets / "cat").iterdir():
        save(file, 222)  # decoded before, the old shades would be remembered
    assert {int(image[0, 0, 0]) for image in pool.train.inputs[np.arange(8)]} == {222}
