"""Models of a campaign: versions, checksums, and the same model again from the ledger where its files are lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailwise.campaign.choosing import RoundOptions, next_round
from tailwise.campaign.features import embed
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.models import checksum_of, fault_of, load, model_folder, newest_model, predict
from tailwise.campaign.rounds import find_model, list_models
from tailwise.errors import BadFile, BadInput, UnknownName
from tailwise.learners import make_learner

MakeStudio = Callable[..., Any]


def trained(make_studio: MakeStudio, **settings: object) -> Any:  # noqa: ANN401 - a Studio
    """Two rounds, each by a model of its own; the third class has no label in the first."""
    studio = make_studio({"a": 20, "b": 20, "c": 10}, noise=25, **settings)
    studio.say([1, 2, 3, 21, 22, 23])
    next_round(studio.campaign, RoundOptions(8))
    studio.say_round()
    studio.say([41, 42])
    next_round(studio.campaign, RoundOptions(8))
    return studio


def weights(model: Any) -> bytes:  # noqa: ANN401 - a head
    return b"".join(np.ascontiguousarray(tensor).tobytes() for _, tensor in sorted(model.tensors().items()))


def test_a_model_is_that_of_the_labels_known_to_it_over_the_classes_in_its_row(make_studio: MakeStudio) -> None:
    studio = trained(make_studio)
    row = list_models(studio.ledger)[0]
    assert (row.labels, row.class_ids, row.learner) == (6, (1, 2, 3), "linear")
    assert row.summary["counts"] == [3, 3, 0]
    ids = np.array([1, 2, 3, 21, 22, 23])
    features = embed(studio.ledger, ids, backbone="simple").features
    fresh = make_learner("linear").fit(features, np.array([0, 0, 0, 1, 1, 1]), classes=3, seed=0)
    assert weights(load(studio.ledger, row.version).model) == weights(fresh)


@pytest.mark.parametrize("damage", ["gone", "cut", "bit", "json", "another model"])
def test_a_lost_or_damaged_model_is_made_again_to_the_last_bit(make_studio: MakeStudio, damage: str) -> None:
    studio = trained(make_studio)
    first, second = list_models(studio.ledger)
    before, folder = weights(load(studio.ledger, first.version).model), model_folder(studio.ledger, first.version)
    studio.say([5], cls=3)  # what was said since does not count
    hurt(folder, damage, model_folder(studio.ledger, second.version))
    assert fault_of(studio.ledger, first) is not None
    again = load(studio.ledger, first.version)
    assert again.rebuilt
    assert weights(again.model) == before
    assert checksum_of(folder) == first.summary["sha256"]
    assert load(studio.ledger, first.version).rebuilt == ""


def hurt(folder: Path, damage: str, other: Path) -> None:
    tensors = next(folder.glob("*.safetensors"))
    content = bytearray(tensors.read_bytes())
    content[-5] ^= 4
    if damage in ("gone", "another model"):
        shutil.rmtree(folder)
    if damage == "another model":
        shutil.copytree(other, folder)
    elif damage == "cut":
        tensors.write_bytes(content[:100])
    elif damage == "bit":
        tensors.write_bytes(content)
    elif damage == "json":
        (folder / "model.json").write_text("{")


def test_a_reader_makes_a_lost_model_for_itself_and_writes_nothing(make_studio: MakeStudio) -> None:
    studio = trained(make_studio)
    row = newest_model(studio.ledger)
    before = weights(load(studio.ledger).model)
    shutil.rmtree(model_folder(studio.ledger, row.version))
    with Ledger.open(studio.ledger.folder, read_only=True) as reader:
        assert weights(load(reader).model) == before
    assert not model_folder(studio.ledger, row.version).exists()


def test_a_model_whose_images_and_features_are_all_gone_cannot_be_made_again(make_studio: MakeStudio) -> None:
    studio = trained(make_studio)
    row = list_models(studio.ledger)[0]
    shutil.rmtree(model_folder(studio.ledger, row.version))
    shutil.rmtree(studio.ledger.folder / "features")
    for path in [*studio.photos.glob("a-*"), *studio.photos.glob("b-*")]:
        path.unlink()
    studio.campaign.index()
    with pytest.raises(BadFile, match="none of its 6 labelled images has features any more"):
        load(studio.ledger, row.version)


def test_predictions_are_calibrated_probabilities_in_the_order_asked_for(make_studio: MakeStudio) -> None:
    studio = trained(make_studio, calibration="temperature")
    asked = np.array([50, 3, 999, 17])
    said = predict(studio.campaign, asked)
    assert said.version == newest_model(studio.ledger).version
    assert said.images.tolist() == [50, 3, 17]
    np.testing.assert_allclose(said.proba.sum(axis=1), 1, rtol=1e-5)
    one = predict(studio.ledger, np.array([17]))
    np.testing.assert_allclose(one.proba[0], said.proba[2], rtol=1e-5, atol=1e-7)
    ids, sure = said.best()
    assert set(ids.tolist()) <= {1, 2, 3}
    np.testing.assert_allclose(sure, said.proba.max(axis=1))
    raw = load(studio.ledger).model.predict_proba(embed(studio.ledger, np.array([50]), backbone="simple").features)
    assert not np.allclose(raw[0], said.proba[0], atol=1e-4)


def test_an_older_model_is_asked_by_its_version(make_studio: MakeStudio) -> None:
    studio = trained(make_studio)
    first, _ = list_models(studio.ledger)
    said = predict(studio.campaign, np.arange(1, 51), first.version)
    assert said.version == first.version
    other = load(studio.ledger, first.version)
    features = embed(studio.ledger, np.arange(1, 51), backbone="simple").features
    assert not other.model.predict_proba(features)[:, 2].any()  # it had never seen the third class
    doubt = 1 - said.proba[:, :2].max(axis=1)
    assert (said.proba[:, 2] <= doubt).all()  # which gets a share of the doubt
    assert said.proba[:, 2].all()


def test_no_images_have_no_predictions(make_studio: MakeStudio) -> None:
    said = predict(trained(make_studio).campaign, np.array([], dtype=np.int64))
    assert said.proba.shape == (0, 3)
    assert [array.tolist() for array in said.best()] == [[], []]


def test_without_a_model_it_is_said_how_to_get_one(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 4, "b": 4})
    with pytest.raises(BadInput, match="label images of at least two classes"):
        predict(studio.campaign, np.array([1]))
    with pytest.raises(UnknownName, match="no model has the version"):
        predict(studio.campaign, np.array([1]), "round-9")
    with pytest.raises(BadInput, match="cannot be the version"):
        model_folder(studio.ledger, "../up")


def test_every_round_has_a_version_of_its_own_though_nothing_was_said_since(make_studio: MakeStudio) -> None:
    studio = trained(make_studio)
    next_round(studio.campaign, RoundOptions(8, allow_unfinished=True))
    versions = [row.version for row in list_models(studio.ledger)]
    assert len(set(versions)) == 3
    assert find_model(studio.ledger, versions[1]).summary["training"] == newest_model(studio.ledger).summary["training"]
