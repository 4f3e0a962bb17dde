"""A step that works in threads of its own is refused, and nobody else's threads are its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from probes.microtrain.traces.other_threads import in_one_thread
from probes.microtrain.tracing import Untraceable, trace_workload
from probes.workload.description import Workload
from probes.workload.models import python_model
from tests.probes.microtrain.traces.test_tracing_own_code import place

PROGRAM = """
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

POOL = ThreadPoolExecutor(1)
LOG = []


def work(branch, x):
    with torch.set_grad_enabled(branch.training):  # a thread has its own
        return branch(x)

class Branches(nn.Module):
    def __init__(self, pool=None, counts=False):
        super().__init__()
        self.branches, self.head = nn.ModuleList(nn.Linear(8, 8) for _ in range(2)), nn.Linear(8, 3)
        self.pool, self.counts = pool, counts

    def forward(self, x):
        if self.counts:
            x = x * (x > 0).nonzero().shape[0]
        if self.pool is not None:
            return self.head(sum(self.pool.map(lambda branch: work(branch, x), self.branches)))
        with ThreadPoolExecutor(1) as pool:
            return self.head(sum(pool.map(lambda branch: work(branch, x), self.branches)))


def batch(size):
    return torch.randn(size, 8), torch.randint(3, (size,))

def pooled():
    return Branches(), batch

def counting():
    return Branches(counts=True), batch

def kept():
    return Branches(POOL), batch

def owned():
    return Branches(ThreadPoolExecutor(1)), batch  # a pool of the module's, from before any step

def logged():
    # reads what a step gave, and writes it down
    def loss(output, rows):
        value = nn.functional.cross_entropy(output, rows[1])
        thread = threading.Thread(target=lambda: LOG.append(tuple(value.detach().shape)))
        thread.start()
        thread.join()
        return value
    return nn.Linear(8, 3), batch, loss
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    place(tmp_path, monkeypatch, "own_threads", PROGRAM)
    return "own_threads"


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize("function", ["pooled", "counting", "kept", "owned"])
def test_a_model_that_works_in_threads_is_advised_to_be_measured(own: str, function: str, mode: Any) -> None:
    for _ in range(2):  # threads of a pool that is kept begin in the first
        with pytest.raises(Untraceable, match=r"works in threads of its own.*Measure it instead"):
            trace_workload(Workload(python_model(f"{own}:{function}"), 4, mode=mode), plainly=True)


def test_who_only_looks_at_what_a_step_gives_may_do_so_in_a_thread(own: str) -> None:
    assert trace_workload(Workload(python_model(f"{own}:logged"), 4), plainly=True).parameters == 27


def run(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def product() -> torch.Tensor:
    return torch.ones(2, 2) @ torch.ones(2, 2)


def test_a_thread_of_a_thread_is_the_steps_own() -> None:
    with pytest.raises(Untraceable), in_one_thread():
        run(lambda: run(product))
    with in_one_thread():
        run(lambda: run(lambda: None))


def test_threads_that_were_there_before_may_begin_others_and_compute() -> None:
    """As those do that make the next batch."""
    begun, stepping, made = threading.Event(), threading.Event(), threading.Event()

    def make_batches() -> None:
        begun.set()
        stepping.wait()
        product()
        run(product)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(product).result()
        made.set()

    before = threading.Thread(target=make_batches)
    before.start()
    begun.wait()
    with in_one_thread():
        stepping.set()
        made.wait()
    before.join()


def test_who_began_a_pool_does_not_matter_and_its_threads_are_not_watched_afterwards() -> None:
    with ThreadPoolExecutor(1) as before, ThreadPoolExecutor(1) as inside:
        before.submit(lambda: None).result()
        for pool in (before, inside):
            with pytest.raises(Untraceable), in_one_thread():
                pool.submit(product).result()
            assert pool.submit(_get_current_dispatch_mode).result() is None


def test_what_fails_for_its_threads_is_told_as_what_it_is() -> None:
    def fail() -> None:
        run(product)
        raise AssertionError("a tensor that is no FakeTensor is used with some that are")

    with pytest.raises(Untraceable), in_one_thread():
        fail()
    with pytest.raises(ZeroDivisionError), in_one_thread():
        raise ZeroDivisionError


def test_threads_begin_as_before_afterwards() -> None:
    start = threading.Thread.start
    with in_one_thread():
        assert threading.Thread.start is not start
    assert threading.Thread.start is start
