"""The next round of a campaign: a budget in, images worth labelling out, with why, and opened for people to label.

Fit a head on cached features, ask it about the pool, select; before two classes have labels, start by typicality.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from ..calibration import Calibration
from ..cycle import Asking, choose
from ..errors import BadInput, PoolExhausted
from ..inputs import whole_number
from ..strategies import make
from ..types import FloatArray, IntArray, Progress, Selection, unheard
from .cold import choose_cold
from .features import Embedding, embed
from .labels import HasLedger, Labelled, labelled_set, ledger_of
from .ledger import Ledger
from .models import describe, head_named, new_version, save, train, with_features
from .names import many
from .rounds import COUNTS_IN_ROUND, Pick, Round, current_round, open_round
from .state import Settings, changed_settings, check_strategy, read_settings

# Usable, said of by nobody, nor of an image with the same bytes, and not settled; and not waiting in the open round.
# With :skipped, also those that were skipped and nothing else.
_CANDIDATES = """
SELECT i.id FROM image AS i
WHERE i.trouble IS NULL AND i.duplicate_of IS NULL AND i.sha256 IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM spoken WHERE spoken.image_id = i.id)
    AND NOT EXISTS (SELECT 1 FROM image AS d JOIN spoken ON spoken.image_id = d.id WHERE d.duplicate_of = i.id)
    AND (
        :again
        OR (:skipped AND EXISTS (SELECT 1 FROM answer WHERE answer.image_id = i.id))
        OR NOT EXISTS (
            SELECT 1 FROM round_image AS w JOIN round AS r ON r.id = w.round_id
            WHERE w.image_id = i.id AND r.closed_at IS NULL
        )
    )
ORDER BY i.id
"""
_SPOKEN = """
WITH spoken AS MATERIALIZED (
    SELECT image_id FROM answer WHERE NOT :skipped OR kind <> 'skip' UNION SELECT image_id FROM settled
)
"""
_PENDING = f"""
SELECT coalesce(sum(CASE WHEN settled OR lost THEN 0 ELSE max(wanted - given, 0) END), 0) AS answers,
    coalesce(sum(NOT (settled OR lost OR given >= wanted)), 0) AS images, count(*) AS total
FROM (
    SELECT r.wanted,
        (SELECT count(*) FROM answer AS a WHERE a.image_id = r.image_id AND {COUNTS_IN_ROUND}) AS given,
        EXISTS (SELECT 1 FROM settled AS s WHERE s.image_id = r.image_id) AS settled,
        i.trouble IS NOT NULL OR i.duplicate_of IS NOT NULL AS lost
    FROM round_image AS r JOIN round AS o ON o.id = r.round_id JOIN image AS i ON i.id = r.image_id WHERE r.round_id = ?
)
"""
_COUNTS = """
SELECT count(*) AS images, coalesce(sum(trouble IS NOT NULL), 0) AS quarantined,
    coalesce(sum(trouble IS NULL AND duplicate_of IS NOT NULL), 0) AS duplicates,
    coalesce(sum(trouble IS NULL AND duplicate_of IS NULL AND id IN (SELECT image_id FROM spoken)), 0) AS answered,
    coalesce(sum(
        trouble IS NULL AND duplicate_of IS NULL
        AND id IN (SELECT image_id FROM spoken INTERSECT SELECT image_id FROM verdict WHERE outcome = 'skipped')
    ), 0) AS skipped
FROM image
"""


@dataclass(frozen=True, slots=True)
class Pending:
    """What is still to be answered in the open round."""

    round_id: int
    images: int
    answers: int
    total: int  # images of the round

    def __str__(self) -> str:
        whole, missing = many(self.total, "image"), many(self.answers, "answer")
        return f"round {self.round_id} is not finished: {self.images} of its {whole} wait for {missing}"


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A round that was chosen, and opened unless it was only to be proposed.

    Attributes
    ----------
    round: None after a dry run.
    picks: best first, each with the model's guess; no guesses in a cold start.
    strategy, balance: as used; a cold start has its own.
    class_ids: (C,) the order of the counts.
    expected_counts, target: (C,) of the batch; None in a cold start.
    lam, gap, status: of the certificate.
    unreachable: class id, wanted and reachable number.
    candidates: how many images there were to choose from.
    labels: how many labels were learnt from.
    pending: answers that were left in the round before, whose images went back to the pool.
    seconds: by stage: "features", "fit", "choose", "write".
    notes: what else the user should know.
    why: all of this as the ledger keeps it.
    """

    round: Round | None
    picks: tuple[Pick, ...]
    budget: int
    strategy: str
    balance: str
    seed: int
    cold_start: bool
    class_ids: tuple[int, ...]
    expected_counts: tuple[float, ...] | None
    target: tuple[float, ...] | None
    lam: float
    gap: float | None
    status: str
    unreachable: tuple[tuple[int, float, float], ...]
    candidates: int
    labels: int
    model_version: str | None
    backbone: str
    pending: Pending | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    why: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for, checked."""

    budget: int
    strict: bool  # whether the budget was asked for by number; else it is what a round usually has, if so many are left
    strategy: str
    balance: str | float
    calibration: str
    seed: int
    overlap: int
    dry_run: bool
    allow_unfinished: bool
    skipped: bool
    settings: Settings


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """What a strategy chose, before it is written."""

    picks: tuple[Pick, ...]
    selection: Selection
    strategy: str
    balance: str
    cold_start: bool
    model: Any  # the fitted head, or None
    calibration: Calibration
    seconds: Mapping[str, float]
    notes: tuple[str, ...] = ()


def next_round(
    campaign: HasLedger | Ledger, budget: int | None = None, *, strategy: str | None = None,
    balance: str | float | None = None, calibration: str | None = None, seed: int | None = None,
    overlap: int | None = None, dry_run: bool = False, allow_unfinished: bool = False, skipped: bool = False,
    report: Progress = unheard,
) -> Proposal:  # fmt: skip
    """Choose the images to label next and open a round with them.

    Parameters
    ----------
    campaign: a campaign or its ledger, open for writing (reading is enough for a dry run).
    budget: how many images; None: as many as the settings say, or all that are left where these are fewer.
    strategy, balance, calibration, overlap: what is None is taken from the settings. `balance` "none" is λ = 0.
    seed: equal labels and equal seeds give equal rounds; None: the number of the round.
    dry_run: only propose; nothing at all is written.
    allow_unfinished: open the round though the last one is not finished; its unanswered images return to the pool.
    skipped: choose also from the images that people have skipped and not answered.
    report: called with the share that is done and what is being done.
    """
    ledger = ledger_of(campaign)
    asked = _request(
        ledger, budget=budget, strategy=strategy, balance=balance, calibration=calibration, seed=seed, overlap=overlap,
        dry_run=dry_run, allow_unfinished=allow_unfinished, skipped=skipped,
    )  # fmt: skip
    pending = _check_finished(ledger, asked)
    candidates = _candidates(ledger, asked)
    labelled = labelled_set(ledger)
    _check_classes(labelled)
    started = time.perf_counter()
    embedding = embed(
        ledger, np.union1d(candidates, labelled.images), backbone=asked.settings.backbone, keep=not dry_run,
        report=partial(_stage, report, 0.0, 0.6),
    )  # fmt: skip
    features_seconds = time.perf_counter() - started
    readable = candidates[embedding.rows(candidates)[1]]
    asked = _within(ledger, asked, len(readable))
    labelled = with_features(labelled, embedding)
    chosen = _choose(asked, labelled, embedding, readable, report)
    made = _proposal(asked, chosen, labelled, embedding, pending, len(readable), features_seconds)
    return made if dry_run else _write(ledger, asked, chosen, made, labelled, report)


def pending_answers(ledger: Ledger) -> Pending | None:
    """What is still to be answered in the open round; None where no round is open."""
    current = current_round(ledger)
    if current is None:
        return None
    row = ledger.read(_PENDING, (current.id,))[0]
    return Pending(current.id, row["images"], row["answers"], row["total"])


def candidate_images(ledger: Ledger, *, with_open_round: bool = False, skipped: bool = False) -> IntArray:
    """The images that a round may be chosen from, ids ascending; those of the open round only where asked for.

    What was skipped does not come back by itself, round after round; `skipped` asks for it.
    """
    rows = ledger.read(f"{_SPOKEN} {_CANDIDATES}", {"again": with_open_round, "skipped": skipped})
    return np.array([row[0] for row in rows], dtype=np.int64)


def _request(
    ledger: Ledger, *, budget: int | None, strategy: str | None, balance: str | float | None, calibration: str | None,
    seed: int | None, overlap: int | None, dry_run: bool, allow_unfinished: bool, skipped: bool,
) -> Request:  # fmt: skip
    """Settle what was not said, and check what was."""
    usual = read_settings(ledger)
    size = usual.budget if budget is None else budget
    answers = usual.overlap if overlap is None else overlap
    whole_number(size, "budget", least=1)
    whole_number(answers, "overlap", least=1)
    name = usual.strategy if strategy is None else strategy
    weight = usual.balance if balance is None else balance
    weight = 0.0 if isinstance(weight, str) and weight == "none" else weight
    check_strategy(name, weight)  # before any work
    head_named(usual.learner)
    calibrated = usual.calibration if calibration is None else calibration
    changed_settings(usual, {"calibration": calibrated})  # checks it
    if not dry_run and ledger.read_only:
        raise BadInput(f"the campaign {ledger.folder} was opened read-only; open it for writing, or ask for a dry run")
    draw = _next_number(ledger) if seed is None else whole_number(seed, "seed")
    return Request(
        int(size), budget is not None, name, weight, calibrated, draw, int(answers), dry_run, allow_unfinished, skipped,
        usual,
    )  # fmt: skip


def _next_number(ledger: Ledger) -> int:
    """The number of the round that will be opened."""
    return 1 + int(ledger.read("SELECT coalesce(max(id), 0) FROM round")[0][0])


def _check_finished(ledger: Ledger, asked: Request) -> Pending | None:
    pending = pending_answers(ledger)
    if pending is None or not pending.images:
        return None
    if not asked.allow_unfinished:
        raise BadInput(
            f"{pending}; answer them, or open the next round all the same with allow_unfinished=True "
            "(--allow-unfinished): what is unanswered goes back to the pool"
        )
    return pending


def _check_classes(labelled: Labelled) -> None:
    if not labelled.class_ids:
        raise BadInput("the campaign has no classes in use; add at least one before choosing what to label")


def _candidates(ledger: Ledger, asked: Request) -> IntArray:
    candidates = candidate_images(ledger, with_open_round=asked.allow_unfinished, skipped=asked.skipped)
    _within(ledger, asked, len(candidates))
    return candidates


def _within(ledger: Ledger, asked: Request, left: int) -> Request:
    """The request, for all that is left where that is less than a round usually has; what was asked for is not cut."""
    if asked.budget <= left:
        return asked
    if asked.strict or not left:
        raise _exhausted(ledger, asked, left)
    return replace(asked, budget=left)


def _exhausted(ledger: Ledger, asked: Request, left: int) -> PoolExhausted:
    row = ledger.read(f"{_SPOKEN} {_COUNTS}", {"skipped": asked.skipped})[0]
    again = f"; {many(row['skipped'], 'image was', 'images were')} skipped: skipped=True (--skipped) takes these, too"
    return PoolExhausted(
        f"asked for {many(asked.budget, 'image')}, but only {left:,} {'is' if left == 1 else 'are'} left to choose "
        f"from: of {many(row['images'], 'image')} {row['answered']:,} are answered, {row['duplicates']:,} duplicates "
        f"and {row['quarantined']:,} in quarantine; lower the budget or add images{again if row['skipped'] else ''}"
    )


def _choose(
    asked: Request, labelled: Labelled, embedding: Embedding, candidates: IntArray, report: Progress
) -> Chosen:  # fmt: skip
    seen = int(np.count_nonzero(labelled.counts()))
    if seen < 2:
        return _choose_cold(asked, labelled, embedding, candidates, report)
    return _choose_by_model(asked, labelled, embedding, candidates, report)


def _choose_cold(
    asked: Request, labelled: Labelled, embedding: Embedding, candidates: IntArray, report: Progress
) -> Chosen:  # fmt: skip
    """Without a model: typical images of parts of the pool that no label covers yet."""
    report(0.7, f"choosing {asked.budget:,} of {len(candidates):,} without a model")
    started = time.perf_counter()
    pool, covered = (embedding.features[embedding.rows(ids)[0]] for ids in (candidates, labelled.images))
    selection = choose_cold(
        pool, covered, asked.budget, strategy=asked.strategy, classes=len(labelled.class_ids), seed=asked.seed
    )
    picks = tuple(Pick(int(candidates[row]), wanted=asked.overlap) for row in selection.indices.tolist())
    state = "nothing is labelled yet" if not len(labelled) else "only one class has labels"
    note = f"{state}: images are chosen by {selection.method}, without a model"
    seconds = {"choose": time.perf_counter() - started}
    return Chosen(picks, selection, selection.method, "none", True, None, Calibration(), seconds, (note,))


def _choose_by_model(
    asked: Request, labelled: Labelled, embedding: Embedding, candidates: IntArray, report: Progress
) -> Chosen:  # fmt: skip
    started = time.perf_counter()
    settings = asked.settings
    model, images = train(
        labelled, embedding, learner=settings.learner, seed=asked.seed, report=partial(_stage, report, 0.6, 0.7)
    )
    fitted = time.perf_counter()
    pool = embedding.features[embedding.rows(candidates)[0]]
    choice = choose(
        make(asked.strategy, balance=asked.balance), head_named(settings.learner), model, images, pool, asked.budget,
        asking=Asking(asked.calibration), seed=asked.seed, report=partial(_stage, report, 0.7, 0.95),
    )  # fmt: skip
    indices = choice.selection.indices
    proba = choice.calibration.apply(np.asarray(model.predict_proba(pool[indices])))
    picks = _with_guesses(candidates[indices], proba, labelled.class_ids, asked.overlap)
    seconds = {"fit": fitted - started, "choose": time.perf_counter() - fitted}
    balance = asked.balance if isinstance(asked.balance, str) else f"{asked.balance:g}"
    return Chosen(picks, choice.selection, asked.strategy, balance, False, model, choice.calibration, seconds)


def _with_guesses(images: IntArray, proba: FloatArray, class_ids: tuple[int, ...], wanted: int) -> tuple[Pick, ...]:
    best = proba.argmax(axis=1)
    sure = proba[np.arange(len(best)), best]
    return tuple(
        Pick(image, class_ids[place], float(confidence), wanted)
        for image, place, confidence in zip(images.tolist(), best.tolist(), sure.tolist(), strict=True)
    )


def _proposal(
    asked: Request, chosen: Chosen, labelled: Labelled, embedding: Embedding, pending: Pending | None,
    candidates: int, features_seconds: float,
) -> Proposal:  # fmt: skip
    selection, cold = chosen.selection, chosen.cold_start
    counted = None if cold else tuple(float(count) for count in selection.expected_counts)
    wanted = None if cold else tuple(float(count) for count in selection.target)
    trust = [] if selection.trust is None else [str(selection.trust)]
    notes = (*chosen.notes, *trust, *selection.notes, *_last_ones(asked), *_notes(labelled, embedding, pending))
    made = Proposal(
        None, chosen.picks, asked.budget, chosen.strategy, chosen.balance, asked.seed, cold, labelled.class_ids,
        counted, wanted, selection.lam, selection.gap if np.isfinite(selection.gap) else None, selection.status,
        tuple((labelled.class_ids[one.cls], one.wanted, one.reachable) for one in selection.unreachable),
        candidates, len(labelled), None, embedding.backbone, pending,
        {"features": features_seconds, **chosen.seconds}, notes,
    )  # fmt: skip
    return replace(made, why=_why(made, selection, labelled))


def _last_ones(asked: Request) -> list[str]:
    usual = asked.settings.budget
    if asked.strict or asked.budget == usual:
        return []
    left = many(asked.budget, "image is", "images are")
    return [f"{left} left to choose from, fewer than the usual {usual:,}: the round has all of them"]


def _notes(labelled: Labelled, embedding: Embedding, pending: Pending | None) -> list[str]:
    notes = []
    if pending is not None:
        notes.append(
            f"round {pending.round_id} was left with {many(pending.answers, 'answer')} pending; "
            f"{many(pending.images, 'unanswered image is', 'unanswered images are')} back in the pool"
        )
    if embedding.troubles:
        _, path, reason = embedding.troubles[0]
        more = f" and {len(embedding.troubles) - 1} more" if len(embedding.troubles) > 1 else ""
        notes.append(f"could not be read and is left out: {path} ({reason}){more}")
    if labelled.disputed:
        left_out = many(labelled.disputed, "label is", "labels are")
        notes.append(f"{left_out} left out: images with equal bytes have different labels")
    missing = [number for number, count in zip(labelled.class_ids, labelled.counts(), strict=True) if not count]
    if missing and len(labelled):
        have = "has" if len(missing) == 1 else "have"
        notes.append(f"{len(missing)} of {len(labelled.class_ids)} classes {have} no label yet")
    return [*notes, *([embedding.note] if embedding.note else [])]


def _why(made: Proposal, selection: Selection, labelled: Labelled) -> dict[str, Any]:
    plain = selection.to_dict()
    kept = {name: plain[name] for name in ("lam", "gap", "status", "objective", "bound", "l1", "informativeness")}
    return kept | {
        "expected_counts": None if made.expected_counts is None else list(made.expected_counts),
        "target": None if made.target is None else list(made.target),
        "counts_std": None if made.cold_start else plain["counts_std"],
        "trust": plain["trust"],
        "class_ids": list(made.class_ids),
        "unreachable": [
            {"class_id": number, "wanted": wanted, "reachable": reachable}
            for number, wanted, reachable in made.unreachable
        ],
        "seconds": sum(made.seconds.values()),
        "stages": dict(made.seconds),
        "cold_start": made.cold_start,
        "candidates": made.candidates,
        "labels": made.labels,
        "counts": labelled.counts().tolist(),
        "last_event": labelled.last_event,
        "backbone": made.backbone,
        "notes": list(made.notes),
    }


def _write(
    ledger: Ledger, asked: Request, chosen: Chosen, made: Proposal, labelled: Labelled, report: Progress
) -> Proposal:  # fmt: skip
    """Model first, which is a file; then its row and the round, in one transaction: a crash leaves no half of it."""
    report(0.95, "opening the round")
    started = time.perf_counter()
    row = None
    if chosen.model is not None:
        version = new_version(_next_number(ledger))
        checksum = save(ledger, version, chosen.model)
        row = describe(
            version, ledger, labelled, learner=asked.settings.learner, backbone=made.backbone, seed=asked.seed,
            calibration=chosen.calibration, checksum=checksum,
        )  # fmt: skip
    with ledger.writing():
        picks = _still_open(ledger, asked, made.picks)
        dropped = len(made.picks) - len(picks)
        which = many(dropped, "of the images chosen was", "of the images chosen were")
        note = f"{which} answered or lost meanwhile, and left out"
        notes = (*made.notes, note) if dropped else made.notes
        seconds = {**made.seconds, "write": time.perf_counter() - started}
        why = {**made.why, "notes": list(notes), "stages": seconds, "seconds": sum(seconds.values())}
        opened = open_round(
            ledger, picks, budget=asked.budget, strategy=made.strategy, balance=made.balance, seed=asked.seed,
            model=row, why=why,
        )  # fmt: skip
    report(1.0, f"round {opened.id} is open")
    version_used = None if row is None else row.version
    return replace(
        made, round=opened, picks=picks, model_version=version_used, seconds=seconds, notes=notes, why=why
    )  # fmt: skip


def _still_open(ledger: Ledger, asked: Request, picks: tuple[Pick, ...]) -> tuple[Pick, ...]:
    """Those picks that nobody has answered while they were being chosen; and the round before is still finished."""
    _check_finished(ledger, asked)
    left = set(candidate_images(ledger, with_open_round=asked.allow_unfinished, skipped=asked.skipped).tolist())
    kept = tuple(pick for pick in picks if pick.image in left)
    if not kept:
        raise PoolExhausted("all images chosen were answered while they were being chosen; choose again")
    return kept


def _stage(report: Progress, start: float, end: float, done: float, what: str) -> None:
    """A stage's own share within the whole."""
    report(start + (end - start) * min(max(done, 0.0), 1.0), what)
