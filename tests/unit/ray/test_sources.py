"""Pools on the disk as shards and blocks: folders and Parquet, with everything that such files get wrong."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from tailwise.errors import BadFile, BadInput
from tailwise.inference.pipeline import decode_block
from tailwise.inference.sources import BLOCK, Picture, Source, open_source

from .conftest import BAD, encoded, picture

PNG = encoded(picture(0, np.random.default_rng(0)))


def pictures(source: Source) -> list[list[Picture]]:
    """What each shard holds, whose blocks must fill it in order."""
    found = []
    for shard in source.shards():
        blocks = [block for piece in shard.pieces for block in source.blocks(piece)]
        assert {block.shard for block in blocks} <= {shard.number}
        ends = [block.start + len(block.pictures) for block in blocks]
        assert [block.start for block in blocks] == [0, *ends][: len(blocks)]
        assert ends[-1:] == ([shard.rows] if shard.rows else [])
        found.append([one for block in blocks for one in block.pictures])
    return found


def write(path: Path, column: pyarrow.Array, name: str = "image", **settings: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table({"label": list(range(len(column))), name: column}), path, **settings)
    return path


def test_a_folder_is_cut_into_runs_of_its_images_by_name(photos: Path) -> None:
    shards = pictures(open_source(photos, shard_size=70))
    assert [len(shard) for shard in shards] == [70, 70, 13]
    names = [one.name for shard in shards for one in shard]
    expected = sorted(
        path.relative_to(photos).as_posix()
        for path in photos.rglob("*")
        if path.suffix in (".png", ".jpg") and path.name[0] != "."
    )
    assert names == expected
    assert set(names) >= BAD


def test_the_blocks_of_a_shard_do_not_depend_on_its_pieces(photos: Path) -> None:
    source = open_source(photos, shard_size=150)
    first = source.shards()[0]
    sizes = [len(block.pictures) for piece in first.pieces for block in source.blocks(piece)]
    assert sizes == [BLOCK, BLOCK, 150 - 2 * BLOCK]


def test_a_shard_has_another_fingerprint_once_an_image_of_it_changed(tmp_path: Path) -> None:
    for name in ("a.png", "b.png", "c.png"):
        (tmp_path / name).write_bytes(PNG)

    def prints() -> list[str]:
        return [shard.fingerprint for shard in open_source(tmp_path, shard_size=2).shards()]

    before = prints()
    os.utime(tmp_path / "a.png", ns=(0, 0))
    touched = prints()
    (tmp_path / "c.png").write_bytes(PNG + b"\0")
    grown = prints()
    assert touched[0] != before[0]
    assert touched[1] == before[1]
    assert grown[0] == touched[0]
    assert grown[1] != touched[1]


def test_bad_images_have_reasons_and_good_ones_pixels(photos: Path) -> None:
    source = open_source(photos)
    blocks = [decode_block(b, 16) for shard in source.shards() for piece in shard.pieces for b in source.blocks(piece)]
    assert sum(len(block.names) for block in blocks) == 150
    assert {tuple(block.pixels.shape[1:]) for block in blocks} == {(16, 16, 3)}
    bad = {image.path: image.reason for block in blocks for image in block.bad}
    assert set(bad) == BAD
    assert bad["empty.jpg"] == "the file is empty"
    assert "it is no JPEG, PNG" in bad["broken.png"]
    assert "cannot be decoded" in bad["été/cut.jpg"]


def test_a_link_out_of_the_folder_is_a_bad_image(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link.png").symlink_to(next(photos.glob("*.png")))
    source = open_source(tmp_path / "in")
    (block,) = source.blocks(source.shards()[0].pieces[0])
    decoded = decode_block(block, 8)
    assert [image.path for image in decoded.bad] == ["link.png"]
    assert decoded.pixels.shape == (0, 8, 8, 3)


def test_a_folder_that_went_away_is_no_thousand_bad_images(tmp_path: Path) -> None:
    folder = tmp_path / "mount"
    folder.mkdir()
    (folder / "a.png").write_bytes(PNG)
    source = open_source(folder)
    piece = source.shards()[0].pieces[0]
    folder.rename(tmp_path / "away")
    with pytest.raises(BadFile, match="is not there; on a cluster every machine must see the images there"):
        list(source.blocks(piece))


def test_an_image_that_went_away_is_bad(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    source = open_source(tmp_path)
    piece = source.shards()[0].pieces[0]
    (tmp_path / "a.png").unlink()
    (block,) = source.blocks(piece)
    assert decode_block(block, 8).bad[0].reason == "it cannot be read (No such file or directory)"


def test_the_layout_of_hugging_face(tmp_path: Path) -> None:
    cells = [{"bytes": PNG, "path": "x.png"}, {"bytes": PNG, "path": None}, {"bytes": None, "path": "beside.png"}, None]
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    write(tmp_path / "train-0.parquet", pyarrow.array(cells, kind))
    (tmp_path / "beside.png").write_bytes(PNG)
    (shard,) = pictures(open_source(tmp_path / "train-0.parquet"))
    assert [one.name for one in shard] == [f"train-0.parquet#{row}" for row in range(4)]
    assert [one.path for one in shard] == ["x.png", "", "beside.png", ""]
    assert [one.content for one in shard] == [PNG, PNG, tmp_path / "beside.png", "the row has no image"]


def test_plain_bytes_over_row_groups_and_files_in_order(tmp_path: Path) -> None:
    rows = [PNG + bytes([number]) for number in range(150)]
    write(tmp_path / "b" / "1.parquet", pyarrow.array(rows[100:], pyarrow.large_binary()), row_group_size=20)
    write(tmp_path / "a.parquet", pyarrow.array(rows[:100], pyarrow.binary()), row_group_size=70)
    write(tmp_path / "c.parquet", pyarrow.array([], pyarrow.binary()))
    (tmp_path / "_temporary").mkdir()
    write(tmp_path / "_temporary" / "d.parquet", pyarrow.array(rows[:1], pyarrow.binary()))
    source = open_source(tmp_path)
    first, second, empty = pictures(source)
    assert [one.content for one in first + second] == rows
    assert [second[0].name, second[-1].name] == ["b/1.parquet#0", "b/1.parquet#49"]
    assert empty == []
    blocks = [[len(b.pictures) for b in source.blocks(piece)] for piece in source.shards()[0].pieces]
    assert blocks == [[64, 6], [30]]


def test_paths_start_beside_the_table_or_at_a_root_and_never_lead_out(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(PNG)
    (tmp_path / "secret.png").write_bytes(PNG)
    inside = str(tmp_path / "images" / "a.png")
    column = pyarrow.array(["a.png", "../secret.png", inside, ""])
    table = write(tmp_path / "tables" / "t.parquet", column, "file_name")
    (shard,) = pictures(open_source(table, root=tmp_path / "images"))
    found = tmp_path / "images" / "a.png"
    assert [isinstance(one.content, Path) for one in shard] == [True, False, True, False]
    assert (shard[0].content, shard[2].content, shard[3].content) == (found, found, "the row has no image")
    assert "leads out of" in str(shard[1].content)
    (beside,) = pictures(open_source(table))
    assert "give the folder of the images as --root" in str(beside[2].content)


@pytest.mark.parametrize("nested", [False, True])
def test_a_shard_has_another_fingerprint_once_a_file_that_its_table_names_changed(nested: bool, tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(PNG)
    cells = [{"bytes": None, "path": "a.png"}, {"bytes": PNG, "path": "b.png"}] if nested else ["a.png", "b.png"]
    source = open_source(write(tmp_path / "t.parquet", pyarrow.array(cells), "image"))
    before = source.shards()[0].fingerprint
    assert source.shards()[0].fingerprint == before
    (tmp_path / "a.png").write_bytes(PNG + b"more")
    changed = source.shards()[0].fingerprint
    assert changed != before
    (tmp_path / "a.png").unlink()
    assert source.shards()[0].fingerprint not in (before, changed)


def test_the_column_is_found_or_asked_for(tmp_path: Path) -> None:
    table = pyarrow.table({"path": ["x"], "thumb": [PNG], "image": [PNG]})
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(BadInput, match="several columns that may be the images: thumb, image; choose with --column"):
        open_source(tmp_path / "t.parquet")
    assert open_source(tmp_path / "t.parquet", column="thumb").description["column"] == "thumb"
    with pytest.raises(BadInput, match="no column 'picture' of images or paths; those that can be: path, thumb, image"):
        open_source(tmp_path / "t.parquet", column="picture")
    parquet.write_table(pyarrow.table({"label": [1], "weight": [0.5]}), tmp_path / "n.parquet")
    with pytest.raises(BadFile, match="no column of encoded images or of paths; its columns are label, weight"):
        open_source(tmp_path / "n.parquet")


def test_a_table_that_was_cut_is_told_before_any_work(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pyarrow.array([PNG], pyarrow.binary()))
    whole = write(tmp_path / "b.parquet", pyarrow.array([PNG] * 9, pyarrow.binary())).read_bytes()
    (tmp_path / "b.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadFile, match=r"b\.parquet cannot be read as Parquet"):
        open_source(tmp_path).shards()


def test_a_table_that_lacks_the_column_is_told(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pyarrow.array([PNG], pyarrow.binary()))
    write(tmp_path / "b.parquet", pyarrow.array([PNG], pyarrow.binary()), "photo")
    with pytest.raises(BadInput, match=r"b\.parquet has no column 'image'"):
        open_source(tmp_path).shards()


def test_what_is_no_pool_is_refused(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"nothing at .*; name a folder of images, a Parquet file or a folder of them"):
        open_source(tmp_path / "absent")
    (tmp_path / "a.png").write_bytes(PNG)
    with pytest.raises(BadFile, match=r"neither a folder of images nor a \.parquet file"):
        open_source(tmp_path / "a.png")
    write(tmp_path / "t.parquet", pyarrow.array([PNG], pyarrow.binary()))
    with pytest.raises(BadFile, match="holds images and 1 Parquet files; name a folder that holds one kind"):
        open_source(tmp_path)
    with pytest.raises(BadInput, match="shard_size is 0; it must be at least 1"):
        open_source(photos, shard_size=0)
    with pytest.raises(BadInput, match="a column and a root of paths belong to Parquet"):
        open_source(photos, column="image")
