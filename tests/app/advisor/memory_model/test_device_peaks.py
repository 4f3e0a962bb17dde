"""What a step takes of a GPU is simulated: from what it allocates, in the allocator's blocks."""

from dataclasses import replace

import pytest

from app.advisor.memory_model.caching_allocator import MIB
from app.advisor.memory_model.device_peaks import device_peaks
from app.advisor.memory_model.memory import estimate_memory
from app.advisor.summary import trace_of_summary
from probes.allocations import Log, pack, unpack
from probes.microtrain.tracing import trace_workload
from probes.trace import Affine, Trace
from probes.workload.description import OPTIMIZERS, OptimizerName, Plan, Workload
from probes.workload.models import parse_model
from tests.app.advisor.build import a_workload

MLP = {"layers": [{"type": "linear", "out": 600}, "relu", {"type": "linear", "out": 400}], "input_shape": [500]}
GPU = Plan("cuda:0")


@pytest.fixture(scope="module")
def traced() -> Trace:
    return trace_workload(Workload(parse_model(MLP), 4))


def with_order(sizes: list[int], resident: int, order: list[int], mode: str = "inference") -> Trace:
    log = Log(sizes, resident, order)
    return replace(trace_of_summary(a_workload(mode=mode)), allocations=pack((1, 2), log, log))


def test_an_order_of_allocations_survives_its_packing() -> None:
    packed = pack((2, 4), Log([100, 20], 1, [0, 2]), Log([100, 40], 1, [0, 2]))
    allocations = unpack(packed)
    assert allocations is not None
    assert allocations == ((Affine(100, 0), Affine(0, 10)), 1, (0, 2))


def test_steps_that_free_differently_at_two_batch_sizes_say_nothing() -> None:
    assert pack((2, 4), Log([1, 2], 0, [0, 0, 1]), Log([1, 2], 0, [0, 0, 2])) == ""
    assert device_peaks(trace_of_summary(a_workload()), "fp32", 4) is None


def test_the_peak_counts_what_is_alive_at_once_in_blocks() -> None:
    trace = with_order([3 * MIB, 100, 30 * MIB, 30 * MIB], 1, [0, 0, 3, 0, 4, 2])
    peaks = device_peaks(trace, "fp32", 1)
    assert peaks == (33 * MIB + 512, (20 + 2 + 30) * MIB)


def test_gradients_are_freed_and_made_again_without_taking_more_in_later_steps() -> None:
    trace = with_order([30 * MIB, 30 * MIB, 8 * MIB, 30 * MIB], 2, [2, 0, 0, 3], "training")
    peaks = device_peaks(replace(trace, optimizer="sgd"), "fp32", 1)
    assert peaks == (68 * MIB, 90 * MIB)  # the 8 are cut off what was freed


def test_a_traced_step_allocates_what_its_lines_say_and_reserves_more(traced: Trace) -> None:
    sgd = replace(traced, optimizer="sgd", optimizer_bytes=traced.optimizer_bytes)
    for batch_size in (1, 4000):
        peaks = device_peaks(sgd, "fp32", batch_size)
        assert peaks is not None
        forward_and_backward = estimate_memory(None, None, traced, [], GPU)
        if batch_size == 4000:
            assert peaks.allocated == pytest.approx(forward_and_backward.allocated(batch_size), rel=0.01)
        assert peaks.allocated <= peaks.reserved < 1.5 * peaks.allocated + 44 * MIB


def test_updates_of_all_tensors_at_once_hold_the_roots_of_second_moments(traced: Trace) -> None:
    plain, adamw = (device_peaks(replace(traced, optimizer=name), "fp32", 1) for name in ("sgd", "adamw"))
    assert plain is not None
    assert adamw is not None
    roots = adamw.allocated - (
        traced.parameter_bytes + traced.buffer_bytes + traced.gradient_bytes + traced.optimizer_bytes
    )
    assert roots == pytest.approx(traced.parameter_bytes, rel=0.02)
    assert plain.allocated < adamw.allocated


@pytest.mark.parametrize(("optimizer", "held"), [("sgd", 0), ("adamw", 1), ("rmsprop", 1), ("adagrad", 2)])
def test_what_fits_on_a_gpu_counts_what_its_optimizer_holds_at_once(optimizer: OptimizerName, held: int) -> None:
    """Which the simulated blocks of the same answer have, too."""
    plain = trace_workload(Workload(parse_model(MLP), 4, optimizer="sgd"))
    trace = replace(plain, optimizer=optimizer)
    estimate, on_cpu = (estimate_memory(None, None, trace, [], plan) for plan in (GPU, Plan("cpu")))
    peaks = device_peaks(trace, "fp32", 1)
    assert peaks is not None
    assert estimate.allocated(1) == pytest.approx(peaks.allocated, rel=0.02)
    assert estimate.allocated(1) - on_cpu.allocated(1) == pytest.approx(held * plain.gradient_bytes, rel=0.02, abs=1e5)


def test_the_batch_is_alive_while_the_optimizer_steps() -> None:
    """A loop's variable has it. Here it takes as much as the weights."""
    wide = {"layers": [{"type": "linear", "out": 256}], "input_shape": [20_000]}
    trace = trace_workload(Workload(parse_model(wide), 4, optimizer="adamw"))
    weights, batch = trace.parameter_bytes, trace.input_bytes.at(256)
    assert batch == pytest.approx(weights, rel=0.01)
    peaks = device_peaks(trace, "fp32", 256)
    assert peaks is not None
    for allocated in (peaks.allocated, estimate_memory(None, None, trace, [], GPU).allocated(256)):
        assert allocated == pytest.approx(5 * weights + batch, rel=0.04)  # in whole blocks


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("batch_size", [1, 64])
def test_of_one_large_parameter_a_gpu_holds_what_its_own_optimizer_does(
    optimizer: OptimizerName, batch_size: int
) -> None:
    """A CPU's goes from parameter to parameter, and holds more of a single one."""
    wide = {"layers": [{"type": "linear", "out": 700}, "relu", {"type": "linear", "out": 4}], "input_shape": [2500]}
    trace = trace_workload(Workload(parse_model(wide), 4, optimizer=optimizer))
    peaks = device_peaks(trace, "fp32", batch_size)
    assert peaks is not None
    estimate = estimate_memory(None, None, trace, [], GPU)
    assert estimate.allocated(batch_size) == pytest.approx(peaks.allocated, rel=0.03)


def test_an_option_on_a_gpu_tells_allocated_and_reserved_bytes_apart(traced: Trace) -> None:
    parts = estimate_memory(None, None, traced, [], GPU).parts(64)
    assert parts.reserved_peak_bytes is not None
    assert parts.allocated_peak_bytes is not None
    assert parts.reserved_peak_bytes % (2 * MIB) == 0
    assert parts.reserved_peak_bytes > parts.allocated_peak_bytes
    assert parts.fragmentation_bytes is None
    pinned = estimate_memory(None, None, traced, [], GPU, data="pinned").parts(64)
    assert pinned.reserved_peak_bytes == parts.reserved_peak_bytes + traced.input_bytes.at(64)
