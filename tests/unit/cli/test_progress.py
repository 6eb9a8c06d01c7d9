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
    return clock


def test_quick_work_shows_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress(quiet=False) as report:
        clock.now = 0.9
        report("working")
    assert capsys.readouterr() == ("", "")


def test_slow_work_shows_a_line_now_and_then_on_stderr(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress(quiet=False) as report:
        for second in range(12):
            clock.now = float(second)
            report(f"step {second}")
    assert capsys.readouterr() == ("", "step 2\nstep 8\n")


def test_quiet_work_shows_nothing_however_slow(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress(quiet=True) as report:
        clock.now = 100.0
        report("working")
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_spinner_with_the_latest_line(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with output.progress(quiet=False) as report:
        clock.now = 2.0
        report("gap [1e-3]")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "gap [1e-3]" in printed.err
