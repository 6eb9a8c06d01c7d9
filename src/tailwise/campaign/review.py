"""Likely label errors, found by cross-validation: images whose label a model that has not seen it finds improbable.

Each labelled image is asked about by a model that learnt from the other folds. Labels are ranked by how much likelier
another class is, and cleanlab helps to estimate how many are wrong. An image that somebody has settled is not listed.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ..calibration import USUAL_SPREAD
from ..errors import BadFile, BadInput, MissingExtra
from ..files import read_regular, write_whole
from ..inputs import many, whole_number
from ..learners.learner import FOLDS, Learner, OutOfFold, as_of_the_whole_set, out_of_fold, trained_shares
from ..softmax import fit_temperature, with_temperature
from ..types import BoolArray, Float64Array, FloatArray, IntArray, Progress, no_progress
from .classes import list_classes
from .features import chosen_backbone, embed
from .images import ImageRow, find_image
from .ledger import HasLedger, Ledger, ledger_of
from .models import Labelled, head_named, labelled_set, last_event, with_features
from .state import read_settings

SEED = 0
FOLDER, ERRORS_FILE = "review", "errors.json"  # where the findings are kept
VERSION = 2  # of how they are made
MOST_KEPT = 2000
TINY = 1e-30
SURE = (
    0.5  # probability of another class, above which a label can be likely wrong; of its own, below which it is listed
)
TIMES = 10  # as likely as the given class another one must be, for the label to count as an error
NEIGHBOURS = 4  # labelled images of the suggested class that are shown next to a finding
TOO_FEW = (
    "label at least 2 images in each of 2 classes first: a label is checked by a model that learnt from the others"
)


class TooFewLabels(BadInput):
    """There are not enough labels to check any of them."""


@dataclass(frozen=True, slots=True)
class LabelError:
    """A label that may be wrong.

    Attributes
    ----------
    image, key, path: id, key and path of the image.
    given, given_id: name and id of the class that it is labelled as.
    suggested, suggested_id: those of the likeliest class but the given one.
    probability: of the suggested class.
    quality: of the given class: cleanlab's label quality, 0 to 1.
    likely: whether it is among the first, as many as are estimated to be wrong; the others are doubtful.
    annotators: who gave the label.
    neighbours: ids of the labelled images of the suggested class that are most similar.
    """

    image: int
    key: str
    path: str
    given: str
    given_id: int
    suggested: str
    suggested_id: int
    probability: float
    quality: float
    likely: bool
    annotators: tuple[str, ...] = ()
    neighbours: tuple[int, ...] = ()

    @property
    def reason(self) -> str:
        """In words, for instance "looks like kite, 92 %; labelled owl by ada"."""
        by = f" by {' and '.join(self.annotators)}" if self.annotators else ""
        return f"looks like {self.suggested}, {100 * self.probability:.0f} %; labelled {self.given}{by}"


@dataclass(frozen=True, slots=True)
class Review:
    """What was checked, and what was found.

    Attributes
    ----------
    errors: worst first; the likely ones come first, then other labels that the model finds less likely than not.
    checked: labels that were checked; one that is alone in its class cannot be.
    labels: all labels of classes in use.
    key: names the labels and the settings that it was made from, see `review_key`.
    """

    errors: tuple[LabelError, ...]
    checked: int
    labels: int
    key: str

    @property
    def likely(self) -> int:
        """How many labels are likely wrong."""
        return sum(one.likely for one in self.errors)


def label_errors(
    campaign: HasLedger | Ledger, count: int | None = None, *, report: Progress = no_progress
) -> list[LabelError]:  # fmt: skip
    """Labels that are likely wrong, worst first; with a `count` so many, also doubtful ones."""
    most = None if count is None else whole_number(count, "count")
    found = review_labels(campaign, report=report)
    return list(found.errors[: found.likely if most is None else most])


def review_labels(campaign: HasLedger | Ledger, *, report: Progress = no_progress) -> Review:
    """Check all labels, or give what was found before while they are the same; equal labels give equal findings."""
    need_cleanlab()
    ledger = ledger_of(campaign)
    key, kept = review_key(ledger), kept_review(ledger)
    if kept is not None and kept.key == key:
        return kept
    found = _checked(ledger, key, report)
    if not ledger.read_only:
        (ledger.files / FOLDER).mkdir(parents=True, exist_ok=True)
        write_whole(ledger.files / FOLDER / ERRORS_FILE, json.dumps(asdict(found)).encode())
    return found


def review_key(ledger: Ledger) -> str:
    """Changes with the labels, the classes in use and the settings that matter."""
    settings = read_settings(ledger)
    facts = [last_event(ledger), [[one.id, one.name] for one in list_classes(ledger)], settings.learner]
    return hashlib.sha256(json.dumps([VERSION, *facts, chosen_backbone(settings.backbone)]).encode()).hexdigest()[:32]


def kept_review(ledger: Ledger) -> Review | None:
    """What was found last, perhaps from older labels; None where nothing is kept, or it cannot be read."""
    try:
        facts = json.loads(read_regular(ledger.files / FOLDER / ERRORS_FILE))
        errors = [one | {name: tuple(one[name]) for name in ("annotators", "neighbours")} for one in facts["errors"]]
        return Review(tuple(LabelError(**one) for one in errors), facts["checked"], facts["labels"], facts["key"])
    except (OSError, BadFile, ValueError, KeyError, TypeError):
        return None


def _checked(ledger: Ledger, key: str, report: Progress) -> Review:
    settings = read_settings(ledger)
    everything = labelled_set(ledger)
    check_enough(everything.counts())
    embedding = embed(ledger, everything.images, backbone=settings.backbone, report=report)
    labelled = with_features(everything, embedding)
    check_enough(labelled.counts())
    features = embedding.features[embedding.rows(labelled.images)[0]]
    held = held_out_proba(settings.learner, features, labelled, report=report)
    report(1.0, "ranking the labels")
    quality, likely, ranked = rank_labels(labelled.labels[held.rows], held.proba)
    order = ranked[likely[ranked] | (quality[ranked] < SURE)]
    decided = {row[0] for row in ledger.read("SELECT image_id FROM settled")}
    kept = [at for at in order.tolist() if int(labelled.images[held.rows[at]]) not in decided][:MOST_KEPT]
    errors = _findings(ledger, labelled, features, held, quality, likely, kept)
    return Review(errors, len(held.rows), len(everything), key)


def need_cleanlab() -> None:
    """Raise MissingExtra where cleanlab is not installed."""
    try:
        import cleanlab  # noqa: F401
    except ImportError as error:
        raise MissingExtra.named("finding label errors", "cleanlab", "review") from error


def check_enough(counts: IntArray) -> None:
    """That two classes have two labels each."""
    if np.count_nonzero(counts >= 2) < 2:
        raise TooFewLabels(f"{many(int(counts.sum()), 'label')} cannot be checked; {TOO_FEW}")


def held_out_proba(
    learner: str, features: FloatArray, labelled: Labelled, *, report: Progress = no_progress
) -> OutOfFold:  # fmt: skip
    """Calibrated probabilities of each labelled image by a model that has not learnt from it."""
    head, classes = head_named(learner), len(labelled.class_ids)

    def checking(share: float, _: str) -> None:
        report(share, f"checking {many(len(labelled), 'label')}")

    held = out_of_fold(
        head, features, labelled.labels, classes=classes, folds=FOLDS, seed=SEED, report=checking
    )  # fmt: skip
    return calibrated(held, head, labelled.labels)


def calibrated(held: OutOfFold, head: Learner, labels: IntArray) -> OutOfFold:
    """Held-out probabilities with a temperature that is fitted to all labels (n,)."""
    shares = trained_shares(head, labels, held.proba.shape[1])
    truth = labels[held.rows]
    proba = as_of_the_whole_set(held, head, labels, shares)
    temperature = fit_temperature(proba, truth, shares=shares, spread=USUAL_SPREAD)
    tempered = np.asarray(with_temperature(proba, temperature, shares), dtype=np.float64)
    return OutOfFold(held.rows, tempered / tempered.sum(axis=1, keepdims=True), held.folds)


def rank_labels(labels: IntArray, proba: FloatArray) -> tuple[Float64Array, BoolArray, IntArray]:
    """cleanlab's quality of each label, (m,), low for wrong ones; which are likely wrong, (m,); and all, worst first.

    The worst are those whose given class is the least likely compared with the likeliest other one. cleanlab estimates
    how many labels are wrong (its joint distribution of given and true labels); where classes are hard to distinguish,
    it counts the model's own errors, so only those count for which one other class is more likely than not, and ten
    times as likely as the given one. As many of the worst are likely wrong (benchmarks/quality/label_errors.py).
    """
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few labels per class: people see the findings one by one
        quality = np.asarray(get_label_quality_scores(labels, proba, method="self_confidence"), dtype=np.float64)
        wrong = int(np.count_nonzero(find_label_issues(labels, proba, n_jobs=1)))
    others = proba.astype(np.float64)
    others[np.arange(len(labels)), labels] = 0
    other = others.max(axis=1)  # (m,)
    counted = np.argsort(quality, kind="stable")[:wrong]
    count = np.count_nonzero((other[counted] > SURE) & (other[counted] >= TIMES * quality[counted]))
    order = np.argsort(quality / np.maximum(other, TINY), kind="stable")
    likely = np.zeros(len(labels), dtype=bool)
    likely[order[:count]] = True
    return quality, likely, order


def _findings(
    ledger: Ledger, labelled: Labelled, features: FloatArray, held: OutOfFold, quality: Float64Array,
    likely: BoolArray, kept: Sequence[int],
) -> tuple[LabelError, ...]:  # fmt: skip
    names = {one.id: one.name for one in list_classes(ledger, retired=True)}
    rows = [int(held.rows[at]) for at in kept]
    said = given_by(ledger, [int(labelled.images[row]) for row in rows])
    length = np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    unit = features / length
    found = []
    for at, row in zip(kept, rows, strict=True):
        best = int(np.where(np.arange(len(labelled.class_ids)) == labelled.labels[row], -1, held.proba[at]).argmax())
        image: ImageRow = find_image(ledger, int(labelled.images[row]))
        given_id, suggested_id = labelled.class_ids[labelled.labels[row]], labelled.class_ids[best]
        found.append(
            LabelError(
                image.id, image.key, image.path, names[given_id], given_id, names[suggested_id], suggested_id,
                float(held.proba[at, best]), float(quality[at]), bool(likely[at]),
                said.get((image.id, given_id), ()), _nearest(unit, labelled, row, best),
            )
        )  # fmt: skip
    return tuple(found)


def _nearest(unit: FloatArray, labelled: Labelled, row: int, column: int) -> tuple[int, ...]:
    """The labelled images of a class that are most similar to one, ties by id."""
    members = np.flatnonzero(labelled.labels == column)
    order = np.argsort(-(unit[members] @ unit[row]), kind="stable")[:NEIGHBOURS]
    return tuple(int(number) for number in labelled.images[members[order]])


def given_by(ledger: Ledger, images: Sequence[int]) -> Mapping[tuple[int, int], tuple[str, ...]]:
    """Who says that an image belongs to a class, by (image, class)."""
    rows = ledger.read(
        "SELECT image_id, class_id, annotator FROM answer WHERE kind = 'label' "
        "AND image_id IN (SELECT value FROM json_each(?)) ORDER BY annotator",
        (json.dumps(list(images)),),
    )
    said: dict[tuple[int, int], tuple[str, ...]] = {}
    for row in rows:
        at = (row["image_id"], row["class_id"])
        said[at] = (*said.get(at, ()), row["annotator"])
    return said
