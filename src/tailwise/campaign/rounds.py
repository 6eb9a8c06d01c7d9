"""Rounds: batches of images to label, each with the model that chose it, and the images left to choose from."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BadInput, UnknownName
from ..inputs import many, shown
from ..selection import html_summary, html_table
from ..types import IntArray
from .classes import clean_annotator
from .ledger import Ledger, now

# Of answers `a` to an image `r` of a round `o`: all but skips from before the round. A skip does not answer it, but
# its annotator is not asked again in the round.
COUNTS_IN_ROUND = "(a.kind <> 'skip' OR a.round_id >= r.round_id OR (a.round_id IS NULL AND a.at >= o.opened_at))"

FEWEST_HELD_OUT = 30  # with as many, confidence was within 10 points of accuracy in 96 % of all trials


@dataclass(frozen=True, slots=True)
class Pick:
    """An image of a round, with the model's guess."""

    image: int
    predicted: int | None = None  # class id
    confidence: float | None = None
    wanted: int = 1  # answers, by as many people
    audit: bool = False  # whether it was drawn at random


@dataclass(frozen=True, slots=True)
class AuditDraw:
    """What the images of an audit were drawn from."""

    population: int  # images that could have been drawn
    last_image: int  # of those that the series of draws goes through


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model that was trained for a round."""

    version: str
    learner: str
    settings: Mapping[str, Any]
    labels: int  # that it was trained on
    class_ids: tuple[int, ...]  # the order of its columns
    summary: Mapping[str, Any] = field(default_factory=dict)
    at: int | None = None  # None: now

    @property
    def rough(self) -> bool:
        """Whether its probabilities were calibrated on too few labels: those that are not alone in their class."""
        return sum(int(n) for n in self.summary.get("counts", [FEWEST_HELD_OUT]) if n > 1) < FEWEST_HELD_OUT


@dataclass(frozen=True, slots=True)
class Round:
    """A batch that was chosen to be labelled."""

    id: int  # its number, from 1
    opened_at: int
    closed_at: int | None  # None: it is open
    budget: int
    strategy: str
    balance: str
    seed: int
    model_version: str | None
    why: Mapping[str, Any]

    @property
    def is_open(self) -> bool:
        """Whether its images are still to be labelled."""
        return self.closed_at is None

    def _repr_html_(self) -> str:
        return Rounds([self])._repr_html_()


class Rounds(list[Round]):
    """A list of rounds that notebooks show as a table."""

    def _repr_html_(self) -> str:
        rows = [
            (
                one.id, f"{datetime.fromtimestamp(one.opened_at // 1_000_000, UTC):%Y-%m-%d %H:%M} UTC",
                f"{one.budget:,}",
                how_chosen(one.strategy, one.why.get("status", ""), one.balance, one.why.get("lam")),
                f"{one.why.get('labels', 0):,}", "open" if one.is_open else "closed",
            )
            for one in self
        ]  # fmt: skip
        header = ("round", "opened", "images", "chosen by", "learnt from", "")
        return html_summary(many(len(self), "round"), "", (), html_table(header, rows))


@dataclass(frozen=True, slots=True)
class Asked:
    """An image with the round that asked for it last, if any did."""

    image: int
    round_id: int | None
    model_version: str | None


@dataclass(frozen=True, slots=True)
class RoundProgress:
    """How far a round is, counted from what people said."""

    round_id: int
    images: int
    done: int  # images with all the answers or skips they want, or settled, or in quarantine by now
    remaining: int  # images that are not done
    answers: int  # standing answers to its images, skips among them
    mine: int  # of these, by the person asked about
    complete: bool


def open_round(
    ledger: Ledger, picks: Sequence[Pick], *, budget: int, strategy: str, balance: str = "none", seed: int = 0,
    model: ModelRow | None = None, why: Mapping[str, Any] | None = None, at: int | None = None,
    draw: AuditDraw | None = None,
) -> Round:  # fmt: skip
    """Close the open round, if there is one, and open the next with these images, best first; and keep its model."""
    _check_picks(picks)
    moment = now() if at is None else at
    with ledger.writing() as connection:
        close_round(ledger, at=moment)
        if model is not None:
            _insert_model(connection, model, moment)
        number = 1 + connection.execute("SELECT coalesce(max(id), 0) FROM round").fetchone()[0]
        version = None if model is None else model.version
        reason = _json(why or {}, "a round's reasons")
        connection.execute(
            "INSERT INTO round (id, opened_at, budget, strategy, balance, seed, model_version, why) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (number, moment, budget, strategy, balance, seed, version, reason),
        )
        _insert_picks(connection, number, picks)
        drawn = sum(pick.audit for pick in picks)
        if draw is not None and drawn:
            connection.execute(
                "INSERT INTO audit_draw (round_id, drawn, population, last_image, at) VALUES (?, ?, ?, ?, ?)",
                (number, drawn, draw.population, draw.last_image, moment),
            )
    return find_round(ledger, number)


def close_round(ledger: Ledger, *, at: int | None = None) -> Round | None:
    """Close the open round and end the leases of its images; None where none was open. Late answers still count."""
    with ledger.writing() as connection:
        current = current_round(ledger)
        if current is None:
            return None
        moment = max(now() if at is None else at, current.opened_at)
        connection.execute("UPDATE round SET closed_at = ? WHERE id = ?", (moment, current.id))
        connection.execute("DELETE FROM lease")
    return find_round(ledger, current.id)


def current_round(ledger: Ledger) -> Round | None:
    """The open round, or None."""
    rows = ledger.read("SELECT * FROM round WHERE closed_at IS NULL")
    return _round(rows[0]) if rows else None


def find_round(ledger: Ledger, number: int) -> Round:
    """A round by its number."""
    rows = ledger.read("SELECT * FROM round WHERE id = ?", (number,))
    if not rows:
        last = ledger.read("SELECT coalesce(max(id), 0) FROM round")[0][0]
        raise UnknownName(f"no round has the number {number}; the last one is {last}")
    return _round(rows[0])


def round_number(ledger: Ledger, asked: int | str) -> int:
    """The number of a round; "open" is the one that is open."""
    if isinstance(asked, int) and not isinstance(asked, bool):
        return find_round(ledger, asked).id
    if asked != "open":
        raise BadInput(f"the round is {shown(asked)}; give its number, or 'open'")
    if (found := current_round(ledger)) is None:
        raise BadInput("no round is open; choose one with `tailwise next`, or name a round by its number")
    return found.id


def list_rounds(ledger: Ledger) -> Rounds:
    """All rounds, the first one first."""
    return Rounds(map(_round, ledger.read("SELECT * FROM round ORDER BY id")))


def round_picks(ledger: Ledger, number: int) -> list[Pick]:
    """The images of a round, best first."""
    rows = ledger.read(
        "SELECT image_id, predicted, confidence, wanted, audit FROM round_image WHERE round_id = ? ORDER BY rank",
        (number,),
    )
    return [Pick(image, guess, sure, wanted, bool(audit)) for image, guess, sure, wanted, audit in rows]


def find_draw(ledger: Ledger, number: int) -> AuditDraw | None:
    """The draw of a round's audit, or None."""
    rows = ledger.read("SELECT population, last_image FROM audit_draw WHERE round_id = ?", (number,))
    return AuditDraw(*rows[0]) if rows else None


@dataclass(frozen=True, slots=True)
class RoundPick:
    """An image that a round asks for."""

    rank: int  # from 1, the best first
    path: Path  # of the file
    predicted: str | None  # the class that the model thought of when it was chosen
    confidence: float | None
    labelled: bool  # whether it has a label by now


def read_picks(ledger: Ledger, asked: int | str) -> list[RoundPick]:
    """The images of a round with their files, best first; a number, or "open"."""
    rows = ledger.read(
        "SELECT f.path AS folder, i.path, c.name, r.confidence, l.image_id IS NOT NULL AS labelled "
        "FROM round_image AS r JOIN image AS i ON i.id = r.image_id JOIN folder AS f ON f.id = i.folder_id "
        "LEFT JOIN class AS c ON c.id = r.predicted LEFT JOIN current_label AS l ON l.image_id = i.id "
        "WHERE r.round_id = ? ORDER BY r.rank",
        (round_number(ledger, asked),),
    )
    return [
        RoundPick(at, Path(row["folder"], row["path"]), row["name"], row["confidence"], bool(row["labelled"]))
        for at, row in enumerate(rows, 1)
    ]


def asked_last(ledger: Ledger, key: str) -> Asked | None:
    """The image with this key and its last round, which may be closed by now; None where no image has the key."""
    rows = ledger.read(
        "SELECT i.id, r.id, r.model_version FROM image AS i LEFT JOIN round AS r "
        "ON r.id = (SELECT max(round_id) FROM round_image WHERE image_id = i.id) WHERE i.key = ?",
        (key,),
    )
    return Asked(*rows[0]) if rows else None


def progress(ledger: Ledger, number: int, annotator: str | None = None) -> RoundProgress:
    """Count how far a round is, and how many of its images one person has answered."""
    name = None if annotator is None else clean_annotator(annotator)
    find_round(ledger, number)
    row = ledger.read(_PROGRESS, {"round": number, "me": name})[0]
    remaining = row["images"] - row["done"]
    return RoundProgress(number, row["images"], row["done"], remaining, row["answers"], row["mine"], remaining == 0)


def find_model(ledger: Ledger, version: str) -> ModelRow:
    """What the ledger says of a model."""
    rows = ledger.read("SELECT * FROM model WHERE version = ?", (version,))
    if not rows:
        raise UnknownName(f"no model has the version {version!r}")
    return _model(rows[0])


def list_models(ledger: Ledger) -> list[ModelRow]:
    """All models, the oldest first."""
    return [_model(row) for row in ledger.read("SELECT * FROM model ORDER BY at, version")]


_PROGRESS = f"""
SELECT count(*) AS images, coalesce(sum(given >= wanted OR settled OR lost), 0) AS done,
    coalesce(sum(given), 0) AS answers, coalesce(sum(mine), 0) AS mine
FROM (
    SELECT r.wanted,
        (SELECT count(*) FROM answer AS a WHERE a.image_id = r.image_id AND {COUNTS_IN_ROUND}) AS given,
        (
            SELECT count(*) FROM answer AS a
            WHERE a.image_id = r.image_id AND a.annotator = :me AND {COUNTS_IN_ROUND}
        ) AS mine,
        EXISTS (SELECT 1 FROM settled AS s WHERE s.image_id = r.image_id) AS settled,
        i.trouble IS NOT NULL OR i.duplicate_of IS NOT NULL AS lost
    FROM round_image AS r JOIN round AS o ON o.id = r.round_id JOIN image AS i ON i.id = r.image_id
    WHERE r.round_id = :round
)
"""


def _check_picks(picks: Sequence[Pick]) -> None:
    if not picks:
        raise BadInput("asked to open a round without images; choose at least one")
    if len({pick.image for pick in picks}) < len(picks):
        raise BadInput("asked to open a round that holds an image twice; choose each image once")
    if min(pick.wanted for pick in picks) < 1:
        raise BadInput("asked to open a round with images that want no answer; each wants at least 1")


def _insert_picks(connection: sqlite3.Connection, number: int, picks: Sequence[Pick]) -> None:
    try:
        connection.executemany(
            "INSERT INTO round_image (round_id, image_id, rank, predicted, confidence, wanted, audit) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(number, pick.image, rank, pick.predicted, pick.confidence, pick.wanted, int(pick.audit))
             for rank, pick in enumerate(picks, start=1)],
        )  # fmt: skip
    except sqlite3.IntegrityError as error:
        raise BadInput("a round names an image or a class that is not in this campaign; choose again") from error


def _insert_model(connection: sqlite3.Connection, model: ModelRow, moment: int) -> None:
    if connection.execute("SELECT 1 FROM model WHERE version = ?", (model.version,)).fetchone():
        raise BadInput(f"a model with the version {model.version!r} is there already; give each its own")
    connection.execute(
        "INSERT INTO model (version, at, learner, settings, labels, class_ids, summary) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            model.version, moment if model.at is None else model.at, model.learner, _json(model.settings, "settings"),
            model.labels, json.dumps(list(model.class_ids)), _json(model.summary, "a model's summary"),
        ),
    )  # fmt: skip


def _json(value: Mapping[str, Any], what: str) -> str:
    try:
        return json.dumps(value, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{what} cannot be kept as JSON: {error}") from error


def _round(row: sqlite3.Row) -> Round:
    return Round(
        row["id"], row["opened_at"], row["closed_at"], row["budget"], row["strategy"], row["balance"], row["seed"],
        row["model_version"], json.loads(row["why"]),
    )  # fmt: skip


def _model(row: sqlite3.Row) -> ModelRow:
    return ModelRow(
        row["version"], row["learner"], json.loads(row["settings"]), row["labels"],
        tuple(json.loads(row["class_ids"])), json.loads(row["summary"]), row["at"],
    )  # fmt: skip


# -- the pool that the next round is chosen from -----------------------------------------------------------------------

# Usable; not answered or settled, nor an image with the same bytes; and not waiting in the open round. With :skipped,
# also those that were skipped and nothing else.
_CANDIDATES = """
SELECT i.id FROM image AS i
WHERE i.trouble IS NULL AND i.duplicate_of IS NULL AND i.sha256 IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM seen WHERE seen.image_id = i.id)
    AND NOT EXISTS (SELECT 1 FROM image AS d JOIN seen ON seen.image_id = d.id WHERE d.duplicate_of = i.id)
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
_SEEN = """
WITH seen AS MATERIALIZED (
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
# The images that are not left to choose from, and why; of the answered, those that all who saw them have skipped.
POOL_COUNTS = f"""
{_SEEN}
SELECT count(*) AS images, coalesce(sum(trouble IS NOT NULL), 0) AS quarantined,
    coalesce(sum(trouble IS NULL AND duplicate_of IS NOT NULL), 0) AS duplicates,
    coalesce(sum(trouble IS NULL AND duplicate_of IS NULL AND id IN (SELECT image_id FROM seen)), 0) AS answered,
    coalesce(sum(
        trouble IS NULL AND duplicate_of IS NULL
        AND id IN (SELECT image_id FROM seen INTERSECT SELECT image_id FROM verdict WHERE outcome = 'skipped')
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
    rows = ledger.read(f"{_SEEN} {_CANDIDATES}", {"again": with_open_round, "skipped": skipped})
    return np.array([row[0] for row in rows], dtype=np.int64)


def how_chosen(strategy: str, status: str, balance: str, lam: float | None) -> str:
    """How the images of a round were chosen, in a few words.

    Boundary covers the pool while labels are few, and fills exact quotas then; its λ says little of either.

    >>> how_chosen("boundary", "greedy", "auto", 0.0), how_chosen("boundary", "optimal chunks", "auto", 0.4)
    ('boundary, covering the pool', 'boundary, exact class quotas')
    >>> how_chosen("boundary", "optimal chunks", "0.5", 0.5), how_chosen("typiclust", "greedy", "none", 0.0)
    ('boundary, λ = 0.5', 'typiclust')
    """
    if strategy == "boundary" and status == "greedy":
        return f"{strategy}, covering the pool"
    if status == "optimal chunks" and balance == "auto":
        return f"{strategy}, exact class quotas"
    return strategy if balance in ("none", "0") or lam is None else f"{strategy}, λ = {lam:.4g}"


def why_counts_differ(strategy: str, status: str) -> str:
    """Why the expected counts of a round may be far from its target; "" where they are chosen to be near it."""
    if strategy == "boundary" and status == "greedy":
        return "While labels are few, or the model is unsure of most images, images are chosen to cover the pool."
    if status == "optimal chunks":
        return "The target gives each class places for images at its border, and some of these are of other classes."
    return ""
