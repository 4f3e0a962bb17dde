"""The memory peak of a step is what torch hands out in a real one, what kernels take inside included."""

import gc
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from app.advisor.memory_model.peaks import Peaks
from probes.microtrain.kernel_memory import kernel_peaks, scratch
from probes.microtrain.kernel_memory.kernel_peaks import curve, without_straight
from probes.microtrain.kernel_memory.scratch import Budget
from probes.microtrain.models import build_model
from probes.microtrain.processes import fresh_processes
from probes.microtrain.step import make_step
from probes.microtrain.traces import autocast_beside
from probes.microtrain.tracing import trace_workload
from probes.trace import Knot, Trace
from probes.workload.description import Mode, Plan, Precision, Workload
from probes.workload.models import parse_model
from tests.probes.microtrain.kernel_memory.enough_time import give_time
from tests.probes.microtrain.tiny import TINY


def conv(out: int, kernel: int = 3, **options: Any) -> dict[str, Any]:
    return {"type": "conv2d", "out": out, "kernel": kernel, **options}


def of(*layers: Any, shape: list[int]) -> dict[str, Any]:
    return {"layers": list(layers), "input_shape": shape}


HEAD = ("global_avg_pool", {"type": "linear", "out": 5})
LAST = {"type": "linear", "out": 3}
BLOCK = {"type": "transformer_encoder_layer", "heads": 4, "feedforward": 256, "dropout": 0.0}
WORDS = {"type": "embedding", "in": 100, "out": 64}
GROUPS = {"type": "group_norm", "groups": 4}
VOLUME = {"type": "conv3d", "out": 8, "kernel": 3, "padding": 1}
UP = {"type": "conv_transpose2d", "kernel": 4, "stride": 2, "padding": 1}
MODELS = {
    "tiny": of({"type": "linear", "out": 12}, "relu", {"type": "linear", "out": 12}, "relu", LAST, shape=[6]),
    "wide": of({"type": "linear", "out": 1500}, "tanh", LAST, shape=[300]),
    "plain": of(conv(32), "relu", {"type": "max_pool2d", "kernel": 2}, conv(64, groups=4), *HEAD, shape=[3, 32, 32]),
    "depthwise": of(conv(16), "batch_norm", conv(16, 5, groups=16, stride=2), conv(48, 1), *HEAD, shape=[3, 40, 40]),
    "wide kernels": of(conv(96, 1), conv(96, 7, groups=96, padding=3), conv(8, 1), *HEAD, shape=[3, 12, 12]),
    "dilated": of(conv(32), "relu", conv(64, groups=4, padding=2, dilation=2), "gelu", *HEAD, shape=[1, 30, 30]),
    "up": of(conv(24, 4, stride=2), "relu", {**UP, "out": 12}, "relu", {**UP, "out": 3}, *HEAD, shape=[3, 32, 32]),
    "signal": of({"type": "conv1d", "out": 48, "kernel": 9}, "batch_norm", "relu", *HEAD, shape=[6, 300]),
    "lstm": of({"type": "lstm", "hidden": 48, "num_layers": 2, "bidirectional": True}, LAST, shape=[20, 12]),
    "gru": of({"type": "gru", "hidden": 32, "num_layers": 2}, LAST, shape=[12, 8]),
    "encoder": of({"type": "embedding", "in": 500, "out": 64}, BLOCK, BLOCK, "mean", LAST, shape=[33]),
    "upsampled": of(conv(24), {"type": "upsample", "scale": 2}, *HEAD, shape=[4, 28, 28]),
    "highest": of(conv(96, 1), "global_max_pool", LAST, shape=[3, 28, 28]),
    "grouped norm": of(conv(24), "relu6", conv(96, 1), GROUPS, "elu", "flatten", LAST, shape=[4, 16, 16]),
    "unfolded": of(conv(16, 7, padding=3), GROUPS, "softplus", "flatten", LAST, shape=[12, 24, 24]),
    "volume": of(VOLUME, "sigmoid", "batch_norm", VOLUME, "relu6", *HEAD, shape=[3, 8, 8, 8]),
    "read": of(WORDS, {"type": "gru", "hidden": 64}, "mean", LAST, shape=[24]),
    "packed": of(WORDS, {**BLOCK, "heads": 8, "feedforward": 64}, "mean", LAST, shape=[128]),
    "bert": TINY["bert"],
    "tied": TINY["gpt2"],
}


def trace(name: str, mode: Mode) -> Trace:
    return trace_workload(Workload(parse_model(MODELS[name]), 4, mode=mode))


def estimated_bytes(traced: Trace, batch_size: int, precision: Precision) -> float:
    resident = traced.parameter_bytes + traced.buffer_bytes + traced.gradient_bytes + traced.optimizer_bytes
    return resident + Peaks(knots=traced.kernel_peaks_under(precision)).at_least(traced.update_peaks).at(batch_size)


def real_peak_bytes(name: str, mode: Mode, batch_size: int, precision: Precision) -> int:
    """The most that torch's CPU allocator had handed out during a step, in which gradients and the optimizer's state
    were there already. Watched from before the model: what was there when a profile began, its end does not count."""
    gc.collect()  # else what an earlier profile saw allocated is freed, and counted, in this one
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        built = build_model(parse_model(MODELS[name]))
        batches = [built.make_batch(batch_size, None)]
        step = make_step(built, batches, Plan("cpu", precision), mode=mode, data="resident")
        step()
        gc.collect()
        with record_function("the step"):
            step()
    assert watched.profiler is not None
    assert watched.profiler.kineto_results is not None
    events = watched.profiler.kineto_results.events()
    begun = next(event.start_ns() for event in events if event.name() == "the step")
    live = peak = 0
    for start, size in sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"):
        live += size
        peak = max(peak, live) if start >= begun else live
    return peak


# Whose inference runs nothing that takes memory inside but what their training runs as well.
IN_TRAINING_ALONE = {"tiny", "wide", "depthwise", "wide kernels", "dilated", "signal", "upsampled", "unfolded"}


@pytest.mark.parametrize(
    ("name", "mode"),
    [(name, "training") for name in MODELS] + [(name, "inference") for name in MODELS if name not in IN_TRAINING_ALONE],
)
def test_the_memory_peak_is_what_torch_allocates_kernels_included(
    name: str, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all the time that trying kernels takes: where there was too little for one at a batch of 50, its memory was
    told by other batches' (a depthwise one in bf16 without instructions for it; products on a busy processor with AMX,
    for which oneDNN compiles anew at each size)."""
    monkeypatch.setattr(fresh_processes, "is_prepared", lambda: False)  # or another process tries what is in bf16
    autocast_beside.end()
    give_time(monkeypatch.setattr)
    monkeypatch.setattr(kernel_peaks, "FIRST_SIZES", (1, 2, 4, 8, 16, 32, 64))  # more would be tried for nothing
    traced = trace(name, mode)
    without = name == "lstm" and not torch.ops.mkldnn._is_mkldnn_bf16_supported()  # no AVX-512: torch refuses it
    precisions: tuple[Precision, ...] = ("fp32",) if without else ("fp32", "bf16")
    for precision in precisions:
        for batch_size in (2, 50):
            real = real_peak_bytes(name, mode, batch_size, precision)
            assert estimated_bytes(traced, batch_size, precision) == pytest.approx(real, rel=0.1), (
                precision,
                batch_size,
            )


@pytest.mark.parametrize(("name", "mode"), [("plain", "training"), ("encoder", "inference")])
def test_kernels_take_more_inside_than_their_tensors_show(name: str, mode: Mode) -> None:
    traced = trace(name, mode)
    assert Peaks(knots=traced.kernel_peaks).at(64) > Peaks(traced.peaks_under("fp32")).at(64)


def test_where_there_is_no_more_time_many_samples_are_told_by_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """One or two go other ways through a recurrent layer: by them alone 64 were told 40 % less on busy cores."""
    model = of(WORDS, {"type": "lstm", "hidden": 96}, {"type": "linear", "out": 2}, shape=[48])
    monkeypatch.setitem(MODELS, "by the last word", model)
    whole = Peaks(knots=trace("by the last word", "inference").kernel_peaks)
    monkeypatch.setattr(Budget, "allows", lambda budget, seconds: False)
    told = Peaks(knots=trace("by the last word", "inference").kernel_peaks)
    for batch_size in (8, 64, 200):
        assert told.at(batch_size) == pytest.approx(whole.at(batch_size), rel=0.1)


@pytest.mark.parametrize("slow", [False, True], ids=["two trials", "none"])
def test_beyond_the_sizes_tried_whole_layers_take_what_they_do(slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores of many heads: the line through what was tried was cut off by three times what such a layer reads and
    writes, to half of what it takes."""
    block = {**BLOCK, "heads": 8, "feedforward": 64}
    monkeypatch.setitem(MODELS, "many heads", of({**WORDS, "out": 32}, block, "mean", LAST, shape=[64]))
    monkeypatch.setattr(Budget, "allows", lambda budget, seconds: False)
    monkeypatch.setattr(scratch, "is_slow", lambda *call: slow)
    monkeypatch.setattr(kernel_peaks, "FIRST_SIZES", (1, 2, 8, 128))
    traced, real = trace("many heads", "inference"), real_peak_bytes("many heads", "inference", 120, "fp32")
    assert estimated_bytes(traced, 120, "fp32") == pytest.approx(real, rel=0.01)


def test_a_layer_that_computes_whole_in_inference_is_cast_inside_under_autocast() -> None:
    traced = trace("encoder", "inference")
    large = [Peaks(knots=traced.kernel_peaks_under(precision)).at(64) for precision in ("fp32", "bf16")]
    assert large[1] < 0.95 * large[0]


def test_a_curve_is_looked_at_closely_where_it_jumps_and_nowhere_else() -> None:
    def jumps(size: int) -> int:
        return 100 * size if size < 37 else 300 * size

    knots = without_straight(curve(jumps))
    assert Knot(36, 3600) in knots
    assert Knot(37, 11100) in knots
    assert len(knots) == 4
    assert Peaks(knots=knots).at(20) == 2000
    assert Peaks(knots=knots).at(10**6) == 300 * 10**6
