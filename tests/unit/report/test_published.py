from __future__ import annotations

import pytest

from tailwise.report.names import Condition, Method, published_gain, published_gains

CB = Method("entropy", "auto", "entropy-cb")


def test_every_number_of_the_three_tables_is_there() -> None:
    found = published_gains()
    assert len(found) == 24 * 4
    assert found["cifar10", 1.0, "entropy-cb", 3] == -0.15
    assert found["cifar100", 0.3, "vaal-cb", 4] == 3.29
    assert found["tinyimagenet", 0.1, "bald-cb", 1] == 0.31


@pytest.mark.parametrize(
    ("pool", "learner", "cycle", "share", "points", "same"),
    [
        ("cifar10", "resnet18", 2, 0.20, 0.86, True),
        ("cifar10", "resnet10", 2, 0.20, 0.86, False),
        ("cifar10", "resnet18", 2, 0.04, 0.86, False),
        ("cifar10_features", "linear", 2, 0.20, 0.86, False),
        ("cifar10-features", "resnet18", 2, 0.20, 0.86, False),
        ("tiny-imagenet", "resnet101", 1, 0.15, 0.48, True),
    ],
)
def test_numbers_stand_beside_ours_and_another_setting_is_marked(
    pool: str, learner: str, cycle: int, share: float, points: float, same: bool
) -> None:
    found = published_gain(Condition(pool, learner, "step 0.1", 0.1), CB, cycle, share)
    assert found is not None
    assert (found.points, found.same_setting) == (points, same)


@pytest.mark.parametrize(
    ("condition", "method", "cycle"),
    [
        (Condition("digits", "linear", "step 0.1", 0.1), CB, 1),
        (Condition("tinyimagenet_features (first 100)", "linear", "step 0.1", 0.1), CB, 1),
        (Condition("cifar10", "resnet18", "exponential 0.1", 0.1), CB, 1),
        (Condition("cifar10", "resnet18", "step 0.2", 0.2), CB, 1),
        (Condition("cifar10", "resnet18", "step 0.1", 0.1), CB, 5),
        (Condition("cifar10", "resnet18", "step 0.1", 0.1), Method("entropy", "0", "entropy"), 1),
        (Condition("cifar10", "resnet18", "step 0.1", 0.1), Method("margin", "auto", "margin-cb"), 1),
    ],
)
def test_what_the_paper_does_not_print_has_no_number(condition: Condition, method: Method, cycle: int) -> None:
    assert published_gain(condition, method, cycle, 0.15) is None
