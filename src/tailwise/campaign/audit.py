"""Audits: images drawn at random from the pool, and what these alone say of the model and of the pool.

The draws of all rounds go through one random order of the images, so that the audited ones are a simple random sample
of the whole pool: whatever strategies chose or people hunted for in addition does not bias it. docs/audit.md derives
the intervals.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import BadInput
from ..inputs import many
from ..learners.learner import Learner
from ..selection import html_summary, html_table
from ..types import FloatArray, IntArray, Progress, no_progress
from .classes import list_classes
from .features import embed
from .learning_curve import held_out
from .ledger import HasLedger, Ledger, ledger_of, read_meta
from .models import head_named, labelled_set, with_features
from .rounds import AuditDraw, Pick, progress
from .state import read_settings

ERROR = 0.05  # of every interval, and of the advice to stop, over all rounds together
FOLDS = 10  # models that are fitted without a part of the audited labels
RENEWAL = 0.1  # images added since a series of draws began, as a share of it, that begin another
RARE = 0.5  # a class is rare below this part of an equal share
OTHER, UNKNOWN = -1, -2  # in place of a class: none of the classes; not decided
SHOWN_CLASSES = 24  # in a notebook


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """The images of one round's audit."""

    images: IntArray  # (a,) ids
    source: AuditDraw | None  # None without an audit

    def __str__(self) -> str:
        return f"{many(len(self.images), 'image is', 'images are')} drawn at random, for the audit"


def draw(ledger: Ledger, candidates: IntArray, share: float, budget: int) -> Drawn:
    """The next images in the random order that have no label yet; at least one image of a round is not drawn."""
    wanted = min(max(round(share * budget), 1), budget - 1) if share > 0 else 0
    if not wanted:
        return Drawn(candidates[:0], None)
    last = _series(ledger)
    order = random_order(ledger, last)
    left = order[np.isin(order, candidates)]
    return Drawn(left[:wanted], AuditDraw(len(left), last))


def mixed(chosen: Sequence[Pick], drawn: Sequence[Pick], seed: int) -> tuple[Pick, ...]:
    """The images of a round, those of the audit at random places among the others, which keep their order."""
    rng = np.random.default_rng([seed, len(chosen), len(drawn)])
    total = len(chosen) + len(drawn)
    places = set(rng.choice(total, len(drawn), replace=False).tolist())
    audited = iter([replace(drawn[at], audit=True) for at in rng.permutation(len(drawn)).tolist()])
    others = iter(chosen)
    return tuple(next(audited) if place in places else next(others) for place in range(total))


def random_order(ledger: Ledger, last_image: int) -> IntArray:
    """The usable images with ids up to the last, in an order that is random and always the same, (N,)."""
    rows = ledger.read(f"SELECT i.id, i.key FROM image AS i WHERE {_USABLE} AND i.id <= ? ORDER BY i.id", (last_image,))
    salt = f"{read_meta(ledger, 'campaign')}:{last_image}:"
    ranks = [hashlib.sha256(f"{salt}{row['key']}".encode()).digest()[:16] for row in rows]
    order = sorted(range(len(rows)), key=lambda at: ranks[at])
    return np.array([rows[at]["id"] for at in order], dtype=np.int64)


_USABLE = "i.trouble IS NULL AND i.duplicate_of IS NULL"


def _series(ledger: Ledger) -> int:
    """The last image of the series of draws; another series begins when many images were added."""
    newest = int(ledger.read(f"SELECT coalesce(max(i.id), 0) FROM image AS i WHERE {_USABLE}")[0][0])
    rows = ledger.read("SELECT last_image FROM audit_draw ORDER BY round_id DESC LIMIT 1")
    if not rows:
        return newest
    last = int(rows[0][0])
    known, added = ledger.read(
        f"SELECT coalesce(sum(i.id <= :last), 0), coalesce(sum(i.id > :last), 0) FROM image AS i WHERE {_USABLE}",
        {"last": last},
    )[0]
    return newest if added > RENEWAL * known else last


# -- estimates ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share with its 95 % interval."""

    value: float | None  # None where nothing was measured
    low: float
    high: float
    images: int  # that it rests on

    def __str__(self) -> str:
        if self.value is None:
            return "not measured"
        return f"{percent(self.value)} (between {percent(self.low)} and {percent(self.high)})"


@dataclass(frozen=True, slots=True)
class ClassEstimate:
    """What the audit says of one class."""

    class_id: int
    name: str
    share: Estimate  # of the pool
    recall: Estimate  # share of its images that the model recognises


@dataclass(frozen=True, slots=True)
class Stop:
    """Whether labelling can stop.

    Attributes
    ----------
    wanted: the accuracy to reach.
    bound: the accuracy is at least this; the bounds of all rounds hold together, except with the probability `error`.
    reached: whether the bound is at least the wanted accuracy.
    """

    wanted: float
    bound: float
    error: float
    reached: bool


@dataclass(frozen=True, slots=True)
class Audit:
    """What the images that were drawn at random say.

    Attributes
    ----------
    images: the sample: audited images, and images before them in the random order that had a label already.
    population: images that the sample stands for.
    uncovered: usable images that it does not stand for, because they were added after the audit began.
    unknown: images of the sample without a decided answer: skipped, in conflict, or not answered.
    rounds: with a draw that counts.
    waiting: whether the open round has a draw, which counts when the round is complete.
    accuracy: of the model, on images whose labels it has not seen; None without a model.
    classes: in their order.
    rare: recall of the rare classes taken together; None without such images.
    other: share of images of none of the classes.
    stop: None without a measured accuracy.
    sentences: all of it in words, the advice first.
    """

    images: int
    population: int
    uncovered: int
    unknown: int
    rounds: int
    waiting: bool
    accuracy: Estimate | None
    classes: tuple[ClassEstimate, ...]
    rare: Estimate | None
    other: Estimate | None
    stop: Stop | None
    sentences: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        """For notebooks: the sentences, and a table of the classes."""
        rows = [(one.name, str(one.share), str(one.recall)) for one in self.classes]
        table = html_table(("class", "share of the pool", "recognised"), rows[:SHOWN_CLASSES], total=len(rows))
        title = f"Audit: {self.images:,} of {many(self.population, 'image')} drawn at random"
        return html_summary(title, "", self.sentences, table if rows else "")


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """A simple random sample of the pool.

    The guesses are of models that had not seen the label of the image.
    """

    population: int  # N, images of the pool
    truth: IntArray  # (n,) columns of the classes, OTHER or UNKNOWN
    guess: IntArray  # (n,) columns; −1 without a guess

    @property
    def unknown(self) -> int:
        """How many images are not decided."""
        return int(np.count_nonzero(self.truth == UNKNOWN))

    def share(self, hits: int, error: float = ERROR) -> Estimate:
        """The share of the pool that is like `hits` of the decided images.

        An undecided image may be a hit or not: the lower end of the interval takes all of them as misses, and the upper
        end as hits.
        """
        drawn, decided = len(self.truth), len(self.truth) - self.unknown
        low, high = count_limits(self.population, drawn, hits, hits + self.unknown, error)
        value = hits / decided if decided else None
        return Estimate(value, low / self.population, high / self.population, decided)

    def recall(self, columns: IntArray, error: float = ERROR) -> Estimate:
        """The share of the images of some classes that are recognised."""
        own = np.isin(self.truth, columns)
        hits, size = int(np.count_nonzero(own & (self.truth == self.guess))), int(np.count_nonzero(own))
        maybe = np.isin(self.guess[self.truth == UNKNOWN], columns)  # undecided: recognised, or missed
        lucky, unlucky = int(np.count_nonzero(maybe)), int(np.count_nonzero(~maybe))
        low = share_limits(hits, size + unlucky, error)[0]
        high = share_limits(hits + lucky, size + lucky, error)[1]
        return Estimate(hits / size if size else None, low, high, size)


def count_limits(population: int, drawn: int, fewest: int, most: int, error: float = ERROR) -> tuple[int, int]:
    """Between which numbers the hits among `population` images are, if a random sample has `fewest` to `most` of them.

    Exact: inverts the tails of the hypergeometric distribution, error / 2 each.

    >>> count_limits(1000, 100, 30, 30), count_limits(1000, 1000, 30, 30), count_limits(1000, 0, 0, 0)
    ((217, 394), (30, 30), (0, 1000))
    """
    low = _smallest(lambda count: _tail(population, count, drawn, fewest, up=True) > error / 2, fewest, population)
    above = _smallest(
        lambda count: _tail(population, count, drawn, most, up=False) <= error / 2, most, population - drawn + most + 1
    )
    return low, above - 1


def share_limits(hits: int, size: int, error: float = ERROR) -> tuple[float, float]:
    """The interval of Clopper and Pearson for a share, where the number of images in the pool is not known.

    >>> tuple(round(end, 4) for end in share_limits(8, 10)), share_limits(0, 0)
    ((0.4439, 0.9748), (0.0, 1.0))
    """
    from scipy.special import betaincinv

    low = float(betaincinv(hits, size - hits + 1, error / 2)) if hits else 0.0
    return low, float(betaincinv(hits + 1, size - hits, 1 - error / 2)) if hits < size else 1.0


def _smallest(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The smallest number from low to high from which on a condition holds; `high` where it never does."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _tail(population: int, count: int, drawn: int, hits: int, *, up: bool) -> float:
    """P(at least, or at most, `hits`) if `count` of `population` images are hits and `drawn` are drawn."""
    first, last = max(0, drawn - (population - count)), min(drawn, count)
    ks = np.arange(first, last, dtype=np.float64)
    steps = np.log((count - ks) * (drawn - ks)) - np.log((ks + 1) * (population - count - drawn + ks + 1))
    logs = np.concatenate([[0.0], np.cumsum(steps)])  # of the probabilities of first, …, last, up to a factor
    weights = np.exp(logs - logs.max())
    at = min(max(hits - first, 0), len(weights)) if up else min(max(hits - first + 1, 0), len(weights))
    part = weights[at:] if up else weights[:at]
    return float(part.sum() / weights.sum())


def error_of_look(look: int, error: float = ERROR) -> float:
    """The error that the look after so many audited rounds may have: error / (r (r + 1)), which sums to `error`.

    >>> [round(error_of_look(look), 5) for look in (1, 2, 3)]
    [0.025, 0.00833, 0.00417]
    """
    return error / (look * (look + 1))


def stop_rule(sample: Sample, rounds: int, wanted: float) -> Stop:
    """Whether the accuracy is at least as wanted, by bounds that hold for all rounds at once."""
    hits = int(np.count_nonzero((sample.truth == sample.guess) & (sample.guess >= 0)))
    low, _ = count_limits(sample.population, len(sample.truth), hits, hits, 2 * error_of_look(rounds))  # one tail
    bound = low / sample.population
    return Stop(wanted, bound, ERROR, bound >= wanted)


# -- the audit of a campaign -------------------------------------------------------------------------------------------


def audit(campaign: HasLedger | Ledger, *, wanted: float | None = None, report: Progress = no_progress) -> Audit:
    """Estimate accuracy, class shares and recalls from the images that were drawn at random."""
    ledger = ledger_of(campaign)
    goal = read_settings(ledger).wanted_accuracy if wanted is None else wanted
    if not 0 <= goal <= 1:
        raise BadInput(f"the wanted accuracy is {goal}; give a share from 0 to 1, such as 0.9")
    draws = ledger.read(
        "SELECT d.round_id, d.last_image, r.closed_at FROM audit_draw AS d JOIN round AS r ON r.id = d.round_id "
        "ORDER BY d.round_id"
    )
    done = [row for row in draws if row["closed_at"] is not None or progress(ledger, row["round_id"]).complete]
    images, order = _audited(ledger, [row["round_id"] for row in done], done[-1]["last_image"] if done else 0)
    usable = int(ledger.read(f"SELECT count(*) FROM image AS i WHERE {_USABLE}")[0][0])
    found = Audit(
        len(images), len(order), usable - len(order), 0, len(done), len(draws) > len(done), None, (), None, None, None
    )
    if len(images):
        found = _measured(ledger, found, images, float(goal), report)
    return replace(found, sentences=tuple(_sentences(found)))


def _audited(ledger: Ledger, rounds: Sequence[int], last_image: int) -> tuple[IntArray, IntArray]:
    """The sample, and the random order that it is the beginning of, up to the last image that these rounds drew."""
    order = random_order(ledger, last_image)
    drawn = [
        row["image_id"]
        for number in rounds
        for row in ledger.read(
            "SELECT i.image_id FROM round_image AS i JOIN audit_draw AS d ON d.round_id = i.round_id "
            "WHERE i.round_id = ? AND i.audit AND d.last_image = ?",
            (number, last_image),
        )
    ]
    places = np.flatnonzero(np.isin(order, drawn))
    return order[: places[-1] + 1] if len(places) else order[:0], order


def _measured(ledger: Ledger, found: Audit, images: IntArray, wanted: float, report: Progress) -> Audit:
    classes = list_classes(ledger)
    column = {one.id: place for place, one in enumerate(classes)}
    truth = np.array([_truth(said, column) for said in _said(ledger, images)], dtype=np.int64)
    guess = _guesses(ledger, images, truth, report)
    sample = Sample(found.population, truth, np.full(len(images), -1) if guess is None else guess)
    counts = np.bincount(truth[truth >= 0], minlength=len(classes))
    rare = np.flatnonzero((counts > 0) & (counts < RARE * counts.sum() / max(len(classes), 1)))
    nothing = Estimate(None, 0.0, 1.0, 0)
    measured = tuple(
        ClassEstimate(one.id, one.name, sample.share(int(counts[place])),
                      nothing if guess is None else sample.recall(np.array([place])))
        for place, one in enumerate(classes)
    )  # fmt: skip
    found = replace(
        found, unknown=sample.unknown, classes=measured, other=sample.share(int(np.count_nonzero(truth == OTHER)))
    )
    if guess is None:
        return found
    right = int(np.count_nonzero((truth == guess) & (guess >= 0)))
    return replace(
        found, accuracy=sample.share(right), rare=sample.recall(rare) if len(rare) else None,
        stop=stop_rule(sample, found.rounds, wanted),
    )  # fmt: skip


def _said(ledger: Ledger, images: IntArray) -> list[tuple[str, int | None]]:
    """What came of each image, outcome and class; of its copies where it was not asked about itself."""
    rows = ledger.read(
        "SELECT coalesce(i.duplicate_of, i.id) AS image, v.outcome, v.class_id FROM verdict AS v "
        "JOIN image AS i ON i.id = v.image_id ORDER BY i.duplicate_of IS NULL, i.id DESC"
    )
    said = {row["image"]: (row["outcome"], row["class_id"]) for row in rows}
    return [said.get(image, ("unanswered", None)) for image in images.tolist()]


def _truth(said: tuple[str, int | None], column: dict[int, int]) -> int:
    """A column; the label of a retired class counts as other."""
    outcome, cls = said
    if outcome in ("settled", "agreed") and cls is not None:
        return column.get(cls, OTHER)
    return OTHER if outcome == "other" else UNKNOWN


def _guesses(ledger: Ledger, images: IntArray, truth: IntArray, report: Progress) -> IntArray | None:
    """What models that have not seen its label say of each audited image, (n,); None before two classes have labels."""
    settings, labelled = read_settings(ledger), labelled_set(ledger)
    everything = np.union1d(images, labelled.images)
    embedding = embed(ledger, everything, backbone=settings.backbone, report=report)
    labelled = with_features(labelled, embedding)
    if np.count_nonzero(labelled.counts()) < 2:
        return None
    rows, there = embedding.rows(images)
    known = np.full(len(embedding.ids), -1, dtype=np.int64)
    known[embedding.rows(labelled.images)[0]] = labelled.labels
    guess = np.full(len(images), -1, dtype=np.int64)
    guess[there] = held_out_guesses(
        head_named(settings.learner), embedding.features, known, rows[there], truth[there], len(labelled.class_ids)
    )
    return guess


def held_out_guesses(
    learner: Learner, features: FloatArray, known: IntArray, rows: IntArray, truth: IntArray, classes: int
) -> IntArray:  # fmt: skip
    """The guess about each sampled row, (n,), by a model that learnt from all known labels but those of its fold.

    Every class of the sample is spread over the folds, so that each model misses few labels of any class.
    """
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(len(rows))
    spread = shuffled[np.argsort(truth[shuffled], kind="stable")]
    folds = np.full(len(known), -1, dtype=np.int64)
    folds[rows[spread]] = np.arange(len(rows)) % FOLDS
    return held_out(learner, features, known, folds, classes)[rows]


# -- in words ----------------------------------------------------------------------------------------------------------


def percent(share: float) -> str:
    """A share in words, with a decimal below 10 %.

    >>> percent(0.8731), percent(0.0123), percent(0.05)
    ('87 %', '1.2 %', '5 %')
    """
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %".replace(".0 ", " ")


def _sentences(found: Audit) -> list[str]:
    waiting = "The images drawn for the open round count when the round is complete."
    if not found.images:
        how = "No image has been audited yet: open the next round with a share for the audit, such as 0.1."
        return [waiting] if found.waiting else [how]
    said = []
    if found.stop is not None:
        said.append(_advice(found.stop))
    basis = f"by {many(found.images, 'image')} drawn at random from {found.population:,}"
    if found.accuracy is not None:
        said.append(f"The model names the right class for {found.accuracy} of the pool, {basis}.")
    else:
        said.append(f"Class shares are measured {basis}; two classes need labels before the model can be.")
    if found.rare is not None:
        said.append(
            f"Of images of rare classes it recognises {found.rare}, by {many(found.rare.images, 'such image')}."
        )
    if found.unknown:
        said.append(
            f"{many(found.unknown, 'image has', 'images have')} no decided answer; the intervals allow for any."
        )
    if found.uncovered:
        were = many(found.uncovered, "image was", "images were")
        said.append(f"{were} added after the audit began, and the estimates do not cover them.")
    return [*said, waiting] if found.waiting else said


def _advice(stop: Stop) -> str:
    sure = f"the chance that this is wrong, over all rounds together, is at most {percent(stop.error)}"
    if stop.reached:
        return f"You can stop: the accuracy is at least {percent(stop.wanted)}; {sure}."
    return f"Go on: the accuracy is at least {percent(stop.bound)}, and {percent(stop.wanted)} is wanted; {sure}."
