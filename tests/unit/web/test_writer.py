"""The writer: results come after the commit, those that wait share one, a failure is taken back alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailwise.campaign.ledger import Ledger
from tailwise.errors import BadInput, LedgerBusy
from tailwise.web.service import ReadWriteLock, Writer


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.create(tmp_path / "campaign") as made:
        yield made


@pytest.fixture
def writer(ledger: Ledger) -> Iterator[Writer]:
    made = Writer(ledger, ReadWriteLock())
    yield made
    made.close()


def put(ledger: Ledger, key: str) -> str:
    with ledger.writing() as connection:
        connection.execute("INSERT INTO meta VALUES (?, 'x')", (key,))
    return key


def keys(ledger: Ledger) -> set[str]:
    return {row[0] for row in ledger.read("SELECT key FROM meta WHERE value = 'x'")}


def changes(ledger: Ledger) -> int:
    """How often the file was committed to, by SQLite's own count in its header."""
    return int.from_bytes(ledger.path.read_bytes()[24:28], "big")


def held(writer: Writer) -> threading.Event:
    """Keep the writer busy until the event is set, so that orders pile up behind."""
    entered, go = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        go.wait(30)

    writer.submit(wait)
    entered.wait(30)
    return go


def test_a_result_comes_when_it_is_in_the_file(ledger: Ledger, writer: Writer) -> None:
    assert writer.submit(lambda: put(ledger, "a")).result(30) == "a"
    assert keys(ledger) == {"a"}


def test_all_that_waits_shares_one_commit(ledger: Ledger, writer: Writer) -> None:
    writer.submit(lambda: put(ledger, "first")).result(30)
    go = held(writer)
    before = changes(ledger)
    replies = [writer.submit(lambda n=n: put(ledger, f"key {n}")) for n in range(50)]
    go.set()
    assert [reply.result(30) for reply in replies] == [f"key {n}" for n in range(50)]
    assert len(keys(ledger)) == 51
    assert changes(ledger) == before + 1


def test_a_failure_is_taken_back_alone(ledger: Ledger, writer: Writer) -> None:
    def half() -> None:
        put(ledger, "half")
        raise BadInput("no")

    go = held(writer)
    replies = [writer.submit(lambda: put(ledger, "a")), writer.submit(half), writer.submit(lambda: put(ledger, "b"))]
    go.set()
    assert replies[0].result(30) == "a"
    with pytest.raises(BadInput, match="no"):
        replies[1].result(30)
    assert replies[2].result(30) == "b"
    assert keys(ledger) == {"a", "b"}


def test_nothing_is_called_done_when_the_commit_fails(ledger: Ledger, writer: Writer) -> None:
    """A disk that is full ends the transaction under our hands; here a ROLLBACK plays its part."""

    def lose() -> None:
        with ledger.reading() as connection:
            connection.execute("ROLLBACK")
        raise BadInput("the disk is full")

    go = held(writer)
    replies = [writer.submit(lambda: put(ledger, "a")), writer.submit(lose), writer.submit(lambda: put(ledger, "b"))]
    go.set()
    for reply in replies:
        with pytest.raises(BadInput, match="the disk is full"):
            reply.result(30)
    assert keys(ledger) == set()
    assert writer.submit(lambda: put(ledger, "c")).result(30) == "c"


def test_closing_writes_what_was_taken_on_and_takes_no_more(ledger: Ledger) -> None:
    writer = Writer(ledger, ReadWriteLock())
    go = held(writer)
    replies = [writer.submit(lambda n=n: put(ledger, f"key {n}")) for n in range(300)]
    threading.Timer(0.1, go.set).start()
    writer.close()
    assert all(reply.done() for reply in replies)
    assert len(keys(ledger)) == 300
    with pytest.raises(LedgerBusy, match="stopping"):
        writer.submit(lambda: None)
    writer.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "tailwise-writer"]


def test_the_event_loop_waits_for_the_commit_without_being_held_up(ledger: Ledger, writer: Writer) -> None:
    async def both() -> tuple[str, int]:
        go = held(writer)
        ticks = 0
        task = asyncio.ensure_future(writer.write(lambda: put(ledger, "a")))
        while not task.done():
            ticks += 1
            if ticks == 20:
                go.set()
            await asyncio.sleep(0.001)
        return await task, ticks

    result, ticks = asyncio.run(both())
    assert result == "a"
    assert ticks >= 20


def test_an_order_that_nobody_waits_for_any_more_is_left_out(ledger: Ledger, writer: Writer) -> None:
    go = held(writer)
    gone, stays = writer.submit(lambda: put(ledger, "gone")), writer.submit(lambda: put(ledger, "stays"))
    assert gone.cancel()
    go.set()
    assert stays.result(30) == "stays"
    assert keys(ledger) == {"stays"}
