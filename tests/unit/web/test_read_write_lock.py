"""The gate: readers together, the writer alone, and nobody waits for ever."""

from __future__ import annotations

import threading
import time

from tailwise.web.service import ReadWriteLock


def test_readers_are_inside_together() -> None:
    gate, both = ReadWriteLock(), threading.Barrier(2, timeout=10)

    def read() -> None:
        with gate.reading():
            both.wait()  # passes only if the other is inside as well

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not both.broken


def test_the_writer_is_alone_whatever_the_order() -> None:
    gate, stop = ReadWriteLock(), threading.Event()
    inside: list[str] = []
    faults: list[list[str]] = []

    def look(mine: str) -> None:
        inside.append(mine)
        now = list(inside)
        if "w" in now and len(now) > 1:
            faults.append(now)
        time.sleep(0.0005)
        inside.remove(mine)

    def read() -> None:
        while not stop.is_set():
            with gate.reading():
                look("r")

    readers = [threading.Thread(target=read) for _ in range(4)]
    for thread in readers:
        thread.start()
    for _ in range(200):
        with gate.writing():
            look("w")
    stop.set()
    for thread in readers:
        thread.join()
    assert faults == []


def test_a_reader_that_waits_goes_before_the_next_write() -> None:
    """A writer that comes again and again lets in who has waited through one write."""
    gate, reads = ReadWriteLock(), 0
    stop = threading.Event()

    def read() -> None:
        nonlocal reads
        while not stop.is_set():
            with gate.reading():
                reads += 1

    thread = threading.Thread(target=read)
    thread.start()
    writes = 0
    end = time.monotonic() + 30
    while reads < 50 and time.monotonic() < end:
        with gate.writing():
            writes += 1
            time.sleep(0.002)
    stop.set()
    thread.join()
    assert reads >= 50
    assert writes <= 4 * reads


def test_a_writer_that_waits_goes_before_new_readers() -> None:
    gate, order = ReadWriteLock(), []
    entered, leave = threading.Event(), threading.Event()

    def first() -> None:
        with gate.reading():
            entered.set()
            leave.wait(10)

    def write() -> None:
        with gate.writing():
            order.append("write")

    def late() -> None:
        with gate.reading():
            order.append("read")

    threads = [threading.Thread(target=first)]
    threads[0].start()
    entered.wait(10)
    threads += [threading.Thread(target=write), threading.Thread(target=late)]
    threads[1].start()
    while not gate._writer_waits:
        time.sleep(0.001)
    threads[2].start()
    time.sleep(0.05)
    assert order == []
    leave.set()
    for thread in threads:
        thread.join(10)
    assert order == ["write", "read"]


def test_what_fails_inside_does_not_close_the_gate() -> None:
    gate = ReadWriteLock()
    for way in (gate.reading, gate.writing):
        try:
            with way():
                raise KeyError
        except KeyError:
            pass
    with gate.writing():
        pass
    with gate.reading():
        pass


def test_where_it_is_not_needed_a_reader_and_the_writer_are_inside_together() -> None:
    gate, both = ReadWriteLock(needed=False), threading.Barrier(2, timeout=10)

    def read() -> None:
        with gate.reading():
            both.wait()

    thread = threading.Thread(target=read)
    thread.start()
    with gate.writing():
        both.wait()
    thread.join(10)
    assert not both.broken
