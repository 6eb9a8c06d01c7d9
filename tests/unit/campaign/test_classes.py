from __future__ import annotations

import pytest

from tailwise.campaign.answers import Answer, counts, record
from tailwise.campaign.classes import (
    add_classes,
    find_class,
    list_classes,
    rename_class,
    retire_class,
)
from tailwise.campaign.ledger import Ledger
from tailwise.errors import BadInput, UnknownName


def names(ledger: Ledger, *, retired: bool = False) -> list[str]:
    return [one.name for one in list_classes(ledger, retired=retired)]


def changes(ledger: Ledger) -> list[tuple[str, str | None, str]]:
    return [tuple(row) for row in ledger.read("SELECT what, old, new FROM class_event ORDER BY id")]


def test_classes_keep_the_order_in_which_they_came(ledger: Ledger) -> None:
    added = add_classes(ledger, ["  Ärmelkanal 🦈 "])[0]
    assert (added.name, added.position, added.retired) == ("Ärmelkanal 🦈", 3, False)
    assert names(ledger) == ["cat", "dog", "eel", "Ärmelkanal 🦈"]
    assert find_class(ledger, "DOG") == find_class(ledger, 2)


def test_a_name_is_kept_in_one_normal_form(ledger: Ledger) -> None:
    assert add_classes(ledger, ["cafe\u0301"])[0].name == "café"
    with pytest.raises(BadInput, match="there already"):
        add_classes(ledger, ["CAFÉ"])


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "is empty"),
        (" \t\n", "is empty"),
        ("\u200b\u200d", "is empty"),
        ("x" * 201, "has 201 characters; at most 200"),
        ("a" * 10_000, "has 10000 characters"),
        ("cat\nfish", "U\\+000A"),
        ("cat\x00", "U\\+0000"),
        ("nice\u202egnp.exe", "U\\+202E"),
        ("a\u2066b", "U\\+2066"),
        ("bad \udc80 bytes", "U\\+DC80"),
        ("two\u2028lines", "U\\+2028"),
        ("Cat", "'cat' is there already; names must differ by more than their case"),
        ("straSSe", None),
    ],
)
def test_names_that_cannot_be_are_refused(ledger: Ledger, name: str, says: str | None) -> None:
    add_classes(ledger, ["straße elsewhere"])
    if says is None:
        assert add_classes(ledger, [name])[0].name == name
        return
    with pytest.raises(BadInput, match=says):
        add_classes(ledger, [name])
    assert names(ledger) == ["cat", "dog", "eel", "straße elsewhere"]


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "حيوان", "x" * 200, "'; DROP TABLE class; --", "-1", "👩‍🔬"]
)
def test_odd_names_are_names(ledger: Ledger, name: str) -> None:
    assert find_class(ledger, add_classes(ledger, [name])[0].name).name == name


def test_of_several_classes_all_are_added_or_none(ledger: Ledger) -> None:
    with pytest.raises(BadInput, match="'fox' is there already"):
        add_classes(ledger, ["fox", "gnu", "FOX"])
    assert names(ledger) == ["cat", "dog", "eel"]
    assert [one.position for one in add_classes(ledger, ["fox", "gnu"])] == [3, 4]
    assert add_classes(ledger, []) == []


def test_labels_stay_with_a_class_through_all_its_names(ledger: Ledger) -> None:
    record(ledger, [Answer("answer-1", 1, "ann", "label", 2)])
    renamed = rename_class(ledger, "dog", "wolf")
    assert (renamed.id, renamed.name, renamed.position) == (2, "wolf", 1)
    assert counts(ledger)[2] == 1
    assert rename_class(ledger, "wolf", "Wolf").name == "Wolf"
    with pytest.raises(BadInput, match="'cat' is there already"):
        rename_class(ledger, "Wolf", "CAT")
    with pytest.raises(BadInput, match="is empty"):
        rename_class(ledger, "Wolf", " ")
    assert names(ledger) == ["cat", "Wolf", "eel"]
    assert add_classes(ledger, ["dog"])[0].id == 4  # the name is free again


def test_a_retired_class_keeps_its_labels_and_comes_back(ledger: Ledger) -> None:
    record(ledger, [Answer("answer-1", 1, "ann", "label", 2)])
    assert retire_class(ledger, "dog").retired
    assert names(ledger) == ["cat", "eel"]
    assert names(ledger, retired=True) == ["cat", "dog", "eel"]
    assert counts(ledger)[2] == 1
    with pytest.raises(BadInput, match="'dog' is there and retired; restore it"):
        add_classes(ledger, ["Dog"])
    record(ledger, [Answer("answer-2", 2, "ann", "label", 2)])  # an answer that was under way is not lost
    assert not retire_class(ledger, 2, restore=True).retired
    assert (names(ledger), counts(ledger)[2]) == (["cat", "dog", "eel"], 2)


def test_every_change_is_kept_and_no_change_is_none(ledger: Ledger) -> None:
    rename_class(ledger, "cat", "lynx")
    rename_class(ledger, "lynx", "lynx")
    retire_class(ledger, "lynx")
    retire_class(ledger, "lynx")
    retire_class(ledger, "lynx", restore=True)
    retire_class(ledger, "lynx", restore=True)
    assert changes(ledger) == [
        ("add", None, "cat"),
        ("add", None, "dog"),
        ("add", None, "eel"),
        ("rename", "cat", "lynx"),
        ("retire", "lynx", "lynx"),
        ("restore", "lynx", "lynx"),
    ]


def test_an_unknown_class_is_told_with_the_known_ones(ledger: Ledger) -> None:
    for verb in (lambda: find_class(ledger, "cow"), lambda: retire_class(ledger, "cow"), lambda: find_class(ledger, 9)):
        with pytest.raises(UnknownName, match=r"no class is called .*; the classes are cat, dog, eel"):
            verb()
