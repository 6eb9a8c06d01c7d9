"""What an experiment found, in plain words: results in, sentences out, none of which says more than its numbers.

A gain nearer to zero than two standard errors is called "within noise"; of a single seed nothing is claimed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..strategies.strategy import DEFAULT
from .gain_tables import COMPARED, labels_shown
from .names import Condition, Method
from .summary import CLEAR, Gain, Results, Saving, count_errors, curve, gains, mean_gains, passes_by_chance, savings
from .tables import number, with_spread

KINDS = {
    "default": "The default strategy against random choice",
    "up": "Where balance helps",
    "down": "Where balance hurts",
    "within noise": "Where no difference can be told from noise",
    "one seed": "From one seed alone: no statement about noise",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence, where it holds, and what it is about: a key of KINDS."""

    kind: str
    where: str
    text: str


def gain_findings(results: Results) -> list[Finding]:
    """One sentence for each balanced method in each condition: its gain over all cycles, on the tail, in balance."""
    found = []
    for condition in results.trials:
        tails = {gain.method: gain for gain in mean_gains(results, condition, "tail_accuracy")}
        for gain in mean_gains(results, condition):
            text = f"{gain_sentence(results, gain)}{_tail(tails[gain.method])}{_balance(results, gain)}."
            found.append(Finding(gain.verdict, place(condition), text))
    return found


def gain_sentence(results: Results, gain: Gain) -> str:
    """A gain in words, with its error, its cycles and its seeds."""
    cycles = len([one for one in gains(results, gain.condition) if one.method == gain.method])
    points = f"{with_spread(100 * gain.difference.mean, 100 * gain.difference.error, sign=True)} points of accuracy"
    over = f"mean of {_plural(cycles, 'cycle')}, {_plural(gain.difference.seeds, 'seed')}"
    names = f"{gain.method.shown} against {gain.base.shown}"
    return f"{names}: {points} ({over}{'; within noise' if gain.verdict == 'within noise' else ''})"


def default_findings(results: Results) -> list[Finding]:
    """The default strategy against random choice, and who is ahead of it; nothing where it or Random did not run."""
    found = []
    for condition in results.trials:
        ours, base = results.find(condition, DEFAULT, balanced=True), results.find(condition, "random")
        if ours is None or base is None:
            continue
        gains_over = {name: mean_gains(results, condition, name, over=base) for name in COMPARED}
        parts = [
            _points_of(gain, COMPARED[name])
            for name, some in gains_over.items()
            for gain in some
            if gain.method == ours and not math.isnan(gain.difference.mean)  # without a tail
        ]
        text = f"{ours.shown}, the default, against {base.shown}: {', '.join(parts)}."
        found += [Finding("default", place(condition), one) for one in (text, _ahead(results, condition, ours))]
    return found


def _ahead(results: Results, condition: Condition, ours: Method) -> str:
    """The methods that are better than one of them, in the mean over cycles, by two standard errors."""
    found = [(gain, where) for name, where in COMPARED.items()
             for gain in mean_gains(results, condition, name, over=ours)]  # fmt: skip
    better = [f"{gain.method.shown} {_points_of(gain, where)}" for gain, where in found if gain.verdict == "up"]
    last = max(
        (curve(results, condition, one) for one in results.methods(condition)), key=lambda one: one.last.accuracy.mean
    )
    end = f"Highest at the end: {last.method.shown}, {number(100 * last.last.accuracy.mean, 1)} %."
    if any(gain.verdict == "one seed" for gain, _ in found):
        return f"One seed does not show who is ahead of it. {end}"
    return f"Ahead of it: {', '.join(better)}. {end}" if better else f"No method is clearly ahead of it. {end}"


def _points_of(gain: Gain, where: str) -> str:
    return f"{with_spread(100 * gain.difference.mean, 100 * gain.difference.error, 1, sign=True)} points{where}"


def saving_findings(results: Results) -> list[str]:
    """One sentence for each condition and level: what Random needs, what the others save, who never gets there."""
    found = []
    for condition in results.trials:
        levels: dict[float, list[Saving]] = {}
        for one in savings(results, condition):
            levels.setdefault(one.level, []).append(one)
        found += [f"{place(condition)}: {level_sentence(some)}" for some in levels.values()]
    return found


def level_sentence(some: Sequence[Saving]) -> str:
    """All methods at one level, the most sparing first."""
    first = some[0]
    level, other = f"{100 * first.level:.0f} %", first.reference.shown
    if math.isnan(first.reference_needed):
        opening = f"{other} does not reach {level} with its {labels_shown(first.reference_most)} labels"
    else:
        opening = f"for {level} {other} needs {labels_shown(first.reference_needed)} labels"
    reached = sorted((one for one in some if not math.isnan(one.needed)), key=lambda one: one.needed)
    never = [one.method.shown for one in some if math.isnan(one.needed)]
    parts = [opening, *(saving_words(one) for one in reached)]
    return "; ".join([*parts, *([f"not reached by {', '.join(never)}"] if never else [])]) + "."


def saving_words(one: Saving) -> str:
    """A saving in words; it says in how many seeds it holds where that is not all of them."""
    percent = number(100 * abs(one.share), 0)
    fewer = "as many" if percent == "0" else f"{percent} % {'fewer' if one.share > 0 else 'more'}"
    least = "at least " if one.at_least and one.share > 0 and percent != "0" else ""
    agree = f", ahead in {one.ahead} of {_plural(one.seeds, 'seed')}" if one.ahead < one.seeds else ""
    return f"{one.method.shown} {labels_shown(one.needed)} ({least}{fewer}{agree})"


def count_sentence(results: Results) -> str:
    """How far class counts were from what the models expected, over the balanced batches."""
    errors = [
        one.misplaced.mean for condition in results.trials for one in count_errors(results, condition)
        if one.method.balanced
    ]  # fmt: skip
    if not errors:
        return ""
    mean, worst = sum(errors) / len(errors), max(errors)
    return (
        f"Of the balanced batches, {number(100 * mean, 1)} % of the images on average (at most "
        f"{number(100 * worst, 1)} %) were of another class than the model's probabilities led one to expect."
    )


def chance_sentence(results: Results) -> str:
    """What "two standard errors" is worth with so few seeds."""
    found = [gain for condition in results.trials for gain in mean_gains(results, condition)]
    seeds = [gain.difference.seeds for gain in found if gain.difference.seeds > 1]
    if not seeds:
        return "Every comparison rests on one seed: differences may be chance. Run more seeds."
    chances = [passes_by_chance(one) for one in seeds]
    fewest = f"With {_plural(min(seeds), 'seed')}" + (" or more" if max(seeds) > min(seeds) else "")
    return (
        f"A gain counts as one when it is at least {CLEAR:.0f} paired standard errors from zero. {fewest}, "
        f"pure noise does that in about {number(100 * max(chances), 0)} % of comparisons: of the {len(seeds)} here, "
        f"{number(sum(chances), 1)} would be expected by chance."
    )


def place(condition: Condition) -> str:
    """A condition in words."""
    return f"{condition.pool}, {condition.setting} ({condition.learner})"


def _tail(gain: Gain) -> str:
    if math.isnan(gain.difference.mean):
        return ""
    text = with_spread(100 * gain.difference.mean, 100 * gain.difference.error, sign=True)
    return f"; on the tail {text}{' (within noise)' if gain.verdict == 'within noise' else ''}"


def _balance(results: Results, gain: Gain) -> str:
    """The L1 scores at the end, without and with balance."""
    before, after = (curve(results, gain.condition, one).last.l1_score.mean for one in (gain.base, gain.method))
    return f"; L1 score of the labelled set at the end {number(after)} instead of {number(before)}"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
