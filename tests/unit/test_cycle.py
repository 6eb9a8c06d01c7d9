"""One cycle: the strategy gets what it needs, the model stays as it is, the numbers are those of the definition."""

from __future__ import annotations

import numpy as np
import pytest

from tailwise.cycle import Asking, choose, class_shares, fit, mark, predict
from tailwise.errors import BadInput
from tailwise.learners import make_learner
from tailwise.pools.pool import LabelledImages
from tailwise.strategies import make


@pytest.fixture(scope="module")
def images() -> LabelledImages:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=300)
    inputs = (np.eye(3, 6)[labels] * 2 + rng.normal(size=(300, 6))).astype(np.float32)
    return LabelledImages(inputs, labels.astype(np.int64), ("a", "b", "c", "never seen"))


def test_only_what_a_strategy_needs_is_asked_for(images: LabelledImages) -> None:
    labelled, pool = images.take(np.arange(40)), images.take(np.arange(40, 300)).inputs
    model = fit(make_learner("linear"), labelled, seed=0)
    bare = predict(("proba",), model, labelled, pool, asking=Asking(), seed=0)
    assert (bare.embeddings, bare.mc_proba, bare.labelledness) == (None, None, None)
    full = predict(("proba", "embeddings", "mc_proba"), model, labelled, pool, asking=Asking(passes=3), seed=0)
    assert full.embeddings is not None
    assert full.labelled_embeddings is not None
    assert full.mc_proba is not None
    assert len(full.embeddings) == 260
    assert len(full.labelled_embeddings) == 40
    assert full.mc_proba.shape == (3, 260, 4)
    with pytest.raises(BadInput, match="needs 'gradients'"):
        predict(("gradients",), model, labelled, pool, asking=Asking(), seed=0)


def test_a_net_that_gives_probabilities_and_embeddings_sees_each_image_once() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 8, 8, 3), dtype=np.uint8)
    labelled = LabelledImages(pixels[:10], np.arange(10) % 3, ("a", "b", "c"))
    model = fit(make_learner("resnet10", epochs=1, width=2), labelled, seed=0)
    seen: list[int] = []
    stem = model.net.conv1.register_forward_hook(lambda _net, given, _out: seen.append(len(given[0])))  # type: ignore[attr-defined]
    asked = predict(("proba", "embeddings"), model, labelled, pixels[10:], asking=Asking(), seed=0)
    stem.remove()
    assert sum(seen) == 20 + 10  # the pool, and the labelled images
    np.testing.assert_array_equal(asked.proba, model.predict_proba(pixels[10:]))


def test_marks_are_those_of_the_definition_and_a_class_without_test_images_has_none(images: LabelledImages) -> None:
    model = fit(make_learner("linear"), images.take(np.arange(40)), seed=0)
    test = images.take(np.arange(40, 300))
    marks = mark(model, test)
    said = np.asarray(model.predict_proba(test.inputs)).argmax(axis=1)
    assert marks.accuracy == np.mean(said == test.labels)
    by_hand = [np.mean(said[test.labels == cls] == cls) for cls in range(3)]
    assert marks.recalls[:3].tolist() == by_hand
    assert np.isnan(marks.recalls[3])
    assert marks.balanced_accuracy == pytest.approx(np.mean(by_hand))


def test_adjusted_decisions_divide_the_softmax_by_the_class_shares(images: LabelledImages) -> None:
    labelled, test = images.take(np.arange(40)), images.take(np.arange(40, 300))
    model = fit(make_learner("linear"), labelled, seed=0)
    assert np.isnan(mark(model, test).adjusted_accuracy)
    shares = np.array([0.9, 0.06, 0.04, 0.0])
    proba = np.asarray(model.predict_proba(test.inputs), np.float64)
    by_hand = (proba[:, :3] / shares[:3]).argmax(axis=1)
    marks = mark(model, test, shares)
    assert marks.adjusted_accuracy == np.mean(by_hand == test.labels)
    assert marks.adjusted_accuracy != marks.accuracy
    assert np.isnan(mark(model, test).adjusted_balanced_accuracy)
    recalls = [np.mean(by_hand[test.labels == cls] == cls) for cls in range(3)]
    assert marks.adjusted_balanced_accuracy == pytest.approx(np.mean(recalls))
    assert marks.adjusted_balanced_accuracy != pytest.approx(marks.adjusted_accuracy)


def test_class_shares_count_labels_as_they_are_and_the_rest_by_softmax(images: LabelledImages) -> None:
    labelled = images.take(np.arange(40))
    proba = np.array([[0.5, 0.25, 0.25, 0.0]] * 8)
    shares = class_shares(labelled, proba)
    assert shares == pytest.approx((labelled.counts() + np.array([4, 2, 2, 0])) / 48)


@pytest.mark.parametrize("name", ["random", "entropy", "kcenter", "bald"])
@pytest.mark.parametrize("balance", [0.0, 1.0])
@pytest.mark.parametrize("calibration", ["none", "both"])
def test_a_batch_is_chosen_while_one_class_has_no_label(
    images: LabelledImages, name: str, balance: float, calibration: str
) -> None:
    labelled, pool = images.take(np.arange(40)), images.take(np.arange(40, 300)).inputs
    learner = make_learner("linear")
    model = fit(learner, labelled, seed=0)
    before = model.predict_proba(pool)
    chosen = [
        choose(
            make(name, balance=balance), learner, model, labelled, pool, 20, asking=Asking(calibration), seed=3
        ).selection.indices
        for _ in range(2)
    ]
    assert len(set(chosen[0].tolist())) == 20
    assert chosen[0].tolist() == chosen[1].tolist()
    assert np.array_equal(model.predict_proba(pool), before)
