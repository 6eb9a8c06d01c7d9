"""How a campaign stands, counted from the ledger each time it is asked; and its settings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..errors import BadFile, BadInput
from ..inputs import LARGEST_COUNT, check_settings, many, shown, whole_number
from ..selection import Bar, html_summary, html_table
from .answers import annotators
from .classes import list_classes
from .ledger import Ledger, read_meta, write_meta
from .rounds import Round, RoundProgress, current_round, progress

SETTINGS = "settings"
CALIBRATIONS = ("none", "temperature")
SHARES = {"audit": 0.5, "wanted_accuracy": 1.0}  # settings that are shares, with the largest value
ON_PIXELS = ("vaal",)  # its nets look at images, and a campaign has features


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a campaign, used where a call does not name its own."""

    name: str = ""  # the folder's name where it is empty
    backbone: str = "auto"  # how images become features
    learner: str = "linear"
    calibration: str = "temperature"  # or "none"
    strategy: str = "boundary"  # strategies.DEFAULT, whose import would take longer than `tailwise status`
    balance: str = "auto"
    budget: int = 100  # images of a round
    overlap: int = 1  # answers wanted per image
    blind: bool = False  # whether people label without seeing the model's guess
    audit: float = 0.0  # share of each round that is drawn at random from the pool, at most 0.5
    wanted_accuracy: float = 0.9  # at which the audit says that labelling can stop


@dataclass(frozen=True, slots=True)
class Status:
    """How a campaign stands."""

    images: int
    usable: int
    duplicates: int
    quarantined: int
    labelled: int  # decided images that can be used, of retired classes too
    labels: Mapping[int, int]  # all decided images by class id, 0 without any
    other: int  # images of none of the classes
    skipped: int  # images that were skipped by all who saw them
    conflicts: int
    rounds: int
    round: Round | None  # the open one
    progress: RoundProgress | None  # of the open one
    annotators: Mapping[str, int]  # answers by person
    aside: int = 0  # decided images that cannot be used now: in quarantine, or copies; their labels are kept
    class_names: Mapping[int, str] = field(default_factory=dict)  # by class id, the retired ones too

    def _repr_html_(self) -> str:
        """For notebooks: labels by class, the open round, the people."""
        most = max(self.labels.values(), default=0)
        classes = [
            (self.class_names.get(number, f"class {number}"), f"{count:,}", Bar(count, most))
            for number, count in self.labels.items()
        ]
        facts = [many(self.rounds, "round")]
        aside = {
            "copies": self.duplicates, "in quarantine": self.quarantined, "of no class": self.other,
            "skipped": self.skipped, "in conflict": self.conflicts,
        }  # fmt: skip
        facts += [f"{count:,} {what}" for what, count in aside.items() if count]
        notes = []
        if self.progress is not None:
            answered = f"{self.progress.done:,} of {many(self.progress.images, 'image')} answered"
            notes.append(f"Round {self.progress.round_id}: {'complete' if self.progress.complete else answered}.")
        people = [(name, f"{count:,}") for name, count in self.annotators.items()]
        return html_summary(
            f"{self.labelled:,} of {many(self.usable, 'image')} labelled", " · ".join(facts), notes,
            html_table(("class", "labels", ""), classes),
            html_table(("annotator", "answers"), people) if len(people) > 1 else "",
        )  # fmt: skip


def read_status(ledger: Ledger) -> Status:
    """Count everything, at one moment."""
    with ledger.reading():
        images = ledger.read(_IMAGES)[0]
        outcomes = ledger.read("SELECT outcome, class_id, count(*) FROM verdict GROUP BY outcome, class_id")
        names = {one.id: one.name for one in list_classes(ledger, retired=True)}
        labels = dict.fromkeys(names, 0)
        others: Counter[str] = Counter()
        for outcome, class_id, how_many in outcomes:
            if outcome in ("settled", "agreed"):
                labels[class_id] += how_many
            else:
                others[outcome] += how_many
        aside = int(ledger.read(_ASIDE)[0][0])
        current = current_round(ledger)
        return Status(
            images=images["all"], usable=images["usable"], duplicates=images["duplicates"],
            quarantined=images["quarantined"], labelled=sum(labels.values()) - aside, labels=labels,
            other=others["other"], skipped=others["skipped"], conflicts=others["conflict"],
            rounds=ledger.read("SELECT count(*) FROM round")[0][0], round=current,
            progress=progress(ledger, current.id) if current else None, annotators=annotators(ledger), aside=aside,
            class_names=names,
        )  # fmt: skip


def read_settings(ledger: Ledger) -> Settings:
    """The settings of a campaign, its own or the usual ones."""
    text = read_meta(ledger, SETTINGS)
    try:
        kept = json.loads(text) if text is not None else {}
        known = {one.name for one in fields(Settings)}
        return Settings(**{name: value for name, value in kept.items() if name in known})
    except (ValueError, TypeError, AttributeError) as error:
        raise BadFile(f"the settings in the ledger of {ledger.folder} cannot be read: {error}") from error


def write_settings(ledger: Ledger, **changes: Any) -> Settings:  # noqa: ANN401 - whatever a setting holds; checked
    """Change some settings; the others stay."""
    with ledger.writing():
        settings = changed_settings(read_settings(ledger), changes)
        write_meta(ledger, SETTINGS, json.dumps(asdict(settings), sort_keys=True))
    return settings


def changed_settings(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """The settings with some of them changed, checked."""
    check_settings("a campaign", changes, [one.name for one in fields(Settings)])
    whole = [name for name in SHARES if type(changes.get(name)) is int]  # 0 and 1 are shares, too
    changed = replace(settings, **{**changes, **{name: float(changes[name]) for name in whole}})
    _check(changed)
    if (
        "backbone" in changes and Path(changed.backbone).expanduser().is_dir()
    ):  # found from everywhere, not from here alone
        changed = replace(changed, backbone=str(Path(changed.backbone).expanduser().resolve()))
    if {"strategy", "balance"} & set(changes):
        check_strategy(changed.strategy, changed.balance)
    if "learner" in changes:
        from .models import head_named

        head_named(changed.learner)
    return changed


def check_strategy(name: str, balance: str | float) -> None:
    """Reject a strategy or a balance with which no round can be chosen; "none" is λ = 0."""
    from ..strategies.strategy import STRATEGIES, check_reads_no_labels, make

    given: object = name  # an array would be compared with each name
    if isinstance(given, str) and given in ON_PIXELS:
        usable = (one for one in sorted(STRATEGIES) if one not in ON_PIXELS and not STRATEGIES[one].reads_labels)
        raise BadInput(
            f"strategy {name!r} looks at pixels, and a campaign chooses by features; take one of {', '.join(usable)}"
        )
    check_reads_no_labels(name)
    make(name, balance=0.0 if isinstance(balance, str) and balance == "none" else balance)


def _check(settings: Settings) -> None:
    for one in fields(Settings):
        value, usual = getattr(settings, one.name), getattr(Settings(), one.name)
        if type(value) is not type(usual):
            raise BadInput(f"the setting {one.name} is {shown(value)}; it must be like {usual!r}")
    for name in ("budget", "overlap"):
        whole_number(getattr(settings, name), f"the setting {name}", least=1, most=LARGEST_COUNT)
    for name, most in SHARES.items():
        if not 0 <= getattr(settings, name) <= most:
            raise BadInput(f"the setting {name} is {getattr(settings, name)}; give a share from 0 to {most:g}")
    if settings.calibration not in CALIBRATIONS:
        raise BadInput(
            f"the setting calibration is {settings.calibration!r}; a campaign takes one of {', '.join(CALIBRATIONS)}: "
            "its labels were chosen by how their images look, so their counts do not show the class shares of the pool"
        )


_ASIDE = """
SELECT count(*) FROM current_label AS l JOIN image AS i ON i.id = l.image_id
WHERE i.trouble IS NOT NULL OR i.duplicate_of IS NOT NULL
"""
_IMAGES = """
SELECT count(*) AS "all", coalesce(sum(trouble IS NULL AND duplicate_of IS NULL), 0) AS usable,
    coalesce(sum(trouble IS NULL AND duplicate_of IS NOT NULL), 0) AS duplicates,
    coalesce(sum(trouble IS NOT NULL), 0) AS quarantined
FROM image
"""
