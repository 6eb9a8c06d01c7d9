"""Which classes are short: against counting by hand, and the same wherever it is asked."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from decimal import ROUND_HALF_DOWN, Decimal
from typing import Any

import numpy as np
import pytest

from tailwise.campaign.answers import Answer, record
from tailwise.campaign.class_needs import class_needs, nothing_short_text, short_classes, whole_labels
from tailwise.campaign.classes import add_classes, find_class
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.overview import overview
from tailwise.campaign.rounds import Pick, current_round, open_round
from tailwise.campaign.search import hunt

MakeStudio = Callable[..., Any]


def say(ledger: Ledger, *labels: int) -> None:
    """Label the first images, in their order."""
    record(ledger, [Answer(uuid.uuid4().hex, image, "ann", "label", cls) for image, cls in enumerate(labels, start=1)])


def needs(ledger: Ledger) -> list[tuple[str, int, float, int, int]]:
    return [(one.name, one.labelled, one.target, one.wanted, one.short) for one in class_needs(ledger)]


def test_without_a_target_every_class_is_to_have_an_equal_share(ledger: Ledger) -> None:
    assert needs(ledger) == [("cat", 0, 0.0, 0, 0), ("dog", 0, 0.0, 0, 0), ("eel", 0, 0.0, 0, 0)]
    say(ledger, 1)
    assert [one.name for one in short_classes(ledger)] == ["dog", "eel"]  # 1/3 of a label, and so one label
    say(ledger, 1, 1, 1, 1, 2)
    assert needs(ledger) == [
        ("eel", 0, pytest.approx(5 / 3), 2, 2), ("dog", 1, pytest.approx(5 / 3), 2, 1),
        ("cat", 4, pytest.approx(5 / 3), 2, 0),
    ]  # fmt: skip


def test_a_part_of_a_label_is_not_missing(ledger: Ledger) -> None:
    say(ledger, 1, 1, 2, 3)  # 4/3 of a label each
    assert short_classes(ledger) == []
    assert nothing_short_text(ledger) == "No class is short of labels."


def test_the_newest_round_sets_the_target_and_one_without_a_model_equal_shares(ledger: Ledger) -> None:
    say(ledger, 1, 1, 1, 1, 2, 2)
    why = {"class_ids": [1, 2, 3], "counts": [4, 2, 0], "target": [0.2, 3.5, 5.6]}
    open_round(ledger, [Pick(7), Pick(8)], budget=2, strategy="boundary", why=why)
    add_classes(ledger, ["fox"])  # came after the round: an equal share, 6 / 4
    assert [(name, target, short) for name, _, target, _, short in needs(ledger)] == [
        ("eel", pytest.approx(5.6), 6), ("dog", 5.5, 3), ("fox", 1.5, 1), ("cat", pytest.approx(4.2), 0),
    ]  # fmt: skip
    open_round(ledger, [Pick(9)], budget=1, strategy="random", why={"class_ids": [1, 2, 3], "target": None})
    assert [(name, target) for name, _, target, _, _ in needs(ledger)] == [
        ("eel", 1.5), ("fox", 1.5), ("dog", 1.5), ("cat", 1.5),
    ]  # fmt: skip


def test_targets_become_whole_labels_as_a_decimal_rounds_them() -> None:
    for target in np.random.default_rng(0).uniform(0, 20, 200).round(1).tolist():
        literal = int(Decimal(str(target)).quantize(Decimal(1), ROUND_HALF_DOWN))
        assert whole_labels(target) == (max(1, literal) if target else 0)


def test_the_dashboard_the_list_and_the_hunt_say_the_same(make_studio: MakeStudio) -> None:
    studio = make_studio({"cat": 30, "dog": 6, "eel": 12}, spread=0.3, seed=1)
    ledger = studio.ledger
    studio.say([*range(1, 8), 31])
    for chosen in (0, 9, 7):
        if chosen:
            studio.campaign.next(chosen, allow_unfinished=True)
        shown = {one.name: one.short for one in overview(ledger).needs}
        assert {one.name: one.short for one in short_classes(ledger)} == {k: v for k, v in shown.items() if v}
        assert any(shown.values())
        for name in ("cat", "dog"):
            assert hunt(ledger, find_class(ledger, name), 1).short == shown[name]
        opened = current_round(ledger)
        if opened is not None:  # by hand, from what the round has written
            labels = Counter(row[0] for row in ledger.read("SELECT class_id FROM current_label"))
            for number, before, share in zip(*(opened.why[k] for k in ("class_ids", "counts", "target")), strict=True):
                name = {one.id: one.name for one in studio.campaign.classes()}[number]
                assert shown[name] == max(0, round(before + share - 1e-9) - labels[number])


def test_where_nothing_is_labelled_the_first_step_is_said(ledger: Ledger) -> None:
    assert "Open a round and label some images first" in nothing_short_text(ledger)
    open_round(ledger, [Pick(1)], budget=1, strategy="typiclust")
    assert nothing_short_text(ledger).startswith("Nothing is labelled yet. Label some images first")
