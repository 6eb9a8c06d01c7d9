from __future__ import annotations

from tailwise.formats import FORMATS
from tailwise.learners import LEARNERS
from tailwise.pools import POOLS
from tailwise.report.tables import (
    StrategyRow,
    format_markdown,
    learner_markdown,
    own_settings,
    pool_markdown,
    score_rows,
    shared_settings,
    strategy_markdown,
    strategy_rows,
)
from tailwise.score import SCORES
from tailwise.strategies import STRATEGIES


def test_every_registered_strategy_and_score_has_a_row_that_says_what_it_does() -> None:
    assert {row.name for row in strategy_rows()} == set(STRATEGIES)
    assert {name for name, _ in score_rows()} == set(SCORES)
    assert all(row.what and row.needs and "balance" in row.settings for row in strategy_rows())
    assert all(what for _, what in score_rows())


def test_settings_are_shared_only_where_every_default_is_the_same() -> None:
    rows = [
        StrategyRow("a", "", (), {"balance": 0.0, "gap": 1, "extra": 2}),
        StrategyRow("b", "", (), {"balance": 0.0, "gap": 5}),
    ]
    shared = shared_settings(rows)
    assert shared == {"balance": 0.0}
    assert own_settings(rows[0], shared) == "gap=1, extra=2"


def test_the_markdown_table_has_a_line_per_strategy() -> None:
    lines = [line for line in strategy_markdown().splitlines() if line.startswith("| `")]
    assert len(lines) == len(STRATEGIES)
    assert all(line.count("|") == 5 for line in lines)


def test_learners_pools_and_formats_have_a_line_each_that_follows_from_the_registry() -> None:
    for made, names in ((learner_markdown(), LEARNERS), (pool_markdown(), POOLS), (format_markdown(), FORMATS)):
        lines = made.splitlines()[2:]
        assert [line.split("`")[1] for line in lines] == sorted(names)
        assert len({line.count(" | ") for line in lines}) == 1
    assert "download=False" in pool_markdown()
    assert "report" not in pool_markdown()
