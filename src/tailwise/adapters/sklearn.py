"""scikit-learn and skorch: `predict(estimator, X)`. scikit-activeml: `balanced_query` and `BalancedSampling`.

A class that an estimator has not seen has probability 0 in its own column. Estimators are also learners: give one to
`Campaign.next(learner=…)`, or name its class in an experiment file ("sklearn.ensemble:RandomForestClassifier").
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import BadFile, BadInput, MissingExtra
from ..inputs import shown, whole_number
from ..learners.learner import Learner, Model, check_labels, fill_classes, make_learner
from ..pools.pool import Inputs, read_all
from ..selection import Selection
from ..strategies.select import select
from ..strategies.strategy import DEFAULT, make
from ..types import FloatArray, IntArray, Predictions, Progress, no_progress

if TYPE_CHECKING:
    from ..solver.path import Balance

ARGUMENTS_OF_FIT = ("classes", "seed", "report", "checkpoint")  # behind inputs and labels


def predict(
    estimator: object,
    X: ArrayLike,
    *,
    classes: int | Sequence[Hashable] | None = None,
    labelled: tuple[ArrayLike, ArrayLike] | None = None,
    embeddings: bool = False,
) -> Predictions:
    """Ask a fitted estimator with `predict_proba`: of scikit-learn, skorch or your own.

    Parameters
    ----------
    X: the pool, as the estimator takes it.
    classes: all classes, in the order of the columns, or their number where they are 0, 1, 2 and so on; those that the
        estimator has not seen get probability 0. None: those that it has seen.
    labelled: X and y of labelled images; fills `labelled_proba`, `labelled_labels` and, with `embeddings`,
        `labelled_embeddings`.
    embeddings: take the numbers that go into the last step of a pipeline; of other estimators, X itself.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> fitted = LogisticRegression().fit([[0.0], [1.0]], ["kite", "owl"])
    >>> predict(fitted, [[0.5]], classes=["heron", "kite", "owl"]).proba.round(3).tolist()
    [[0.0, 0.5, 0.5]]
    """
    order = _all_classes(estimator, classes)
    proba = _proba(estimator, X, order)
    pool = _inputs_of_last_step(estimator, X) if embeddings else None
    if labelled is None:
        return Predictions(proba, pool)
    known, labels = labelled
    return Predictions(
        proba, pool, _inputs_of_last_step(estimator, known) if embeddings else None,
        labelled_proba=_proba(estimator, known, order), labelled_labels=_places(labels, order),
    )  # fmt: skip


def _all_classes(estimator: Any, classes: int | Sequence[Hashable] | None) -> list[Hashable]:  # noqa: ANN401 - by duck
    """The classes in the order of the columns."""
    if not callable(getattr(estimator, "predict_proba", None)):
        raise BadInput(
            f"{shown(type(estimator).__name__)} has no predict_proba; give an estimator that has, for instance "
            "CalibratedClassifierCV(estimator) of scikit-learn"
        )
    if isinstance(classes, int | np.integer):
        return list(range(whole_number(classes, "classes", least=1)))
    seen = getattr(estimator, "classes_", None)
    if classes is None and seen is None:
        raise BadInput("the estimator has no classes_: fit it first, or give classes=, all of them in order")
    return np.asarray(seen).tolist() if classes is None else list(classes)


def _proba(estimator: Any, X: object, order: list[Hashable]) -> FloatArray:  # noqa: ANN401 - by duck
    given = estimator.predict_proba(X)
    if isinstance(given, list):
        raise BadInput(
            f"predict_proba gives {len(given)} arrays, one per output; fit the estimator on one output alone"
        )
    seen = getattr(estimator, "classes_", None)
    places = np.arange(len(order)) if seen is None else _places(seen, order)
    return fill_classes(given, places, len(order))


def _places(values: ArrayLike, order: list[Hashable]) -> IntArray:
    """Where classes stand among all classes, (n,)."""
    place = {one: number for number, one in enumerate(order)}
    given = np.asarray(values).tolist()
    unknown = [one for one in given if one not in place]
    if unknown:
        raise BadInput(f"the class {shown(unknown[0])} is not among classes, which are {shown(order)}; add it there")
    return np.array([place[one] for one in given], dtype=np.int64)


def _inputs_of_last_step(estimator: Any, X: Any) -> FloatArray:  # noqa: ANN401 - whatever the estimator takes
    steps = getattr(estimator, "steps", None)
    given = estimator[:-1].transform(X) if isinstance(steps, list) and len(steps) > 1 else X
    dense = given.toarray() if hasattr(given, "toarray") else np.asarray(given)
    if dense.dtype.kind not in "biuf":
        raise BadInput(f"X holds {dense.dtype.name}, which cannot be embeddings; leave embeddings=True out")
    flat: FloatArray = dense.reshape(len(dense), -1).astype(np.float32, copy=False)
    return flat


# -- learners ---------------------------------------------------------------------------------------------------------


def as_learner(given: Any, name: str = "") -> Learner:  # noqa: ANN401 - known by what it can do
    """A learner, from anything with `fit`: a name, one of ours, an estimator with `predict_proba`, your own.

    Your own `fit(inputs, labels, *, classes, seed)` returns a model with `predict_proba(inputs)`, (n, classes); it may
    leave out arguments. An estimator is copied, and `fit(X, y)` gets flat rows, pixels from 0 to 1.
    """
    if isinstance(given, str):
        return make_learner(given)
    if not callable(getattr(given, "fit", None)) or isinstance(given, type):
        raise BadInput(f"learner is {shown(given)}; give a name, or an object with fit and predict_proba")
    if isinstance(given, OwnLearner) or (callable(getattr(given, "load", None)) and _arguments_of_fit(given)):
        ours: Learner = given
        return ours
    return OwnLearner(given, name or getattr(given, "name", "") or type(given).__name__)


def _arguments_of_fit(given: Any) -> list[str]:  # noqa: ANN401 - known by what it can do
    """Those of our own `fit` that this one takes; nothing for an estimator, which is not asked for all classes."""
    takes = inspect.signature(given.fit).parameters
    if not hasattr(given, "get_params") and any(one.kind == one.VAR_KEYWORD for one in takes.values()):
        return list(ARGUMENTS_OF_FIT)
    return [name for name in ARGUMENTS_OF_FIT if name in takes] if "classes" in takes else []


@dataclass(frozen=True, slots=True, eq=False)
class OwnLearner:
    """A learner from elsewhere, of which only `fit` and `predict_proba` are known."""

    given: Any
    name: str

    @property
    def class_weight(self) -> str | None:
        """That of an estimator, or of the last step of a pipeline."""
        steps = getattr(self.given, "steps", None)
        own = getattr(steps[-1][1] if steps else self.given, "class_weight", None)
        return own if isinstance(own, str) else None

    def fit(
        self, inputs: Inputs, labels: IntArray, *, classes: int, seed: int,
        report: Progress = no_progress, checkpoint: Path | None = None,
    ) -> OwnModel:  # fmt: skip
        """Fit a copy; one class alone needs no model."""
        check_labels(inputs, labels, classes)
        asked = {"classes": classes, "seed": seed, "report": report, "checkpoint": checkpoint}
        if known := _arguments_of_fit(self.given):
            fitted = self.given.fit(inputs, labels, **{name: asked[name] for name in known})
            return OwnModel(fitted, classes, None)
        from ..learners.linear import all_features

        seen = np.unique(labels)
        report(0.0, f"fitting {self.name} on {len(labels):,} labels")
        fitted = None if len(seen) == 1 else _seeded_copy(self.given, seed)
        if fitted is not None:
            with _seeded_torch(seed):
                fitted.fit(all_features(inputs), labels)
        report(1.0, f"{self.name} fitted")
        return OwnModel(fitted, classes, np.asarray(getattr(fitted, "classes_", seen), dtype=np.int64))

    def load(self, folder: Path) -> Model:
        """It is not stored, as that would take a pickle."""
        raise BadFile(f"{folder} holds no model: one of {self.name} is not stored, and is fitted again when needed")


@dataclass(frozen=True, slots=True, eq=False)
class OwnModel:
    """A model from elsewhere; what it does not have is missed only when a strategy needs it."""

    fitted: Any  # None where all labels are of one class
    classes: int
    seen: IntArray | None  # of an estimator, whose rows are flat; None for a model that knows all classes

    def predict_proba(self, inputs: Inputs) -> FloatArray:
        """(n, C); a class that an estimator has not seen has probability 0."""
        if self.seen is None:
            return fill_classes(self.fitted.predict_proba(inputs), np.arange(self.classes), self.classes)
        from ..learners.linear import all_features

        given = np.ones((len(inputs), 1)) if self.fitted is None else self.fitted.predict_proba(all_features(inputs))
        return fill_classes(given, self.seen, self.classes).astype(np.float32)

    def embed(self, inputs: Inputs) -> FloatArray:
        """Its own embeddings, else the features themselves; of images an error."""
        if callable(own := getattr(self.fitted, "embed", None)):
            return np.asarray(own(inputs))
        if len(inputs.shape) == 4:  # pixels
            raise self._lacks("embeddings", "embed(inputs)", "margin")
        return read_all(inputs)

    def mc_proba(self, inputs: Inputs, passes: int, seed: int) -> FloatArray:
        """Its own passes, or an error."""
        if not callable(own := getattr(self.fitted, "mc_proba", None)):
            raise self._lacks("dropout passes", "mc_proba(inputs, passes, seed)", "entropy")
        return np.asarray(own(inputs, passes, seed))

    def save(self, folder: Path) -> None:
        """Nothing is written, and the model is fitted again when it is needed."""

    def _lacks(self, what: str, method: str, instead: str) -> BadInput:
        kind = type(self.fitted).__name__
        return BadInput(f"the strategy needs {what}, but {kind} has no {method}; add it, or take {instead!r}")


def _seeded_copy(estimator: Any, seed: int) -> Any:  # noqa: ANN401 - any estimator
    """Not fitted, every random_state that is not set filled with the seed."""
    if not hasattr(estimator, "get_params"):
        return copy.deepcopy(estimator)
    from sklearn.base import clone

    made = clone(estimator)
    states = {
        name: seed for name, value in made.get_params().items() if name.endswith("random_state") and value is None
    }
    return made.set_params(**states)


@contextmanager
def _seeded_torch(seed: int) -> Iterator[None]:
    """torch's generator seeded for a while, where it is loaded: nets of skorch start from it."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


# -- scikit-activeml --------------------------------------------------------------------------------------------------


def _need_skactiveml() -> None:
    try:
        import skactiveml  # noqa: F401 - the question is whether it is there
    except ImportError as error:
        raise MissingExtra.named("this adapter", "scikit-activeml", "activeml") from error


def balanced_query(
    strategy: Any,  # noqa: ANN401 - a query strategy of scikit-activeml, which has no types
    X: ArrayLike,
    y: ArrayLike,
    *,
    clf: Any,  # noqa: ANN401 - a classifier of scikit-activeml
    batch_size: int,
    balance: Balance = "auto",
    **options: Any,  # noqa: ANN401 - those of the strategy's query
) -> Selection:
    """Choose a class-balanced batch by the utilities of a query strategy of scikit-activeml.

    `clf` is fitted on X and y, in which unlabelled entries are missing, and asked about the unlabelled rows. `indices`
    of the result are rows of X. A strategy that spreads its batch gives only its first utilities: the balance spreads.

    Parameters
    ----------
    strategy: such as `skactiveml.pool.UncertaintySampling()`.
    clf: such as `skactiveml.classifier.SklearnClassifier(LogisticRegression(), classes=range(10))`.
    balance: that of `tailwise.select`.
    options: given on to `strategy.query`.
    """
    _need_skactiveml()
    from skactiveml.utils import unlabeled_indices
    from sklearn.base import clone

    fitted = clone(clf).fit(X, y)
    rows: IntArray = unlabeled_indices(y, strategy.missing_label)
    takes = inspect.signature(strategy.query).parameters
    own = {name: value for name, value in (("clf", fitted), ("fit_clf", False)) if name in takes}
    _, utilities = strategy.query(X, y, **own, **options, batch_size=1, return_utilities=True)
    batch = select(
        fitted.predict_proba(np.asarray(X)[rows]), batch_size, score=utilities[0][rows], balance=balance,
        counts=_counts(fitted, y, rows),
    )  # fmt: skip
    return replace(batch, indices=rows[batch.indices], method=type(strategy).__name__)


def _counts(fitted: Any, y: ArrayLike, unlabelled: IntArray) -> IntArray:  # noqa: ANN401 - a fitted classifier
    """Labels per class, (C,)."""
    labels = np.delete(np.asarray(y), unlabelled)
    return np.bincount(_places(labels, fitted.classes_.tolist()), minlength=len(fitted.classes_)).astype(np.int64)


class _BalancedSampling:
    """A strategy of Tailwise as a query strategy of scikit-activeml.

    Parameters
    ----------
    strategy: a name from `tailwise strategies`.
    balance: that of `tailwise.select`.
    missing_label, random_state: as everywhere in scikit-activeml.
    """

    missing_label_: Any
    random_state_: Any

    def __init__(
        self, strategy: str = DEFAULT, balance: Balance = "auto", missing_label: object = np.nan,
        random_state: object = None,
    ) -> None:  # fmt: skip
        super().__init__(missing_label=missing_label, random_state=random_state)  # type: ignore[call-arg] # the base of BalancedSampling
        self.strategy = strategy
        self.balance = balance

    def query(
        self,
        X: ArrayLike,
        y: ArrayLike,
        clf: Any,  # noqa: ANN401 - a classifier of scikit-activeml
        fit_clf: bool = True,
        candidates: ArrayLike | None = None,
        batch_size: int = 1,
        return_utilities: bool = False,
    ) -> Any:  # noqa: ANN401 - one array or two, as scikit-activeml has it
        """Rows of X, or of the candidates where these are samples, best first, (b,).

        With `return_utilities` also (b, n): 1 for the row that is picked next, 0 for others, NaN for those that are not
        to be picked any more.
        """
        base: Any = self
        samples, labels, given, size, with_utilities = base._validate_data(
            X, y, candidates, batch_size, return_utilities
        )
        pool, rows = base._transform_candidates(given, samples, labels)
        from skactiveml.utils import unlabeled_indices
        from sklearn.base import clone

        fitted = clone(clf).fit(X, y) if fit_clf else clf
        unlabelled = unlabeled_indices(labels, self.missing_label_)
        known = np.delete(samples, unlabelled, axis=0)
        predictions = Predictions(
            fitted.predict_proba(pool), np.asarray(pool, np.float32), np.asarray(known, np.float32),
            labelled_proba=fitted.predict_proba(known) if len(known) else None,
            labelled_labels=_places(np.delete(labels, unlabelled), fitted.classes_.tolist()),
        )  # fmt: skip
        batch = make(self.strategy, balance=self.balance).select(
            predictions, size, counts=_counts(fitted, labels, unlabelled),
            seed=int(self.random_state_.randint(2**31 - 1)),
        )  # fmt: skip
        picks = batch.indices if rows is None else rows[batch.indices]
        if not with_utilities:
            return picks
        return picks, _utilities(
            picks, np.arange(len(pool)) if rows is None else rows, len(pool if rows is None else samples)
        )


def _utilities(picks: IntArray, rows: IntArray, size: int) -> NDArray[np.float64]:
    """What scikit-activeml expects next to the picks, (b, n): the order of the picks, and nothing else."""
    utilities = np.full((len(picks), size), np.nan)
    utilities[:, rows] = 0.0
    for number, pick in enumerate(picks.tolist()):
        utilities[number, pick] = 1.0
        utilities[number + 1 :, pick] = np.nan
    return utilities


if TYPE_CHECKING:
    BalancedSampling = _BalancedSampling
else:

    def __getattr__(name: str) -> object:
        """`BalancedSampling`, made when it is first asked for, as its base loads all of scikit-activeml."""
        if name != "BalancedSampling":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        _need_skactiveml()
        from skactiveml.base import SingleAnnotatorPoolQueryStrategy

        bases = (_BalancedSampling, SingleAnnotatorPoolQueryStrategy)
        made = type(name, bases, {"__module__": __name__, "__doc__": _BalancedSampling.__doc__})
        globals()[name] = made
        return made
