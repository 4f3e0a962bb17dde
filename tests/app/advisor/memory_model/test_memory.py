from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.advisor.memory_model.memory import MemoryEstimate, estimate_memory, working_bytes
from app.advisor.memory_model.peaks import Peaks
from app.advisor.memory_model.rooms import available_bytes
from app.advisor.recommendation import MemoryParts
from app.advisor.summary import trace_of_summary
from probes.measurement import MemoryPeak
from probes.trace import Affine, Knot
from probes.workload.description import Plan
from tests.app.advisor.build import GB, ONE, ONE_BF16, a_gpu, a_measurement, a_survey, a_workload

sizes = st.integers(0, 10**12)
estimates = st.builds(
    MemoryEstimate,
    weights=sizes,
    gradients=sizes,
    optimizer=sizes,
    activations=st.lists(st.builds(Affine, st.floats(-1e6, 1e12), st.floats(1e-2, 1e9)), min_size=1, max_size=3).map(
        lambda lines: Peaks(tuple(lines))
    ),
    overhead=sizes,
    available=sizes,
    update=st.lists(st.builds(Affine, st.floats(0, 1e12), st.floats(0, 1e3)), max_size=2).map(tuple),
    fragmentation=st.lists(st.integers(0, 10**12), max_size=4).map(
        lambda held: Peaks(
            knots=tuple(Knot(4**place, size) for place, size in enumerate([*sorted(held), *sorted(held)[-1:]]))
        )
    ),
)


@given(estimates)
@example(
    MemoryEstimate(
        weights=0,
        gradients=0,
        optimizer=0,
        activations=Peaks((Affine(-8.0, 1.0),)),  # nothing until a batch beyond the knots
        overhead=0,
        available=0,
        fragmentation=Peaks(knots=(Knot(1, 0), Knot(4, 0))),
    )
)
def test_the_largest_batch_that_fits_fits_and_the_next_does_not(memory: MemoryEstimate) -> None:
    largest = memory.max_batch_size()
    assert largest is not None
    if largest > 0:
        assert memory.fits(largest)
    assert memory.available is not None
    if largest < 10**12:  # beyond, one sample's bytes vanish in the sum's rounding
        assert memory.peak(largest + 2) > memory.available


def test_what_an_optimizer_holds_in_its_step_is_beside_nothing_of_forward_and_backward() -> None:
    """On a CPU as traced; kernels have a peak of their own, and the heap holds what it does."""
    held = (Affine(1000.0, 10.0),)
    plain = replace(trace_of_summary(a_workload()), activation_peaks=(Affine(0.0, 100.0),), update_peaks=held)
    for trace in (plain, replace(plain, kernel_peaks=(Knot(1, 100), Knot(1001, 100_100)))):
        whole = replace(trace, heap_surplus=(Knot(1, 7), Knot(2**17, 7)))
        memory = estimate_memory(a_survey(), None, whole, [], ONE)
        fixed = memory.fixed
        assert [memory.peak(size) - fixed for size in (1, 10, 100)] == [1010 + 7, 1100 + 7, 10_000 + 7]
        assert [memory.update_beyond(size) for size in (1, 10, 100)] == [910, 100, 0]
        rooms = [replace(memory, available=fixed + room).max_batch_size() for room in (900, 1027, 2007)]
        assert rooms == [0, 2, 20]


@given(estimates, st.integers(1, 10**6), st.integers(1, 10**6))
def test_memory_never_falls_as_the_batch_grows(memory: MemoryEstimate, one: int, other: int) -> None:
    assert memory.peak(min(one, other)) <= memory.peak(max(one, other))


def sum_of_parts(parts: MemoryParts) -> int:
    named = (
        parts.weights_bytes,
        parts.gradients_bytes,
        parts.optimizer_bytes,
        parts.activations_bytes,
        parts.overhead_bytes,
        parts.fragmentation_bytes,
    )
    return sum(part or 0 for part in named)


@given(estimates, st.integers(1, 10**6))
def test_the_parts_add_up_to_the_peak(memory: MemoryEstimate, batch: int) -> None:
    """To the byte, though activations, and what the heap holds, are fractions of one where a line tells them."""
    parts = memory.parts(batch)
    assert parts.peak_bytes == parts.process_peak_bytes == sum_of_parts(parts)
    if parts.reserved_peak_bytes is not None:
        assert parts.reserved_peak_bytes + (parts.overhead_bytes or 0) == parts.peak_bytes


@given(estimates, st.integers(1, 10**6))
def test_unknown_memory_is_unknown_and_not_enough(memory: MemoryEstimate, batch: int) -> None:
    assert replace(memory, available=None).fits(batch) is None
    without = replace(memory, overhead=None)
    assert without.fits(batch) is not True
    assert without.parts(batch).peak_bytes is None


def test_adam_keeps_two_numbers_a_parameter_and_sgd_none() -> None:
    for optimizer, states in (("sgd", 0), ("sgd-momentum", 1), ("adam", 2), ("adamw", 2)):
        trace = trace_of_summary(a_workload(optimizer=optimizer))
        memory = estimate_memory(a_survey(), None, trace, [], ONE)
        assert memory.optimizer == states * 4 * trace.parameters
        assert memory.gradients == 4 * trace.parameters


def test_inference_keeps_neither_gradients_nor_optimizer_state() -> None:
    memory = estimate_memory(a_survey(), None, trace_of_summary(a_workload(mode="inference")), [], ONE)
    assert memory.gradients == memory.optimizer == 0


def test_bf16_halves_activations_and_keeps_a_copy_of_the_weights_while_stepping() -> None:
    trace = trace_of_summary(a_workload())
    full = estimate_memory(a_survey(), None, trace, [], ONE)
    half = estimate_memory(a_survey(), None, trace, [], ONE_BF16)
    copies = trace.parameter_bytes / 2
    assert half.weights == full.weights
    assert half.activations_at(100) == pytest.approx(full.activations_at(100) / 2 + copies)


def test_the_processs_own_memory_comes_from_a_measurement_when_nothing_was_calibrated() -> None:
    row = a_measurement(ONE, 1, 0.1, memory=MemoryPeak(process_base_bytes=300))
    trace = trace_of_summary(a_workload())
    assert estimate_memory(a_survey(), None, trace, [row], ONE).overhead == 300 + working_bytes(trace, "layers")
    assert estimate_memory(a_survey(), None, trace, [], ONE).overhead is None


def test_libraries_at_work_take_memory_of_their_own() -> None:
    training, inference = (trace_of_summary(a_workload(mode=mode)) for mode in ("training", "inference"))
    assert working_bytes(training, "huggingface") > working_bytes(training, "layers")
    assert working_bytes(training, "layers") > working_bytes(inference, "layers")


def test_allocated_reserved_and_process_are_told_apart() -> None:
    row = a_measurement(ONE, 1, 0.1, memory=MemoryPeak(process_base_bytes=300))
    trace = trace_of_summary(a_workload())
    cpu = estimate_memory(a_survey(), None, trace, [row], ONE).parts(4)
    assert cpu.allocated_peak_bytes is not None
    assert cpu.overhead_bytes is not None
    assert cpu.process_peak_bytes == cpu.peak_bytes == cpu.allocated_peak_bytes + cpu.overhead_bytes
    assert cpu.reserved_peak_bytes is None
    gpu = estimate_memory(a_survey(gpus=[a_gpu()]), None, trace, [], Plan("cuda:0")).parts(4)
    assert gpu.allocated_peak_bytes == cpu.allocated_peak_bytes
    assert gpu.process_peak_bytes is None


def test_what_cpu_kernels_take_inside_counts_on_the_cpu_and_not_on_a_gpu() -> None:
    trace = replace(
        trace_of_summary(a_workload()),
        activation_peaks=(Affine(0.0, 100.0),),
        kernel_peaks=(Knot(1, 170), Knot(11, 1370)),
        autocast_peaks=(Affine(0.0, 60.0),),
        autocast_kernel_peaks=(Knot(1, 70), Knot(2, 140)),
    )
    peaks = [estimate_memory(None, None, trace, [], plan).activations_at(10) for plan in (ONE, ONE_BF16)]
    assert peaks == [1250, 700]
    on_gpu = [estimate_memory(None, None, trace, [], Plan("cuda:0", p)).activations_at(10) for p in ("fp32", "bf16")]  # type: ignore[arg-type]
    assert on_gpu == [1000, 600]


def test_beyond_the_batches_that_kernels_were_looked_at_the_tensors_of_a_step_count() -> None:
    """A large table's optimizer is the peak up to batches of which what the forward keeps takes more."""
    table, inputs, kept = Affine(2e9, 168.0), Affine(0.0, 168.0), Affine(0.0, 8000.0)
    knots = tuple(Knot(2**power, table.at(2**power)) for power in (0, 16))
    plain = replace(trace_of_summary(a_workload()), activation_peaks=(table, kept), input_bytes=inputs)
    trace = replace(plain, kernel_peaks=knots, heap_surplus=(Knot(1, GB), Knot(2**17, GB)))
    row = a_measurement(ONE, 1, 0.1, memory=MemoryPeak(process_base_bytes=0))
    estimate = estimate_memory(a_survey(usable_bytes=32 * GB), None, trace, [row], ONE)
    assert estimate.activations_at(2**16) == pytest.approx(table.at(2**16))
    assert estimate.activations_at(2**20) == kept.at(2**20)
    largest = estimate.max_batch_size()
    assert largest is not None
    assert estimate.peak(largest) <= 32 * GB < estimate.peak(largest + 1)
    assert largest == pytest.approx((31 * GB - estimate.fixed) / 8000, rel=1e-3)


def test_a_device_fed_from_pinned_memory_holds_the_next_batch_as_well() -> None:
    card, survey = Plan("cuda:0"), a_survey(gpus=[a_gpu()])
    trace = replace(trace_of_summary(a_workload()), input_bytes=Affine(8.0, 1e6), activation_peaks=(Affine(0.0, 2e6),))
    pageable, pinned = (estimate_memory(survey, None, trace, [], card, data=data) for data in ("pageable", "pinned"))  # type: ignore[arg-type]
    for batch in (1, 1000):  # its optimizer's step is the peak of the one, the activations of the other
        assert pinned.peak(batch) == pageable.peak(batch) + 8 + batch * 10**6
        parts, without = pinned.parts(batch), pageable.parts(batch)
        assert parts.activations_bytes == (without.activations_bytes or 0) + 8 + batch * 10**6
        assert parts.allocated_peak_bytes == (without.allocated_peak_bytes or 0) + 8 + batch * 10**6
    largest = [estimate.max_batch_size() or 0 for estimate in (pinned, pageable)]
    assert largest[0] == pytest.approx(largest[1] * 2 / 3, rel=1e-3)
    on_cpu = [estimate_memory(survey, None, trace, [], ONE, data=data).peak(64) for data in ("pageable", "pinned")]  # type: ignore[arg-type]
    assert on_cpu[0] == on_cpu[1]


def test_a_limit_that_cannot_be_understood_leaves_unknown_what_fits() -> None:
    survey = a_survey(usable_bytes=None)
    garbled = replace(survey, memory=replace(survey.memory, available_bytes=500 * GB))
    estimate = estimate_memory(garbled, None, trace_of_summary(a_workload()), [], ONE)
    assert estimate.available is None
    assert estimate.fits(1) is None


def test_a_cpu_s_heap_holds_more_than_is_alive_and_fewer_samples_fit() -> None:
    row = a_measurement(ONE, 1, 0.1, memory=MemoryPeak(process_base_bytes=0))
    plain = replace(trace_of_summary(a_workload()), activation_peaks=(Affine(0.0, float(GB)),))
    scattered = replace(
        plain, heap_surplus=(Knot(1, 0), Knot(9, 8 * GB)), autocast_heap_surplus=(Knot(1, GB), Knot(2, GB))
    )
    without, estimate = (estimate_memory(a_survey(), None, trace, [row], ONE) for trace in (plain, scattered))
    assert estimate.peak(5) == without.peak(5) + 4 * GB
    assert estimate.allocated(5) == without.allocated(5)
    assert estimate.parts(5).reserved_peak_bytes == estimate.allocated(5) + 4 * GB
    assert estimate.parts(5).fragmentation_bytes == 4 * GB
    fit, alone = estimate.max_batch_size(), without.max_batch_size()
    assert fit is not None
    assert alone is not None
    assert fit < 0.6 * alone
    halved = estimate_memory(a_survey(), None, scattered, [row], ONE_BF16)
    assert halved.parts(5).fragmentation_bytes == GB
    elsewhere = replace(ONE, environment={"MALLOC_TRIM_THRESHOLD_": "1"})
    assert estimate_memory(a_survey(), None, scattered, [row], elsewhere).parts(5).fragmentation_bytes is None


def test_a_shared_pool_is_counted_once_and_a_card_by_what_is_free() -> None:
    gpu = Plan("cuda:0")
    assert available_bytes(a_survey(gpus=[a_gpu()]), gpu) == 23 * GB
    untold = a_gpu(memory_free_bytes=None)
    assert available_bytes(a_survey(gpus=[untold]), gpu) is None
    set_aside = replace(untold, vendor="AMD", unified_memory=True)
    assert available_bytes(a_survey(gpus=[set_aside], usable_bytes=5 * GB), gpu) is None
    shared = a_gpu(memory_free_bytes=None, memory_total_bytes=None, unified_memory=True)
    assert available_bytes(a_survey(gpus=[shared], usable_bytes=5 * GB), gpu) == 5 * GB
    assert available_bytes(a_survey(), gpu) is None


def test_of_a_card_of_which_nobody_knows_what_is_free_only_what_is_too_large_is_known() -> None:
    survey, card = a_survey(gpus=[a_gpu(memory_free_bytes=None)]), Plan("cuda:0")
    estimate = replace(estimate_memory(survey, None, trace_of_summary(a_workload()), [], card), overhead=0)
    most = estimate.max_batch_size()
    assert most is not None
    assert estimate.peak(most) <= 24 * GB < estimate.peak(most + 1)
    assert (estimate.fits(1), estimate.fits(most), estimate.fits(most + 1)) == (None, None, False)
    assert estimate.parts(1).available_bytes is None


def test_before_any_calibration_only_the_doubtful_middle_is_unknown_on_a_cpu() -> None:
    trace = trace_of_summary(a_workload())
    need = estimate_memory(a_survey(), None, trace, [], ONE).peak(16)
    room = {spare: estimate_memory(a_survey(usable_bytes=need + spare), None, trace, [], ONE) for spare in (-1, GB)}
    assert room[-1].fits(16) is False
    assert room[GB].fits(16) is None
    clear = estimate_memory(a_survey(usable_bytes=need + 2 * 2**30), None, trace, [], ONE)
    assert clear.fits(16) is True
    assert clear.parts(16).peak_bytes is None
    assert estimate_memory(a_survey(gpus=[a_gpu()]), None, trace, [], Plan("cuda:0")).fits(1) is None
