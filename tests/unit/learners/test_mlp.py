from __future__ import annotations

import numpy as np
import pytest

from tailwise.errors import BadInput
from tailwise.learners.mlp import Adam, Layers, MlpLearner
from tailwise.pools.datasets import load_digits


def test_the_gradient_is_that_of_the_loss() -> None:
    rng = np.random.default_rng(0)
    layers = Layers.random((3, 5, 4), rng)
    features = rng.normal(size=(30, 3)).astype(np.float32)
    places, weights = rng.integers(0, 4, 30), rng.uniform(0.5, 2, 30).astype(np.float32)

    def loss(rate: float) -> float:
        return layers.learn(features, places, weights, rate, np.random.default_rng(7))  # the same mask each time

    for rate in (0.0, 0.4):
        loss(rate)
        found = layers.gradient.copy()
        slopes = np.empty(len(found))
        for at in range(len(found)):
            kept = layers.values[at]
            sides = []
            for step in (1e-3, -1e-3):
                layers.values[at] = kept + step
                sides.append(loss(rate))
            layers.values[at] = kept
            slopes[at] = (sides[0] - sides[1]) / 2e-3
        np.testing.assert_allclose(found, slopes, atol=1e-3)


def test_adam_takes_the_steps_of_a_literal_reference() -> None:
    layers = Layers((1, 1, 1))
    layers.values[:] = start = np.array([1.0, 2.0, -3.0, 4.0])
    adam = Adam(layers, rate=0.1, weight_decay=0.5, steps=4)
    decays = np.array([0.5, 0.0, 0.5, 0.0])  # the offsets keep theirs
    values, mean, square = start.copy(), np.zeros(4), np.zeros(4)
    for step in range(4):
        gradient = np.array([1.0, -2.0, 0.5, 0.0]) * (step + 1)
        layers.gradient[:] = gradient
        adam.step()
        rate = 0.1 * 0.5 * (1 + np.cos(np.pi * step / 4))
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        values *= 1 - rate * decays
        values -= rate * mean / (1 - 0.9 ** (step + 1)) / (np.sqrt(square / (1 - 0.999 ** (step + 1))) + 1e-8)
        np.testing.assert_allclose(layers.values, values, rtol=1e-5)


def test_it_learns_what_no_linear_model_can() -> None:
    rng = np.random.default_rng(0)
    points = rng.uniform(-1, 1, size=(600, 2))
    labels = (points[:, 0] * points[:, 1] > 0).astype(np.int64)
    model = MlpLearner(width=32, rate=1e-2, weight_decay=0.0, dropout=0.1).fit(points, labels, classes=2, seed=0)
    assert (model.predict_proba(points).argmax(axis=1) == labels).mean() > 0.95


def test_it_learns_digits_it_has_not_seen() -> None:
    digits = load_digits()
    model = MlpLearner(width=64).fit(digits.inputs[:1000], digits.labels[:1000], classes=10, seed=0)
    right = model.predict_proba(digits.inputs[1000:]).argmax(axis=1) == digits.labels[1000:]
    assert right.mean() > 0.9


def test_the_embedding_is_the_hidden_layer_and_the_last_layer_acts_on_it() -> None:
    digits = load_digits().take(np.arange(200))
    model = MlpLearner(width=16, least_steps=20).fit(digits.inputs, digits.labels, classes=10, seed=0)
    hidden = model.embed(digits.inputs)
    assert hidden.shape == (200, 16)
    assert hidden.min() == 0
    powers = np.exp(hidden @ model.weights + model.offsets)
    proba = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(digits.inputs), proba, atol=1e-5)


def test_a_balanced_loss_favours_the_rare_class() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [190, 10])
    features = labels[:, None] + rng.normal(size=(200, 1))
    plain, balanced = (
        MlpLearner(width=8, class_weight=weight).fit(features, labels, classes=2, seed=0).predict_proba(features)
        for weight in ("none", "balanced")
    )
    assert balanced[:, 1].mean() > plain[:, 1].mean() + 0.2


def test_every_epoch_is_reported_and_a_small_set_gets_more_of_them() -> None:
    heard: list[tuple[float, str]] = []
    learner = MlpLearner(width=4, batch=10, epochs=2, least_steps=9)
    learner.fit(np.eye(30), np.arange(30) % 3, classes=3, seed=0, report=lambda done, what: heard.append((done, what)))
    assert [round(done, 2) for done, _ in heard] == [0.33, 0.67, 1.0]  # 3 epochs of 3 steps
    assert heard[0][1].startswith("epoch 1 of 3, loss")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"width": 0}, "width is 0"),
        ({"rate": 0.0}, "rate is 0.0"),
        ({"weight_decay": -1.0}, "weight_decay -1.0"),
        ({"class_weight": "even"}, "class_weight is 'even'"),
        ({"dropout": -0.1}, "dropout is -0.1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        MlpLearner(**settings)
