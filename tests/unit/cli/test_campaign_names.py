from __future__ import annotations

from pathlib import Path

import pytest

from tailwise.cli.campaign_commands import class_names, folder_of
from tailwise.cli.data_commands import ClassChanges, pair_of, split_shares
from tailwise.cli.output import WrongUsage
from tailwise.errors import BadFile, BadInput


def test_names_of_classes_come_from_both_options_in_order(tmp_path: Path) -> None:
    file = tmp_path / "classes.txt"
    file.write_text("kite, red\r\n\r\n  heron \n", encoding="utf-8")
    assert class_names("owl, Cafe\u0301", file) == ("owl", "Café", "kite, red", "heron")
    assert class_names(None, None) == ()


@pytest.mark.parametrize("text", ["", ",", "owl,", "owl, ,kite", "owl,OWL", "Stra\u00dfe,STRASSE", "a\x00b"])
def test_empty_double_and_invisible_names_are_refused(text: str) -> None:
    with pytest.raises(BadInput):
        class_names(text, None)


def test_a_name_in_both_options_is_named_twice(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("Owl\n")
    with pytest.raises(BadInput, match="named twice"):
        class_names("owl", tmp_path / "classes.txt")


def test_a_file_is_no_folder_of_a_campaign(tmp_path: Path) -> None:
    (tmp_path / "a-file").write_text("")
    with pytest.raises(BadFile, match="is a file"):
        folder_of(tmp_path / "a-file")
    assert folder_of(tmp_path / "absent") == tmp_path.resolve() / "absent"


@pytest.mark.parametrize(
    ("text", "pair"), [("a=b", ("a", "b")), (" a = b=c ", ("a", "b=c")), ("a b=c d", ("a b", "c d"))]
)
def test_a_pair_is_split_at_the_first_sign(text: str, pair: tuple[str, str]) -> None:
    assert pair_of(text, "--rename") == pair


@pytest.mark.parametrize("text", ["", "a", "=b", "a=", " = "])
def test_half_a_pair_is_refused(text: str) -> None:
    with pytest.raises(WrongUsage, match="--rename is"):
        pair_of(text, "--rename")


@pytest.mark.parametrize("text", ["", "half", "train=", "train=x", "a=0.5,a=0.5", "train=0.5,,test=0.5"])
def test_a_split_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(WrongUsage, match="--split is"):
        split_shares(text)


def test_no_change_of_classes_is_a_question() -> None:
    assert not ClassChanges()
    assert ClassChanges(restore=("owl",))
