"""Threads keep the order of results, pass exceptions on, and leave PyTorch's number of threads as it was."""

import threading
import time

import pytest
import torch

from warpdrive.learn.threads import Threads, one_thread


@pytest.fixture(autouse=True)
def two_threads():
    """Tests have one PyTorch thread, these two."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_come_in_order_from_two_threads_that_run_at_once():
    """Two items that wait for each other both end, in threads with one PyTorch thread each."""
    threads, meet = Threads(), threading.Barrier(2, timeout=30)

    def work(item):
        meet.wait()
        time.sleep(0.05 * (1 - item))  # the first ends last
        return item, threading.current_thread().name, torch.get_num_threads()

    with threads.begin():
        assert torch.get_num_threads() == 1
        first, second = threads.map(work, [0, 1])
    assert (first[0], second[0]) == (0, 1)
    assert first[1] != second[1]
    assert first[2] == second[2] == 1
    assert torch.get_num_threads() == 2


def test_an_exception_reaches_the_caller_when_nothing_runs_any_more():
    """That of the first item that failed; items under way are waited for, and the number of threads is as before."""
    threads, ended = Threads(), []

    def work(item):
        if item == 0:
            raise ArithmeticError("of the first")
        time.sleep(0.2)
        ended.append(item)
        if item == 1:
            raise ValueError("of the second")

    with pytest.raises(ArithmeticError, match="of the first"), threads.begin():
        threads.map(work, [0, 1])
    assert ended == [1]
    assert torch.get_num_threads() == 2
    with threads.begin():
        assert threads.map(abs, [-1, -2, -3]) == [1, 2, 3]


def test_with_one_thread_there_is_no_pool():
    """Work is done by the caller, and so it is again after there were two."""
    threads, caller = Threads(), threading.current_thread()
    for count in (1, 2, 1, 2):
        torch.set_num_threads(count)
        with threads.begin():
            names = set(threads.map(lambda _: threading.current_thread(), [0, 1, 2]))
        assert (names == {caller}) == (count == 1)
        assert torch.get_num_threads() == count


def test_one_thread_is_for_a_while():
    """Also if what it was for fails."""
    with pytest.raises(ValueError), one_thread():
        assert torch.get_num_threads() == 1
        raise ValueError
    assert torch.get_num_threads() == 2
