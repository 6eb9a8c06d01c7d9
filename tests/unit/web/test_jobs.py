"""What a child has chosen is taken over by the server: what people said meanwhile comes first, nothing half is left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tailwise.campaign.features import embed
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.models import model_folder
from tailwise.campaign.rounds import current_round, list_rounds, round_picks
from tailwise.campaign.service import Campaign
from tailwise.errors import BadInput, PoolExhausted, TailwiseError
from tailwise.web import schemas
from tailwise.web.jobs import (
    PREDICTIONS_FILE,
    ChosenRound,
    JobFailed,
    JobProcess,
    ModelPredictions,
    Unfinished,
    adopt_round,
    check_request,
    job_folder,
    remove_left_over,
    run_task,
)

COLOURS = ((220, 40, 40), (40, 220, 40), (40, 40, 220))


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[Campaign]:
    """Thirty images of three colours, nine of them labelled."""
    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    for number in range(30):
        pixels = rng.normal(COLOURS[number % 3], 30, (24, 24, 3)).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number:02}.png")
    settings = {"backbone": "simple", "budget": 6}
    with Campaign.create(tmp_path / "campaign", tmp_path / "images", ["r", "g", "b"], **settings) as made:
        for number in range(9):
            made.label(f"{number:02}.png", 1 + number % 3)
        yield made


def chosen_in(campaign: Campaign, **wishes: object) -> tuple[ChosenRound, ModelPredictions | None]:
    """What a child does, done here: its process is tried in tests/web."""
    with job_folder(campaign.ledger) as folder:
        result = run_task({"folder": str(folder), "choose": wishes})
        with Ledger.open(folder, read_only=True) as copy:
            found = ChosenRound.read(copy, result["round"])
        version = result["version"]
        return found, ModelPredictions.read(folder / PREDICTIONS_FILE, version) if version else None


def test_the_round_of_the_copy_is_opened_in_the_ledger(campaign: Campaign) -> None:
    found, guessed = chosen_in(campaign)
    assert list_rounds(campaign.ledger) == []
    opened = adopt_round(campaign.ledger, found, schemas.Next())
    assert round_picks(campaign.ledger, opened.id) == list(found.picks)
    assert (opened.budget, opened.strategy, opened.why) == (found.round.budget, found.round.strategy, found.round.why)
    assert opened.model_version is not None
    assert model_folder(campaign.ledger, opened.model_version).is_dir()
    assert guessed is not None
    assert len(guessed.ids) == 30
    assert [len(guessed.top(pick.image)) for pick in found.picks] == [3] * 6


def test_the_features_that_a_child_makes_are_kept_for_the_next(campaign: Campaign) -> None:
    chosen_in(campaign)
    assert embed(campaign.ledger, backbone="simple").made == 0


def test_images_that_were_answered_meanwhile_are_left_out(campaign: Campaign) -> None:
    found, _ = chosen_in(campaign)
    first, *others = found.picks
    path = campaign.ledger.read("SELECT path FROM image WHERE id = ?", (first.image,))[0][0]
    campaign.label(path, 1)
    opened = adopt_round(campaign.ledger, found, schemas.Next())
    assert round_picks(campaign.ledger, opened.id) == others


def test_when_all_were_answered_meanwhile_nothing_is_opened_and_the_model_is_removed(campaign: Campaign) -> None:
    found, _ = chosen_in(campaign)
    for pick in found.picks:
        campaign.label(campaign.ledger.read("SELECT path FROM image WHERE id = ?", (pick.image,))[0][0], 1)
    with pytest.raises(PoolExhausted):
        adopt_round(campaign.ledger, found, schemas.Next())
    assert list_rounds(campaign.ledger) == []
    assert found.model is not None
    assert not model_folder(campaign.ledger, found.model.version).exists()


def test_a_round_that_was_opened_meanwhile_stays_open(campaign: Campaign) -> None:
    found, _ = chosen_in(campaign)
    other = campaign.next(4, strategy="random")
    with pytest.raises(Unfinished):
        adopt_round(campaign.ledger, found, schemas.Next())
    current = current_round(campaign.ledger)
    assert current is not None
    assert current == other.round


def test_images_that_a_child_cannot_read_go_into_quarantine_here(campaign: Campaign, tmp_path: Path) -> None:
    (tmp_path / "images" / "29.png").write_bytes(b"damaged")
    found, _ = chosen_in(campaign)
    assert campaign.status().quarantined == 0
    adopt_round(campaign.ledger, found, schemas.Next())
    assert campaign.status().quarantined == 1
    assert campaign.ledger.read("SELECT path FROM image WHERE trouble IS NOT NULL")[0][0] == "29.png"


def test_the_copy_is_removed_and_the_campaigns_files_are_not(campaign: Campaign) -> None:
    (campaign.folder / "features").mkdir(exist_ok=True)
    (campaign.folder / "features" / "kept").write_text("x")
    with job_folder(campaign.ledger) as folder:
        assert folder.parent == campaign.folder  # whose features and models the child uses
        assert folder.is_dir()
    assert not folder.exists()
    assert (campaign.folder / "features" / "kept").read_text() == "x"


def test_a_child_trains_into_the_campaigns_own_folders_without_links(campaign: Campaign) -> None:
    chosen_in(campaign)
    made = [path for path in campaign.folder.rglob("*.safetensors") if not path.is_symlink()]
    assert {path.relative_to(campaign.folder).parts[0] for path in made} >= {"models"}
    assert not any(path.is_symlink() for path in campaign.folder.rglob("*"))


def test_what_a_killed_server_left_is_removed_without_the_campaigns_files(campaign: Campaign) -> None:
    entered = job_folder(campaign.ledger)
    folder = entered.__enter__()
    (campaign.folder / "models").mkdir(exist_ok=True)
    (campaign.folder / "models" / "kept").write_text("x")
    assert remove_left_over(campaign.ledger) == 1
    assert not folder.exists()
    assert (campaign.folder / "models" / "kept").read_text() == "x"
    assert remove_left_over(campaign.ledger) == 0
    entered.__exit__(None, None, None)


@pytest.mark.parametrize(
    "wish", [{"strategy": "nonsense"}, {"strategy": "galaxy"}, {"strategy": "vaal", "balance": "x"}, {"balance": -1.0}]
)
def test_wishes_that_cannot_be_are_refused_before_anything_starts(campaign: Campaign, wish: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        check_request(campaign.ledger, schemas.Next.model_validate(wish))


def test_wishes_that_can_be_pass(campaign: Campaign) -> None:
    for wish in ({}, {"strategy": "random"}, {"balance": "none"}, {"balance": "auto"}, {"balance": 2, "budget": 3}):
        check_request(campaign.ledger, schemas.Next.model_validate(wish))


def test_a_child_that_was_killed_before_it_had_its_task_is_named_with_the_signal(tmp_path: Path) -> None:
    child = JobProcess()
    child.process.kill()
    child.process.wait()
    with pytest.raises(JobFailed, match="signal 9" if os.name == "posix" else "code 1"):
        child.run({"folder": str(tmp_path), "choose": {}}, lambda *_: None)


def test_a_child_that_cannot_work_says_why(tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="no campaign in"):
        JobProcess().run({"folder": str(tmp_path), "choose": {}}, lambda *_: None)
    with pytest.raises(TailwiseError, match=r"ended with code 1.*KeyError"):
        JobProcess().run({"nonsense": 1}, lambda *_: None)
