from __future__ import annotations

from pathlib import Path

import pytest

from tailwise.campaign.answers import Answer, record, settle, undo
from tailwise.campaign.classes import retire_class
from tailwise.campaign.images import quarantine
from tailwise.campaign.ledger import Ledger, write_meta
from tailwise.campaign.rounds import Pick, open_round
from tailwise.campaign.state import Settings, read_settings, read_status, write_settings
from tailwise.errors import BadFile, BadInput, UnknownName
from tailwise.strategies.strategy import DEFAULT


def test_an_empty_campaign_counts_nothing(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "empty") as ledger:
        status = read_status(ledger)
    assert (status.images, status.usable, status.labelled, status.labels, status.rounds) == (0, 0, 0, {}, 0)
    assert (status.round, status.progress, status.annotators) == (None, None, {})


def test_everything_is_counted_from_what_is_there(ledger: Ledger) -> None:
    quarantine(ledger, [(12, "it cannot be decoded"), (11, "its file is missing")])
    with ledger.writing() as connection:
        connection.execute("UPDATE image SET duplicate_of = 1 WHERE id IN (10, 11)")
    open_round(ledger, [Pick(1), Pick(2), Pick(3)], budget=3, strategy="x")
    said: list[tuple[int, str, str, int | None]] = [
        (1, "ann", "label", 1), (1, "bob", "label", 1),  # agreed
        (2, "ann", "label", 1), (2, "bob", "label", 2),  # a conflict
        (3, "ann", "other", None), (3, "bob", "skip", None),  # none of the classes
        (4, "ann", "skip", None),  # skipped by all
        (5, "ann", "label", 1), (5, "bob", "other", None),  # settled below
        (6, "ann", "label", 3),  # of a retired class
        (7, "ann", "label", 2),  # taken back
    ]  # fmt: skip
    record(ledger, [Answer(f"key-{n:04d}", i, who, kind, c) for n, (i, who, kind, c) in enumerate(said)])
    settle(ledger, key="settle-0001", image=5, annotator="eve", class_id=2)
    settle(ledger, key="settle-0002", image=8, annotator="eve", class_id=None)
    undo(ledger, "undo-0001", "ann")
    retire_class(ledger, "eel")
    status = read_status(ledger)
    assert (status.images, status.usable, status.duplicates, status.quarantined) == (12, 9, 1, 2)
    assert (status.labelled, status.labels) == (3, {1: 1, 2: 1, 3: 1})
    assert (status.other, status.skipped, status.conflicts) == (2, 1, 1)
    assert (status.rounds, status.round and status.round.id) == (1, 1)
    assert status.progress is not None
    assert (status.progress.remaining, status.progress.answers) == (0, 6)
    assert status.annotators == {"ann": 6, "bob": 4}


def test_labels_of_images_that_cannot_be_used_are_counted_apart(ledger: Ledger) -> None:
    quarantine(ledger, [(12, "it cannot be decoded")])
    with ledger.writing() as connection:
        connection.execute("UPDATE image SET duplicate_of = 1 WHERE id = 11")
    record(ledger, [Answer(f"key-{image:04d}", image, "ann", "label", 1) for image in (1, 11, 12)])
    status = read_status(ledger)
    assert (status.usable, status.labelled, status.aside, status.labels[1]) == (10, 1, 2, 3)


def test_settings_are_the_usual_ones_until_they_are_changed(ledger: Ledger) -> None:
    assert read_settings(ledger) == Settings()
    write_settings(ledger, budget=7, blind=True)
    write_settings(ledger, name="Vögel")
    assert read_settings(ledger) == Settings(name="Vögel", budget=7, blind=True)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"bugdet": 5}, "a campaign has no setting 'bugdet'; its settings are name, backbone"),
        ({"budget": "many"}, "the setting budget is 'many'; it must be like 100"),
        ({"budget": True}, "the setting budget is True"),
        ({"budget": 0}, "the setting budget is 0; it must be a whole number ≥ 1"),
        ({"overlap": -1}, "the setting overlap is -1"),
        ({"blind": 1}, "the setting blind is 1; it must be like False"),
        ({"strategy": "a"}, "no strategy is called 'a'. Known: .*boundary.*entropy"),
        ({"strategy": "vaal"}, "'vaal' looks at pixels, .* take one of .*boundary"),
        ({"strategy": "galaxy"}, "'galaxy' reads the label of each pick"),
        ({"balance": "much"}, "balance is 'much'; it must be a number ≥ 0, 'auto'"),
        ({"learner": "resnet18"}, "one of linear, mlp, not 'resnet18'"),
    ],
)
def test_settings_that_cannot_be_are_refused(ledger: Ledger, changes: dict[str, object], says: str) -> None:
    with pytest.raises((BadInput, UnknownName), match=says):
        write_settings(ledger, **changes)
    assert read_settings(ledger) == Settings()


def test_a_campaign_keeps_the_strategy_that_its_settings_hold(ledger: Ledger) -> None:
    """Every `init` writes all settings: campaigns of version 0.1.0 hold entropy, which was its default."""
    assert read_settings(ledger).strategy == DEFAULT
    write_meta(ledger, "settings", '{"strategy": "entropy", "budget": 9}')
    assert write_settings(ledger, budget=8).strategy == "entropy"
    assert write_settings(ledger, strategy=DEFAULT) == Settings(budget=8)


def test_a_strategy_that_is_not_registered_here_stops_no_other_setting(ledger: Ledger) -> None:
    write_meta(ledger, "settings", '{"strategy": "of-my-own"}')
    assert write_settings(ledger, budget=8) == Settings(strategy="of-my-own", budget=8)


def test_settings_of_a_newer_version_are_passed_over_and_damage_is_told(ledger: Ledger) -> None:
    write_meta(ledger, "settings", '{"budget": 9, "colour": "red"}')
    assert read_settings(ledger) == Settings(budget=9)
    for damage in ("{", "[1]"):
        write_meta(ledger, "settings", damage)
        with pytest.raises(BadFile, match="cannot be read"):
            read_settings(ledger)
