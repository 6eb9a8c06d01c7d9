"""Flags and comments: kept once per key, never changed, harmless whatever people write."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailwise.campaign.images import list_images
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.notes import MOST_COMMENT, add_note, list_notes
from tailwise.errors import BadInput, UnknownName

if TYPE_CHECKING:
    from .conftest import Studio

KEY = "note-key-1"


def image(ledger: Ledger, at: int = 0) -> str:
    return list_images(ledger)[at].key


def test_notes_come_in_their_order_with_author_and_time(ledger: Ledger) -> None:
    add_note(ledger, image(ledger), "comment", "blurred", annotator="ada")
    add_note(ledger, image(ledger, 1), "flag", annotator="bob")
    add_note(ledger, image(ledger), "flag", annotator="bob")
    found = list_notes(ledger)
    assert [(one.annotator, one.kind, one.text) for one in found] == [
        ("ada", "comment", "blurred"),
        ("bob", "flag", ""),
        ("bob", "flag", ""),
    ]
    assert [one.at for one in found] == sorted(one.at for one in found)
    assert [one.kind for one in list_notes(ledger, image(ledger))] == ["comment", "flag"]


def test_the_last_flag_or_unflag_of_an_image_counts(ledger: Ledger) -> None:
    for kind in ("flag", "unflag", "flag"):
        add_note(ledger, image(ledger), kind)
    for kind in ("flag", "unflag"):
        add_note(ledger, image(ledger, 1), kind)
    add_note(ledger, image(ledger, 2), "comment", "fine")
    assert {one.image for one in list_notes(ledger, flagged=True)} == {image(ledger)}


def test_the_same_key_is_the_same_note(ledger: Ledger) -> None:
    first = add_note(ledger, image(ledger), "comment", "dark", annotator="ada", key=KEY)
    again = add_note(ledger, image(ledger), "comment", "dark", annotator="ada", key=KEY)
    assert (first.id, first.at, first.fresh) == (again.id, again.at, True)
    assert not again.fresh
    assert len(list_notes(ledger)) == 1
    for change in ({"text": "light"}, {"annotator": "bob"}):
        with pytest.raises(BadInput, match="used for another note"):
            add_note(ledger, image(ledger), "comment", **{"text": "dark", "annotator": "ada", "key": KEY} | change)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("nice\u202egnp.exe", "nicegnp.exe"),
        ("a\x00b\x1b[2Jc", "ab[2Jc"),
        ("half \ud800 pair", "half  pair"),
        ("one\r\ntwo\u2028three\tfour", "one\ntwo\nthree\tfour"),
        ("  cafe\u0301  ", "café"),
        ("حيوان 👩‍🔬", "حيوان 👩‍🔬"),
        ("x" * MOST_COMMENT, "x" * MOST_COMMENT),
    ],
)
def test_what_people_write_is_kept_as_text_without_what_cannot_be_shown(ledger: Ledger, text: str, kept: str) -> None:
    add_note(ledger, image(ledger), "comment", text)
    assert [one.text for one in list_notes(ledger)] == [kept]


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("comment", "x" * 10_000, "10,000 characters; at most 2,000"),
        ("comment", " \n\u202e\x00", "the comment is empty"),
        ("flag", "why", "flag has no text"),
        ("delete", "", "must be flag, unflag or comment"),
    ],
)
def test_a_note_that_cannot_be_is_refused(ledger: Ledger, kind: str, text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        add_note(ledger, image(ledger), kind, text)
    assert list_notes(ledger) == []


def test_a_note_needs_an_image_a_name_and_a_sound_key(ledger: Ledger) -> None:
    with pytest.raises(UnknownName, match="not an image of this campaign"):
        add_note(ledger, "0" * 16, "flag")
    with pytest.raises(BadInput, match="annotator name"):
        add_note(ledger, image(ledger), "flag", annotator="a\u202eb")
    with pytest.raises(BadInput, match="the key"):
        add_note(ledger, image(ledger), "flag", key="short")


@pytest.mark.parametrize(
    "sql",
    ["UPDATE note SET text = 'x'", "DELETE FROM note", "INSERT OR REPLACE INTO note SELECT * FROM note"],
)
def test_notes_are_never_changed(ledger: Ledger, sql: str) -> None:
    add_note(ledger, image(ledger), "comment", "kept")
    with pytest.raises(sqlite3.IntegrityError, match="notes are added"), ledger.writing() as connection:
        connection.execute(sql)
    assert [one.text for one in list_notes(ledger)] == ["kept"]


def test_a_table_has_flags_and_comments_where_there_are_some(
    make_studio: Callable[..., Studio], tmp_path: Path
) -> None:
    studio = make_studio({"cat": 2, "dog": 2})
    studio.say([1, 2, 3])
    plain = studio.campaign.export(tmp_path / "plain.csv").read_text(encoding="utf-8").splitlines()
    assert not {"flagged", "comments"} & set(plain[0].split(","))
    paths = [image.path for image in list_images(studio.ledger)[:3]]
    studio.campaign.flag(paths[0])
    studio.campaign.flag(paths[1])
    studio.campaign.flag(paths[1], flagged=False)
    studio.campaign.comment(paths[1], "=1+1", annotator="ada")
    studio.campaign.comment(paths[1], "dark", annotator="bob")
    out = studio.campaign.export(tmp_path / "noted.csv")
    with out.open(encoding="utf-8", newline="") as file:
        rows = {row["path"]: (row["flagged"], row["comments"]) for row in csv.DictReader(file)}
    assert rows == {paths[0]: ("yes", ""), paths[1]: ("", "ada: =1+1\nbob: dark"), paths[2]: ("", "")}
    again = studio.campaign.import_labels(out, dry_run=True)  # such a table is read as any other
    assert not again.problems
