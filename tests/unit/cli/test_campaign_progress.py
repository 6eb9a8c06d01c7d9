from __future__ import annotations

import pytest

from tailwise.cli import output


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(output, "time", clock)
    monkeypatch.setattr(output, "time", clock)
    return clock


def test_slow_work_shows_a_line_with_its_share_on_stderr(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress_shown(quiet=False) as report:
        report(0.0, "too early")
        clock.now = 2.0
        report(0.25, "indexing")
    assert capsys.readouterr() == ("", "indexing (25%)\n")


def test_quiet_work_shows_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress_shown(quiet=True) as report:
        clock.now = 100.0
        report(0.5, "indexing")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("seconds", [0.5, 2.0])
def test_a_terminal_gets_a_bar_for_slow_work_alone(
    seconds: float, clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with output.progress_shown(quiet=False) as report:
        clock.now = seconds
        report(0.25, "indexing [1,000] images")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert ("indexing [1,000] images" in printed.err) == (seconds > 1)
    assert ("25%" in printed.err) == (seconds > 1)
