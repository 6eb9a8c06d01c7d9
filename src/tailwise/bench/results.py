"""The results of an experiment as tidy rows: one per trial and cycle, with all that a figure needs.

A cycle's row describes the model trained on what was labelled then, and the batch that was chosen with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One cycle of one trial. Cycle 0 is the model on the initial set, shared by all strategies of a seed."""

    experiment: str
    pool: str
    setting: str  # such as "step 0.1", "exponential 0.01", "balanced"
    imbalance: float
    learner: str
    strategy: str  # such as "entropy"
    balance: str  # "0", "auto", "paper", "0.6", "within 5%"
    seed: int
    cycle: int
    labelled: int  # M
    share: float  # M over the size of the original training set
    accuracy: float  # on the test set, 0 to 1
    adjusted_accuracy: float  # the same after dividing the softmax by the classes' shares among all images
    balanced_accuracy: float
    tail_accuracy: float  # on the classes of the tail; NaN where there is no tail
    l1_score: float  # of the labelled set
    recalls: tuple[float, ...]  # (C,)
    counts: tuple[int, ...]  # (C,) labelled so far
    pool_counts: tuple[int, ...]  # (C,) true classes of what is not labelled yet
    # the batch chosen with this model; empty and NaN in the last cycle
    picks: int
    lam: float
    gap: float
    informativeness: float
    l1: float  # distance of the expected counts from the target
    batch_l1_score: float  # L1 score of the batch, by true classes
    expected: tuple[float, ...]  # (C,) expected counts of the batch
    realised: tuple[int, ...]  # (C,) true counts of the batch
    temperature: float  # 1 where not calibrated
    seconds_fit: float
    seconds_predict: float  # what the strategy asks about the pool: softmax, embeddings, passes, VAAL's nets
    seconds_select: float  # from there to the batch
    version: str
    status: str = ""  # of the batch's certificate; only after "time limit" do the picks depend on the machine's speed
    settings: str = ""  # of the strategy, such as "parts=4"; empty where all are the defaults
    seconds_calibrate: float = math.nan  # fitting the calibration on folds of the labelled set
    seconds_test: float = math.nan  # scoring the test set
    adjusted_balanced_accuracy: float = math.nan  # mean recall of the adjusted decisions; NaN in older results

    @property
    def method(self) -> str:
        """The strategy's name, "-cb" behind it where it is balanced."""
        return self.strategy if self.balance == "0" else f"{self.strategy}-cb"
