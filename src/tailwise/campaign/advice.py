"""Whether another round is worth it: yes, no or unclear, with sentences and the numbers behind them.

The answer is never "no" with fewer than three measured rounds; every claim holds by two standard errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..inputs import many
from ..selection import html_summary, html_table
from ..types import Progress, no_progress
from .classes import list_classes
from .features import embed
from .learning_curve import (
    Agreement,
    Curve,
    CurveGain,
    Measure,
    annotator_agreement,
    cohen_kappa,
    learning_curve,
    round_ends,
)
from .ledger import HasLedger, Ledger, ledger_of
from .models import labelled_set, train, with_features
from .rounds import Pending, candidate_images, list_rounds, pending_answers
from .state import read_settings

SMALL = 0.01  # a gain in balanced accuracy below this is not worth a round
CLEAR = 2.0  # standard errors
STABLE = 0.98  # kappa between the predictions of two models that mean the same
FEW = 5  # labels of a class, below which its recall cannot be measured
ROUNDS_FOR_NO = 3  # points of the curve
POINTS_FOR_LAW = 3
TRIED = 3  # rounds after which a class without labels may not be in the pool at all
SOUND = 0.667  # Krippendorff's alpha below which he draws no conclusions
SAMPLE = 5_000  # images of the pool that two models are compared on


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that speaks for or against another round."""

    what: str  # such as "gain", "law", "stability" or "coverage"
    leans: str  # "yes", "no" or "unclear"
    text: str
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Advice:
    """Whether another round is worth it."""

    worth_it: str  # "yes", "no" or "unclear"
    because: str  # in one sentence
    evidence: tuple[Evidence, ...]

    def _repr_html_(self) -> str:
        """For notebooks: the answer, and what speaks for and against it."""
        arrows = {"yes": "▲ yes", "no": "▼ no", "unclear": "· unclear"}
        found = [(arrows[one.leans], one.what, one.text) for one in self.evidence]
        title = f"Another round: {self.worth_it}"
        return html_summary(title, self.because, (), html_table(("leans to", "about", "evidence"), found))


@dataclass(frozen=True, slots=True)
class Stability:
    """How far two successive models agree about the pool."""

    images: int
    changed: float  # share of images whose likeliest class is another
    kappa: Agreement


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the advice rests on.

    Attributes
    ----------
    labels: by class name, of the classes in use.
    candidates: images that are left to choose from.
    budget: images of the next round.
    rounds: that were opened.
    curve: None where nothing could be measured.
    stability: of the last two models; None without two.
    unreachable: names of classes of which the last round could not reach as many as wanted.
    alpha: agreement of people; None where nobody shared an image.
    pending: what is left in the open round.
    """

    labels: Mapping[str, int]
    candidates: int
    budget: int
    rounds: int
    curve: Curve | None = None
    stability: Stability | None = None
    unreachable: tuple[str, ...] = ()
    alpha: Agreement | None = None
    pending: Pending | None = None


def advise(campaign: HasLedger | Ledger, *, report: Progress = no_progress) -> Advice:
    """Say whether another round is worth it."""
    return judge(gather(ledger_of(campaign), report=report))


def judge(facts: Facts) -> Advice:
    """From facts to advice, by rules that can be read here."""
    found = [
        *_pool(facts), *_labels(facts), *_gain(facts), *_law(facts), *_stability(facts), *_reach(facts),
        *_agreement(facts), *_pending(facts),
    ]  # fmt: skip
    by_kind = {one.what: one.leans for one in found}
    verdict, because = _verdict(facts, by_kind)
    return Advice(verdict, because, tuple(found))


def _verdict(facts: Facts, leans: Mapping[str, str]) -> tuple[str, str]:
    if leans.get("pool") == "no":
        return "no", "No image is left to choose from."
    if not sum(facts.labels.values()):
        return "yes", "Nothing is labelled yet."
    if leans.get("coverage") == "yes":
        return "yes", "Some classes have too few labels to be learnt."
    points = len(facts.curve.points) if facts.curve is not None else 0
    if leans.get("gain") == "yes":
        few = ", though that rests on one step alone" if points == 2 else ""
        return "yes", f"The model is still getting clearly better{few}."
    if leans.get("law") == "yes":
        return "yes", "The learning curve is expected to rise clearly."
    if points < ROUNDS_FOR_NO:
        return "unclear", f"{many(points, 'measured round')} cannot show a trend; three are needed."
    flat, stable, law = (leans.get(name, "unclear") for name in ("gain", "stability", "law"))
    if flat == "no" and stable == "no" and law in ("no", "unclear"):
        return "no", "The model no longer gets better, and its predictions no longer change."
    return "unclear", "The numbers allow either answer; another round would also show more."


def _pool(facts: Facts) -> list[Evidence]:
    left = {"candidates": float(facts.candidates), "budget": float(facts.budget)}
    if not facts.candidates:
        text = "No image is left to choose from: all are answered, in the open round, or set aside."
        return [Evidence("pool", "no", text, left)]
    if facts.candidates < facts.budget:
        text = f"Only {many(facts.candidates, 'image')} of the {facts.budget} of a round are left to choose from."
        return [Evidence("pool", "unclear", text, left)]
    return []


def _labels(facts: Facts) -> list[Evidence]:
    """Classes with few labels or none."""
    empty = [name for name, count in facts.labels.items() if not count]
    few = [name for name, count in facts.labels.items() if 0 < count < FEW]
    has, it = ("has", "it") if len(empty) == 1 else ("have", "them")
    found = []
    if empty and facts.rounds >= TRIED:
        text = (
            f"{_named(empty)} {has} no label after {many(facts.rounds, 'round')}: perhaps no image shows "
            "it; look for examples by hand, or retire it."
        )
        found.append(Evidence("absent", "unclear", text, {"classes": float(len(empty))}))
    elif empty:
        text = f"{_named(empty)} {has} no label yet, so the model cannot name {it}."
        found.append(Evidence("coverage", "yes", text, {"classes": float(len(empty))}))
    if few:
        has = "has" if len(few) == 1 else "have"
        text = f"{_named(few)} {has} fewer than {FEW} labels, too few to be learnt or measured."
        findable = facts.rounds < 2 * TRIED and any(name not in facts.unreachable for name in few)
        kind, leans = ("coverage", "yes") if findable else ("rare", "unclear")
        found.append(Evidence(kind, leans, text, {"classes": float(len(few))}))
    return found


def _gain(facts: Facts) -> list[Evidence]:
    """What the last rounds added."""
    if facts.curve is None or not facts.curve.points or facts.curve.points[-1].balanced_accuracy is None:
        return [Evidence("gain", "unclear", "There are too few labels to measure the model.")]
    curve = facts.curve
    now, measured = curve.points[-1].balanced_accuracy, int(curve.measured.sum())
    assert now is not None
    covered = int(np.count_nonzero(curve.measured))
    images = many(measured, "labelled image")
    of_some = f" of {covered} of {many(len(curve.class_ids), 'class', 'classes')}"
    where = f"{images}{of_some if covered < len(curve.class_ids) else ''}"
    if not curve.is_measured:
        text = f"There are too few labels to measure the model: it could be asked about {where}."
        return [Evidence("gain", "unclear", text, {"images": float(measured), "classes": float(covered)})]
    level = (
        f"Balanced accuracy is {100 * now.value:.1f} ± {100 * now.error:.1f} %, by cross-validation on {where}; these "
        "were chosen to be hard and balanced, so on all images it may be higher or lower."
    )
    found = [Evidence("level", "unclear", level, {"balanced_accuracy": now.value, "error": now.error})]
    if not curve.gains:
        return [*found, Evidence("gain", "unclear", "One measured round has no slope.")]
    last, mean = curve.gains[-1].balanced_accuracy, mean_gain(curve.gains[-2:])
    labels = curve.gains[-1].labels
    text = f"The last {many(labels, 'new label')} changed it by {_points(last)}, measured on the same images."
    if len(curve.gains) > 1:
        text += f" Over the last two rounds it was {_points(mean)} a round."
    numbers = {"last": last.value, "last_error": last.error, "mean": mean.value, "mean_error": mean.error}
    return [*found, Evidence("gain", lean_of(last, mean, len(curve.points)), text, numbers)]


def lean_of(last: Measure, mean: Measure, points: int) -> str:
    """Up if the last gain is clear, or the mean of two with a last one that is not small; flat if the mean is small.

    A large step of the past says nothing where the last one added nothing; and "no" needs enough rounds.
    """
    clear = [one.value - CLEAR * one.error > 0 for one in (last, mean)]
    rising = clear[0] or (clear[1] and last.value >= SMALL)
    flat = mean.value + CLEAR * mean.error < SMALL and points >= ROUNDS_FOR_NO
    return "yes" if rising else "no" if flat else "unclear"


def mean_gain(gains: Sequence[CurveGain]) -> Measure:
    """The mean of successive gains in balanced accuracy, taken as independent."""
    errors = [gain.balanced_accuracy.error for gain in gains]
    value = float(np.mean([gain.balanced_accuracy.value for gain in gains]))
    return Measure(value, float(np.sqrt(np.sum(np.square(errors)))) / len(gains))


def _law(facts: Facts) -> list[Evidence]:
    if facts.curve is None:
        return []
    known = [point for point in facts.curve.points if point.balanced_accuracy is not None]
    sizes = np.array([point.labels for point in known], dtype=np.float64)
    levels = [point.balanced_accuracy for point in known if point.balanced_accuracy is not None]
    expected = expected_gain(sizes, levels, facts.budget)
    if expected is None:
        return []
    low, high = (expected.value + side * CLEAR * expected.error for side in (-1, 1))
    leans = "yes" if low > SMALL / 2 and len(known) > POINTS_FOR_LAW else "no" if high < SMALL else "unclear"
    text = (
        f"A power law through {many(len(known), 'round')} expects {_points(expected)} from "
        f"{many(facts.budget, 'more label')}; it is a rough guide."
    )
    return [Evidence("law", leans, text, {"expected": expected.value, "error": expected.error})]


def expected_gain(sizes: np.ndarray, levels: Sequence[Measure], more: int) -> Measure | None:
    """What `more` labels add, if the error falls as a·n^−b; None with fewer than three sizes.

    Least squares in the logarithms, each point weighted by its error; the error of the gain by the delta method,
    widened where the points lie farther from the law than their errors allow.
    """
    if len(levels) < POINTS_FOR_LAW or len(np.unique(sizes)) < POINTS_FOR_LAW:
        return None
    spread = np.array([level.error for level in levels])
    wrong = np.maximum(1 - np.array([level.value for level in levels]), spread / 2)  # never 0: its logarithm is taken
    design = np.stack([np.ones(len(sizes)), np.log(sizes)], axis=1)
    weights = (wrong / spread) ** 2
    covariance = np.linalg.inv(design.T @ (weights[:, None] * design))
    offset, slope = covariance @ design.T @ (weights * np.log(wrong))
    misfit = np.sum(weights * (np.log(wrong) - design @ (offset, slope)) ** 2) / (len(sizes) - 2)
    last = sizes[-1]
    now, then = (np.exp(offset + slope * np.log(size)) for size in (last, last + more))
    towards = np.array([now - then, now * np.log(last) - then * np.log(last + more)])
    variance = towards @ covariance @ towards * max(1.0, misfit)
    return Measure(float(now - then), float(np.sqrt(variance)))


def _stability(facts: Facts) -> list[Evidence]:
    if facts.stability is None:
        return []
    same, kappa = facts.stability, facts.stability.kappa.value
    stable = (kappa is None and same.changed == 0) or (kappa is not None and kappa >= STABLE)
    enough = facts.curve is not None and len(facts.curve.points) >= ROUNDS_FOR_NO
    text = (
        f"The last round changed the prediction for {100 * same.changed:.1f} % of {same.images:,} unlabelled images"
        f"{'' if kappa is None else f' (kappa {kappa:.3f})'}."
    )
    numbers = {"changed": same.changed, "images": float(same.images)} | ({} if kappa is None else {"kappa": kappa})
    return [Evidence("stability", "no" if stable and enough else "unclear", text, numbers)]


def _reach(facts: Facts) -> list[Evidence]:
    if not facts.unreachable:
        return []
    names = list(facts.unreachable)
    text = (
        f"By the model's probabilities the pool is short of {_named(names)}: the last round could not reach the number "
        "wanted there; more images would help more than more rounds."
    )
    few = [name for name in names if facts.labels.get(name, FEW) < FEW]
    if few:
        text += f" It has seen too few labels of {_named(few)} to be sure."
    return [Evidence("reach", "unclear", text, {"classes": float(len(names))})]


def _agreement(facts: Facts) -> list[Evidence]:
    alpha = facts.alpha
    if alpha is None or alpha.value is None:
        return []
    numbers = {"alpha": alpha.value, "images": float(alpha.images)}
    shared = f"Krippendorff's alpha is {alpha.value:.2f} on {many(alpha.images, 'shared image')}"
    if alpha.value >= SOUND:
        return [Evidence("agreement", "unclear", f"People agree: {shared}.", numbers)]
    text = f"People disagree: {shared}. Sharpen what the classes mean first: more labels of this kind teach little."
    return [Evidence("agreement", "unclear", text, numbers)]


def _pending(facts: Facts) -> list[Evidence]:
    if facts.pending is None or not facts.pending.answers:
        return []
    text = (
        f"Round {facts.pending.round_id} still waits for {many(facts.pending.answers, 'answer')}; "
        "finish it before deciding."
    )
    return [Evidence("pending", "unclear", text, {"answers": float(facts.pending.answers)})]


def gather(ledger: Ledger, *, report: Progress = no_progress) -> Facts:
    """Read and measure all that the advice rests on."""
    curve = learning_curve(ledger, report=report)
    names = {one.id: one.name for one in list_classes(ledger, retired=True)}
    counts = labelled_set(ledger)
    rounds = list_rounds(ledger)
    short = rounds[-1].why.get("unreachable", []) if rounds else []
    alpha = annotator_agreement(ledger).alpha
    return Facts(
        {names[number]: int(count) for number, count in zip(counts.class_ids, counts.counts(), strict=True)},
        len(candidate_images(ledger)), read_settings(ledger).budget if not rounds else rounds[-1].budget, len(rounds),
        curve if curve.points else None, stability(ledger, curve, report=report),
        tuple(names[one["class_id"]] for one in short if one.get("class_id") in names),
        alpha if alpha.images else None, pending_answers(ledger),
    )  # fmt: skip


def stability(ledger: Ledger, curve: Curve, *, report: Progress = no_progress) -> Stability | None:
    """Compare the models before and after the last round on images that nobody has labelled."""
    candidates = candidate_images(ledger, with_open_round=True)
    if len(curve.points) < 2 or not len(candidates):
        return None
    sample = candidates[np.unique(np.linspace(0, len(candidates) - 1, min(len(candidates), SAMPLE)).astype(np.int64))]
    events = {moment.round_id: moment.last_event for moment in round_ends(ledger)}
    sets = [labelled_set(ledger, events[point.round_id], curve.class_ids) for point in curve.points[-2:]]
    settings = read_settings(ledger)
    wanted = np.unique(np.concatenate([sample, *(one.images for one in sets)]))
    embedding = embed(ledger, wanted, backbone=settings.backbone, report=report)
    rows, there = embedding.rows(sample)
    said = []
    for one in sets:
        model, _ = train(with_features(one, embedding), embedding, learner=settings.learner, seed=0)
        said.append(np.asarray(model.predict_proba(embedding.features[rows[there]])).argmax(axis=1).tolist())
    kappa = cohen_kappa(*said)
    return Stability(int(there.sum()), 1 - (kappa.same or 0.0), kappa) if there.any() else None


def _points(gain: Measure) -> str:
    """A gain in percentage points, with a true minus.

    >>> _points(Measure(-0.0123, 0.02))
    '−1.2 ± 2.0 points'
    """
    return f"{100 * gain.value:+.1f} ± {100 * gain.error:.1f} points".replace("-", "−")


def _named(names: Sequence[str], most: int = 5) -> str:
    """Some names in a sentence.

    >>> _named(["owl", "kite", "wren"])
    'owl, kite and wren'
    """
    shown = list(names[:most])
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]
