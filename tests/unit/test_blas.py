"""Limits on BLAS threads: overlapping calls leave the process as they found it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import numpy as np
import pytest
import threadpoolctl

import tailwise
from tailwise.processes import one_blas_thread

LIBRARIES = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers


def blas_threads() -> list[int]:
    return [library.get_num_threads() for library in LIBRARIES]


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    """Start from three BLAS threads, whatever the machine or its environment says."""
    before = blas_threads()
    set_threads([3] * len(before))
    if not before or set(blas_threads()) != {3}:
        pytest.skip("the number of BLAS threads cannot be set here")
    yield
    set_threads(before)


def set_threads(wanted: list[int]) -> None:
    for library, threads in zip(LIBRARIES, wanted, strict=True):
        library.set_num_threads(threads)
    forget = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if forget is not None:  # else no other thread could set a limit from now on
        forget(force=True)


def test_calls_that_overlap_in_any_order_share_one_limit() -> None:
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)  # the first to come is the first to go
    assert set(blas_threads()) == {1}
    second.__exit__(None, None, None)
    assert set(blas_threads()) == {3}


def fail_inside() -> None:
    with one_blas_thread(), one_blas_thread():
        assert set(blas_threads()) == {1}
        raise RuntimeError


def test_nested_calls_and_errors_restore_the_number() -> None:
    with pytest.raises(RuntimeError):
        fail_inside()
    assert set(blas_threads()) == {3}


def test_a_limit_of_another_thread_does_not_prevent_ours() -> None:
    with threadpoolctl.threadpool_limits(limits=2, user_api="blas"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(threads_inside).result() == {1}
    assert set(blas_threads()) == {3}


def threads_inside() -> set[int]:
    with one_blas_thread():
        return set(blas_threads())


def test_selections_that_overlap_leave_the_number_of_threads_alone() -> None:
    """Six calls begin one after the other, are all under way at once, and end in the order in which they began."""
    proba = np.random.default_rng(0).dirichlet(np.full(5, 0.5), size=600)
    inside, ended = ([threading.Event() for _ in range(6)] for _ in range(2))

    def choose(number: int) -> None:
        def report(_line: str) -> None:  # called while the solver runs
            if not inside[number].is_set():
                inside[number].set()
                assert inside[-1].wait(timeout=120)
                assert number == 0 or ended[number - 1].wait(timeout=120)

        assert number == 0 or inside[number - 1].wait(timeout=120)
        tailwise.select(proba, 20, balance=0.5, gap=0.01, seed=number, report=report, score="entropy")
        ended[number].set()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(choose, range(6)))
    assert set(blas_threads()) == {3}


def test_libraries_are_searched_only_after_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = []

    class Counted(threadpoolctl.ThreadpoolController):
        def __init__(self) -> None:
            searches.append(1)
            super().__init__()

    monkeypatch.setattr(threadpoolctl, "ThreadpoolController", Counted)
    monkeypatch.setitem(sys.modules, "imported_before", ModuleType("imported_before"))
    for _ in range(5):
        with one_blas_thread(), one_blas_thread():
            assert set(blas_threads()) == {1}
    assert len(searches) == 1
    monkeypatch.setitem(sys.modules, "imported_now", ModuleType("imported_now"))
    with one_blas_thread():
        assert set(blas_threads()) == {1}
    assert len(searches) == 2
    assert set(blas_threads()) == {3}
