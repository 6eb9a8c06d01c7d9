"""Ledgers of released versions open for ever: one file per version below data/, made by that version.

The file of 0.1.0 holds a campaign with 40 images, an import, two rounds, the answers of ada and bob, a settled image,
an undo, a skip, a renamed class ("kite" → "red kite") and a retired one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailwise import Campaign
from tailwise.errors import OlderLedger

LEDGER = Path(__file__).with_name("data") / "ledger-0.1.0" / "campaign.sqlite"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(LEDGER, tmp_path)
    return tmp_path


@pytest.fixture
def campaign(folder: Path) -> Iterator[Campaign]:
    with Campaign.open(folder) as opened:
        yield opened


def test_status(campaign: Campaign) -> None:
    status = campaign.status()
    assert campaign.name == "birds"
    assert (status.images, status.usable, status.duplicates, status.quarantined) == (40, 38, 1, 1)
    assert (status.labelled, status.conflicts, status.rounds) == (16, 1, 2)
    assert status.labels == {1: 5, 2: 6, 3: 5, 4: 0}
    assert status.annotators == {"ada": 11, "archive": 6, "bob": 11}
    assert status.progress is not None
    assert (status.progress.done, status.progress.remaining) == (5, 1)


def test_labels_have_the_new_name_of_their_class(campaign: Campaign) -> None:
    labels = campaign.labels()
    assert len(labels) == 16
    assert labels["owl-00.png"] == "owl"
    assert labels["kite-11.png"] == "red kite"
    assert labels["owl-05.png"] == "owl"  # settled
    assert "owl-12.png" not in labels  # ada and bob disagree
    assert "owl-09.png" not in labels  # undone


def test_classes(campaign: Campaign) -> None:
    assert [one.name for one in campaign.classes()] == ["owl", "red kite", "heron"]
    assert [one.name for one in campaign.classes(retired=True) if one.retired] == ["gull"]


def test_rounds(campaign: Campaign) -> None:
    first, second = campaign.rounds()
    assert (first.budget, first.strategy, first.seed, second.seed) == (6, "boundary", 1, 2)
    assert first.closed_at == second.opened_at
    assert second.closed_at is None
    assert second.why["gap"] == 0.0
    assert second.why["labels"] == 12


def test_agreement(campaign: Campaign) -> None:
    agreement = campaign.agreement()
    assert agreement.alpha.value == pytest.approx(5 / 7)
    (pair,) = agreement.pairs
    assert (pair.first, pair.second) == ("ada", "bob")
    assert pair.kappa.value == pytest.approx(12 / 17)


def test_the_ledger_takes_new_labels_and_undo(campaign: Campaign) -> None:
    campaign.label("owl-09.png", "owl", annotator="ada")
    assert campaign.labels()["owl-09.png"] == "owl"
    assert campaign.undo("ada") is not None
    assert "owl-09.png" not in campaign.labels()


def test_the_labels_are_exported(campaign: Campaign, tmp_path: Path) -> None:
    out = campaign.export(tmp_path / "labels.csv")
    text = out.read_text(encoding="utf-8")
    assert text.count("red kite") >= 6


def test_reading_it_alone_asks_to_bring_it_up_to_date(folder: Path) -> None:
    before = LEDGER.read_bytes()
    with pytest.raises(OlderLedger, match="open the campaign for writing once"):
        Campaign.open(folder, read_only=True)
    assert (folder / LEDGER.name).read_bytes() == before
    Campaign.open(folder).close()
    with Campaign.open(folder, read_only=True) as opened:
        assert len(opened.labels()) == 16


def test_doctor_finds_the_ledger_sound(campaign: Campaign) -> None:
    faults = {finding.name for finding in campaign.doctor()}
    assert not faults & {"ledger", "references", "settings", "schema"}
