"""What a step leaves of the heap, by steps that are easy to see through."""

from __future__ import annotations

import pytest

from probes.allocations import RESULT, Allocations, KernelAllocations, unpack
from probes.heap_steps import Simulation, Step
from probes.microtrain.tracing import trace_workload
from probes.trace import Affine
from probes.workload.description import Workload
from probes.workload.models import parse_model

MIB = 2**20
DENSE = {"layers": [{"type": "linear", "out": 2000}, "relu", {"type": "linear", "out": 10}], "input_shape": [64]}


def of(*mebibytes: float) -> tuple[Affine, ...]:
    return tuple(Affine(size * MIB, 0.0) for size in mebibytes)


def ran(step: Step, steps: int, seed: int = 0) -> Simulation:
    simulation = Simulation(step, 1, seed)
    for _ in range(steps):
        simulation.step()
    return simulation


def fresh_mebibytes(step: Step) -> float:
    """Of the tenth step."""
    simulation = ran(step, 9)
    before = simulation.heap.fresh_pages
    simulation.step()
    return (simulation.heap.fresh_pages - before) * 4096 / MIB


def test_the_optimizer_s_temporaries_count_where_they_are_the_peak() -> None:
    trace = trace_workload(Workload(parse_model(DENSE), 1))
    allocations = unpack(trace.allocations)
    assert allocations is not None
    with_two, without = (ran(Step(allocations, (each, trace.parameter_tensors)), 1) for each in (2, 0))
    assert with_two.alive_peak > without.alive_peak


def test_what_a_step_leaves_for_the_next_takes_the_place_of_what_it_freed() -> None:
    """A gradient is freed and made anew: nothing piles up from step to step."""
    simulation = Simulation(Step(Allocations(of(1, 1, 1), 2, (2, 0)), (0, 1)), 1)
    held = []
    for _ in range(100):
        simulation.step()
        held.append(simulation.heap.held)
    assert simulation.alive_peak == 2 * MIB
    assert max(held[50:]) == max(held[:50])


def test_the_batch_lives_from_step_to_step() -> None:
    """It lies where it was made, whether the step lets go of it or not."""
    for order in ((0, 0, 2), (0, 0, 2, 1)):
        step = Step(Allocations(of(40, 1), 0, order), (0, 0), inputs=1)
        assert ran(step, 3).alive_peak == 41 * MIB
        assert fresh_mebibytes(step) < 2
    assert fresh_mebibytes(Step(Allocations(of(40, 1), 0, (0, 0, 2, 1)), (0, 0))) > 40


def test_what_a_kernel_takes_inside_is_held_and_found_fresh() -> None:
    allocations = Allocations(of(1), 0, (0, 1))
    kernel = KernelAllocations(of(40, 2), (0, 0, 1, 2))
    for place, alive in ((1, 43), (2, 42)):  # after the tensor was made, and as the step ends
        step = Step(allocations, (0, 0), kernels={place: [kernel]})
        simulation = ran(step, 3)
        assert simulation.alive_peak == alive * MIB
        assert simulation.surplus < 8 * MIB  # it is in use, not freed
        assert fresh_mebibytes(step) > 40


def test_a_result_is_made_where_the_kernel_makes_it() -> None:
    """Beside what the kernel holds then: both are mapped."""
    allocations = Allocations(of(35), 0, (0, 1))
    for order, most in (((0, RESULT, 1), 75), ((RESULT, 0, 1), 75), ((0, 1, RESULT), 40)):
        simulation = ran(Step(allocations, (0, 0), kernels={0: [KernelAllocations(of(40), order)]}), 1)
        assert simulation.alive_peak == most * MIB
        assert simulation.heap.held_peak == pytest.approx(most * MIB, abs=4 * MIB)


def test_kernels_that_begin_at_one_place_run_one_after_the_other() -> None:
    """The first changes a tensor in place and makes no result: the second one's is the step's next."""
    allocations = Allocations(of(1), 0, (0, 1))
    kernels = [KernelAllocations(of(40), (0, 1)), KernelAllocations(of(50), (0, RESULT, 1, RESULT))]
    simulation = ran(Step(allocations, (0, 0), kernels={0: kernels}), 3)
    assert simulation.alive_peak == 51 * MIB
    assert simulation.heap.held_peak == pytest.approx(51 * MIB, rel=0.1)


def test_a_large_block_that_was_freed_keeps_the_heap_from_being_trimmed() -> None:
    """glibc raises its thresholds with what was mapped and freed: 9 MiB inside a kernel, and the rest stays."""
    allocations = Allocations(of(1.5, 1.5, 1.5), 0, (0, 0, 0, 1, 2, 3))
    inside = {0: [KernelAllocations(of(9), (0, 1))]}
    assert fresh_mebibytes(Step(allocations, (0, 0), kernels=inside)) == 0


def test_a_seed_is_one_of_many_ways_in_which_it_may_go() -> None:
    trace = trace_workload(Workload(parse_model(DENSE), 64))
    allocations = unpack(trace.allocations)
    assert allocations is not None
    step = Step(allocations, (2, trace.parameter_tensors))
    pages = [ran(step, 6, seed).heap.fresh_pages for seed in (0, 0, 1, 2, 3, 4)]
    assert pages[0] == pages[1]
    assert len(set(pages)) > 2
