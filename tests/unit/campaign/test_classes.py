from __future__ import annotations

import pytest

from tailwise.campaign.answers import Answer, counts, record
from tailwise.campaign.classes import (
    add_classes,
    add_example,
    describe_class,
    edit_class,
    find_class,
    list_classes,
    list_examples,
    move_class,
    remove_example,
    rename_class,
    retire_class,
    set_hotkey,
)
from tailwise.campaign.images import list_images
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


# Order, keys and guidelines.


def test_every_move_gives_the_order_of_a_list(ledger: Ledger) -> None:
    add_classes(ledger, ["fox", "gnu"])
    retire_class(ledger, "eel")  # retired ones are passed over, and stay where they are
    order = ["cat", "dog", "fox", "gnu"]
    for name, place in (("gnu", 1), ("cat", 4), ("dog", 2), ("fox", 3), ("fox", 3), ("gnu", 2), ("cat", 1)):
        order.remove(name)
        order.insert(place - 1, name)
        move_class(ledger, name, place)
        assert names(ledger) == order
    assert find_class(ledger, "eel").position == 2
    assert sorted(one.position for one in list_classes(ledger, retired=True)) == [0, 1, 2, 3, 4]
    assert changes(ledger)[-1] == ("move", "4", "1")
    assert [one for one in changes(ledger) if one[0] == "move"].count(("move", "3", "3")) == 0  # nothing was moved
    assert add_classes(ledger, ["hen"])[0].position == 5


@pytest.mark.parametrize("place", [0, 4, -1, True, "2", 1.0])
def test_a_place_that_is_not_there_is_refused(ledger: Ledger, place: int) -> None:
    with pytest.raises(BadInput, match="a whole number from 1 to 3"):
        move_class(ledger, "dog", place)
    retire_class(ledger, "eel")
    with pytest.raises(BadInput, match="retired"):
        move_class(ledger, "eel", 1)
    assert names(ledger) == ["cat", "dog"]


@pytest.mark.parametrize(("key", "kept"), [("k", "k"), (" Q ", "q"), (";", ";"), ("ы", "ы"), ("Ω", "ω"), ("", None)])
def test_a_class_gets_a_key_of_its_own(ledger: Ledger, key: str, kept: str | None) -> None:
    assert set_hotkey(ledger, "dog", key).hotkey == kept
    assert find_class(ledger, "dog").hotkey == kept


@pytest.mark.parametrize(
    ("key", "says"),
    [
        *[(one, "is a command of the page") for one in "abcdefgilmnoprstuxz?/"],
        ("U", "is a command of the page"),
        ("1", "digits go by place"),
        ("é", "share a key with a digit"),
        ("!", "share a key with a digit"),
        ("-", "share a key with a digit"),
        ("\u202e", "cannot be a class's own"),
        ("kk", "one character"),
        ("x" * 10_000, "one character"),
        (None, "one character"),
    ],
)
def test_a_key_that_means_something_else_is_refused(ledger: Ledger, key: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        set_hotkey(ledger, "dog", key)
    assert find_class(ledger, "dog").hotkey is None


def test_a_key_belongs_to_one_class_in_use(ledger: Ledger) -> None:
    set_hotkey(ledger, "cat", "k")
    with pytest.raises(BadInput, match="'k' belongs to the class 'cat'"):
        set_hotkey(ledger, "dog", "K")
    retire_class(ledger, "cat")
    set_hotkey(ledger, "dog", "k")
    assert retire_class(ledger, "cat", restore=True).hotkey is None
    assert find_class(ledger, "dog").hotkey == "k"
    assert changes(ledger)[-1] == ("hotkey", "k", None)


def test_a_description_is_kept_as_text(ledger: Ledger) -> None:
    assert (
        describe_class(ledger, "cat", "  Purrs.\r\n<b>Not</b> a lion\u202e ").description == "Purrs.\n<b>Not</b> a lion"
    )
    assert describe_class(ledger, "cat", "").description == ""
    assert [one for one in changes(ledger) if one[0] == "describe"] == [
        ("describe", "", "Purrs.\n<b>Not</b> a lion"),
        ("describe", "Purrs.\n<b>Not</b> a lion", ""),
    ]
    with pytest.raises(BadInput, match="10,000 characters; at most 2,000"):
        describe_class(ledger, "cat", "x" * 10_000)


def test_examples_are_added_and_removed_and_limited(ledger: Ledger) -> None:
    keys = [one.key for one in list_images(ledger)]
    add_example(ledger, "cat", keys[1])
    add_example(ledger, "cat", keys[0])
    add_example(ledger, "cat", keys[0])  # once is enough
    add_example(ledger, "dog", keys[0])
    assert [one.key for one in list_examples(ledger, 1)] == [keys[1], keys[0]]
    remove_example(ledger, "cat", keys[1])
    with pytest.raises(BadInput, match="is not an example"):
        remove_example(ledger, "cat", keys[1])
    assert [(one.class_id, one.key) for one in list_examples(ledger)] == [(1, keys[0]), (2, keys[0])]
    assert [one for one in changes(ledger) if "example" in one[0]] == [
        ("add-example", None, keys[1]),
        ("add-example", None, keys[0]),
        ("add-example", None, keys[0]),
        ("remove-example", keys[1], None),
    ]
    with pytest.raises(UnknownName, match="not an image"):
        add_example(ledger, "cat", "nowhere.png")


def test_an_edit_changes_all_that_is_given_or_nothing(ledger: Ledger) -> None:
    keys = [one.key for one in list_images(ledger)]
    edit_class(ledger, "eel", description="long", place=1, hotkey="v", examples=keys[:2])
    assert names(ledger) == ["eel", "cat", "dog"]
    assert [one.key for one in list_examples(ledger, 3)] == keys[:2]
    before = changes(ledger)
    with pytest.raises(BadInput, match="command of the page"):
        edit_class(ledger, "eel", description="short", place=3, hotkey="u")
    assert (find_class(ledger, "eel").description, names(ledger)[0], changes(ledger)) == ("long", "eel", before)
    edit_class(ledger, "eel", hotkey="", examples=[keys[1]])
    assert (find_class(ledger, "eel").hotkey, [one.key for one in list_examples(ledger, 3)]) == (None, [keys[1]])
