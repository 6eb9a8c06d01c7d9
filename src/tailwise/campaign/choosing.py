"""The next round of a campaign: train a head on cached features, predict the pool, select a batch, open a round.

Before two classes have labels there is no model, and a typical and diverse batch is chosen from the features alone.
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
from ..inputs import many, whole_number
from ..learners.learner import Learner
from ..learners.linear import Float32Array
from ..selection import Bar, Selection, html_summary, html_table
from ..strategies import cold_start, make
from ..types import FloatArray, IntArray, Progress, no_progress
from .audit import Drawn, draw, mixed
from .classes import list_classes
from .features import Embedding, embed, main_axes
from .ledger import HasLedger, Ledger, ledger_of
from .models import Labelled, describe, head_named, labelled_set, save, train, with_features
from .rounds import (
    POOL_COUNTS,
    Pending,
    Pick,
    Round,
    candidate_images,
    how_chosen,
    open_round,
    pending_answers,
)
from .state import Settings, changed_settings, check_strategy, read_settings


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
    class_names: (C,) the names of the classes.
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
    class_names: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        """For notebooks: what was chosen and how, and a bar for every class."""
        title = "A dry run" if self.round is None else f"Round {self.round.id}"
        how = how_chosen(self.strategy, self.status, self.balance, self.lam)
        chosen = f"{len(self.picks):,} of {many(self.candidates, 'image')}"
        facts = f"{chosen} · {how} · learnt from {many(self.labels, 'label')}"
        if self.expected_counts is None or self.target is None:
            return html_summary(title, facts, self.notes)
        longest = max(*self.expected_counts, *self.target)
        rows = [
            (name, f"{had:,}", f"{wanted:.1f}", f"{expected:.1f}", Bar(expected, longest, wanted))
            for name, had, wanted, expected in zip(
                self.class_names or map(str, self.class_ids), self.why["counts"], self.target, self.expected_counts,
                strict=True,
            )
        ]  # fmt: skip
        table = html_table(("class", "labelled", "target", "expected", ""), rows[:SHOWN_CLASSES], total=len(rows))
        return html_summary(title, facts, self.notes, table)


@dataclass(frozen=True, slots=True)
class RoundOptions:
    """How to choose the next round; options that are not given come from the settings of the campaign.

    Attributes
    ----------
    budget: how many images; None: as many as the settings say, or all that are left where these are fewer.
    balance: "none" is λ = 0.
    seed: equal labels and equal seeds give equal rounds; None: the number of the round.
    dry_run: only propose; nothing at all is written.
    allow_unfinished: open the round even if the last one is not finished; its unanswered images return to the pool.
    skipped: choose also from the images that people have skipped and not answered.
    learner: a name, or an object with `fit` and `predict_proba`, whose model is used for this round and not stored.
    audit: share of the round that is drawn at random, mixed among the others.
    """

    budget: int | None = None
    strategy: str | None = None
    balance: str | float | None = None
    calibration: str | None = None
    seed: int | None = None
    overlap: int | None = None
    dry_run: bool = False
    allow_unfinished: bool = False
    skipped: bool = False
    learner: object = None
    audit: float | None = None


DEFAULT_OPTIONS = RoundOptions()
SHOWN_CLASSES = 24  # in a notebook


@dataclass(frozen=True, slots=True)
class Request:
    """The options with everything filled in and checked."""

    options: RoundOptions
    settings: Settings
    budget: int  # all that is left, where the options name no budget and fewer are left than a round usually has
    strategy: str
    balance: str | float
    calibration: str
    seed: int
    overlap: int
    learner: Learner
    audit: float


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
    campaign: HasLedger | Ledger, options: RoundOptions = DEFAULT_OPTIONS, *, report: Progress = no_progress
) -> Proposal:  # fmt: skip
    """Choose the images to label next and open a round with them; a dry run needs the ledger for reading alone."""
    ledger = ledger_of(campaign)
    asked = _request(ledger, options)
    pending = _check_finished(ledger, options)
    candidates = candidate_images(ledger, with_open_round=options.allow_unfinished, skipped=options.skipped)
    _within_pool(ledger, asked, len(candidates))
    labelled = labelled_set(ledger)
    if not labelled.class_ids:
        raise BadInput("the campaign has no classes in use; add at least one before choosing what to label")
    started = time.perf_counter()
    embedding = embed(
        ledger, np.union1d(candidates, labelled.images), backbone=asked.settings.backbone, keep=not options.dry_run,
        report=partial(_stage, report, 0.0, 0.6),
    )  # fmt: skip
    features_seconds = time.perf_counter() - started
    readable = candidates[embedding.rows(candidates)[1]]
    asked = _within_pool(ledger, asked, len(readable))
    labelled = with_features(labelled, embedding)
    by_model = np.count_nonzero(labelled.counts()) > 1
    drawn = draw(ledger, readable, asked.audit, asked.budget)
    rest = np.setdiff1d(readable, drawn.images)
    chosen = (_choose_by_model if by_model else _choose_without_model)(
        replace(asked, budget=asked.budget - len(drawn.images)), labelled, embedding, rest, report
    )
    chosen = _with_audit(chosen, drawn, labelled, embedding, asked)
    made = _proposal(asked, chosen, labelled, embedding, pending, len(readable), features_seconds)
    names = {one.id: one.name for one in list_classes(ledger)}
    made = replace(made, class_names=tuple(names[number] for number in made.class_ids))
    return made if options.dry_run else _write(ledger, asked, chosen, made, labelled, drawn, report)


def _request(ledger: Ledger, options: RoundOptions) -> Request:
    """Fill in what was not given, and check everything before any work."""
    usual = read_settings(ledger)
    budget = usual.budget if options.budget is None else options.budget
    overlap = usual.overlap if options.overlap is None else options.overlap
    strategy = usual.strategy if options.strategy is None else options.strategy
    balance = usual.balance if options.balance is None else options.balance
    calibration = usual.calibration if options.calibration is None else options.calibration
    whole_number(budget, "budget", least=1)
    whole_number(overlap, "overlap", least=1)
    balance = 0.0 if isinstance(balance, str) and balance == "none" else balance
    check_strategy(strategy, balance)
    learner = head_named(usual.learner if options.learner is None else options.learner)
    audit = usual.audit if options.audit is None else options.audit
    audit = changed_settings(usual, {"calibration": calibration, "audit": audit}).audit  # checked
    if not options.dry_run and ledger.read_only:
        raise BadInput(f"the campaign {ledger.folder} was opened read-only; open it for writing, or ask for a dry run")
    rounds = int(ledger.read("SELECT coalesce(max(id), 0) FROM round")[0][0])
    seed = rounds + 1 if options.seed is None else whole_number(options.seed, "seed")
    return Request(options, usual, int(budget), strategy, balance, calibration, seed, int(overlap), learner, audit)


def _check_finished(ledger: Ledger, options: RoundOptions) -> Pending | None:
    pending = pending_answers(ledger)
    if pending is None or not pending.images:
        return None
    if not options.allow_unfinished:
        raise BadInput(
            f"{pending}; answer them, or open the next round all the same with allow_unfinished=True "
            "(--allow-unfinished): what is unanswered goes back to the pool"
        )
    return pending


def _within_pool(ledger: Ledger, asked: Request, left: int) -> Request:
    """The request, for all that is left where that is less than a round usually has; a given budget is not lowered."""
    if asked.budget <= left:
        return asked
    if asked.options.budget is None and left:
        return replace(asked, budget=left)
    pool = ledger.read(POOL_COUNTS, {"skipped": asked.options.skipped})[0]
    skipped = many(pool["skipped"], "image was", "images were")
    again = f"; {skipped} skipped: skipped=True (--skipped) takes these, too" if pool["skipped"] else ""
    raise PoolExhausted(
        f"asked for {many(asked.budget, 'image')}, but only {left:,} {'is' if left == 1 else 'are'} left to choose "
        f"from: of {many(pool['images'], 'image')} {pool['answered']:,} are answered, {pool['duplicates']:,} "
        f"duplicates and {pool['quarantined']:,} in quarantine; lower the budget or add images{again}"
    )


def _choose_without_model(
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
    model, images = train(
        labelled, embedding, learner=asked.learner, seed=asked.seed, report=partial(_stage, report, 0.6, 0.7)
    )
    fitted = time.perf_counter()
    pool = embedding.features[embedding.rows(candidates)[0]]
    choice = choose(
        make(asked.strategy, balance=asked.balance), asked.learner, model, images, pool, asked.budget, seed=asked.seed,
        asking=Asking(asked.calibration, drawn=labelled.drawn()), report=partial(_stage, report, 0.7, 0.95),
    )  # fmt: skip
    indices = choice.selection.indices
    calibration = choice.calibration.shown()
    proba = calibration.apply(np.asarray(model.predict_proba(pool[indices])))
    picks = _with_guesses(candidates[indices], proba, labelled.class_ids, asked.overlap)
    seconds = {"fit": fitted - started, "choose": time.perf_counter() - fitted}
    balance = asked.balance if isinstance(asked.balance, str) else f"{asked.balance:g}"
    return Chosen(picks, choice.selection, asked.strategy, balance, False, model, calibration, seconds)


def _with_guesses(images: IntArray, proba: FloatArray, class_ids: tuple[int, ...], wanted: int) -> tuple[Pick, ...]:
    best = proba.argmax(axis=1)
    sure = proba[np.arange(len(best)), best]
    return tuple(
        Pick(image, class_ids[place], float(confidence), wanted)
        for image, place, confidence in zip(images.tolist(), best.tolist(), sure.tolist(), strict=True)
    )


def _with_audit(
    chosen: Chosen, drawn: Drawn, labelled: Labelled, embedding: Embedding, asked: Request
) -> Chosen:  # fmt: skip
    """Mix the images of the audit among the chosen ones, with the model's guesses like these."""
    if not len(drawn.images):
        return chosen
    picks = tuple(Pick(image, wanted=asked.overlap) for image in drawn.images.tolist())
    if chosen.model is not None:
        features = embedding.features[embedding.rows(drawn.images)[0]]
        proba = chosen.calibration.apply(np.asarray(chosen.model.predict_proba(features)))
        picks = _with_guesses(drawn.images, proba, labelled.class_ids, asked.overlap)
    return replace(chosen, picks=mixed(chosen.picks, picks, asked.seed), notes=(*chosen.notes, str(drawn)))


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
    if asked.options.budget is not None or asked.budget == usual:
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
    ledger: Ledger, asked: Request, chosen: Chosen, made: Proposal, labelled: Labelled, drawn: Drawn, report: Progress
) -> Proposal:  # fmt: skip
    """Model first, which is a file; then its row and the round, in one transaction: a crash leaves no half of it."""
    report(0.95, "opening the round")
    started = time.perf_counter()
    options, row = asked.options, None
    if chosen.model is not None:
        number = 1 + int(ledger.read("SELECT coalesce(max(id), 0) FROM round")[0][0])
        version = f"round-{number}-{time.time_ns() // 1_000_000:x}"  # two tries differ
        checksum = save(ledger, version, chosen.model)
        row = describe(
            version, ledger, labelled, learner=asked.learner.name, backbone=made.backbone, seed=asked.seed,
            calibration=chosen.calibration, checksum=checksum,
        )  # fmt: skip
        if not isinstance(options.learner, str | None):
            row = replace(row, settings={**row.settings, "own": True})
    with ledger.writing():
        _check_finished(ledger, options)
        left = candidate_images(ledger, with_open_round=options.allow_unfinished, skipped=options.skipped)
        still_open = set(left.tolist())
        picks = tuple(pick for pick in made.picks if pick.image in still_open)
        if not picks:
            raise PoolExhausted("all images chosen were answered while they were being chosen; choose again")
        dropped = len(made.picks) - len(picks)
        which = many(dropped, "of the images chosen was", "of the images chosen were")
        note = f"{which} answered or lost meanwhile, and left out"
        notes = (*made.notes, note) if dropped else made.notes
        seconds = {**made.seconds, "write": time.perf_counter() - started}
        why = {**made.why, "notes": list(notes), "stages": seconds, "seconds": sum(seconds.values())}
        opened = open_round(
            ledger, picks, budget=asked.budget, strategy=made.strategy, balance=made.balance, seed=asked.seed,
            model=row, why=why, draw=drawn.source,
        )  # fmt: skip
    report(1.0, f"round {opened.id} is open")
    version_used = None if row is None else row.version
    return replace(
        made, round=opened, picks=picks, model_version=version_used, seconds=seconds, notes=notes, why=why
    )  # fmt: skip


def _stage(report: Progress, start: float, end: float, done: float, what: str) -> None:
    """A stage's own share within the whole."""
    report(start + (end - start) * min(max(done, 0.0), 1.0), what)


STRATEGY = "typiclust"
WITHOUT_MODEL = ("random", "kcenter", "maxherding", "uherding", STRATEGY)  # they need no model for a first batch


def choose_cold(
    pool: Float32Array, labelled: Float32Array, budget: int, *, strategy: str, classes: int, seed: int
) -> Selection:
    """Rows of the pool, chosen by a strategy that needs no model, or else by TypiClust, away from what is labelled."""
    name = strategy if strategy in WITHOUT_MODEL else STRATEGY
    short, labelled_short = main_axes(pool, labelled)
    blank = replace(cold_start(short, classes=classes), labelled_embeddings=labelled_short)
    return make(name, balance=0.0).select(blank, budget, seed=seed)
