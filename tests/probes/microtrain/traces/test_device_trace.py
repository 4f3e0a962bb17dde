"""A workload's trace with the step as a device runs it: when there is one, of what, and what becomes of models that do
not get through."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from probes.microtrain.tracing import trace_workload
from probes.trace import Trace
from probes.workload.description import Workload
from probes.workload.models import parse_model, python_model

PROGRAM = """
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence

DROPOUT = functional.dropout

class Strict(nn.Module):
    # does not stand for another dropout than torch's
    def __init__(self, only_under_autocast):
        super().__init__()
        self.layer, self.only = nn.Linear(8, 3), only_under_autocast
    def forward(self, x):
        own = functional.dropout is DROPOUT
        if not own and (not self.only or torch.is_autocast_enabled("cpu")):
            raise RuntimeError("this is not torch's")
        return functional.dropout(self.layer(x), 0.1)

class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.GRU(8, 6, batch_first=True), nn.Linear(6, 3)
    def forward(self, x):
        lengths = [x.shape[1] - place % 3 for place in range(x.shape[0])]
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.head(self.layer(packed)[1][-1])

class Shared(nn.Module):
    # queries share keys
    def __init__(self):
        super().__init__()
        self.query, self.key, self.head = nn.Linear(32, 32), nn.Linear(32, 16), nn.Linear(32, 3)
    def forward(self, x):
        query = self.query(x).unflatten(-1, (4, 8)).transpose(1, 2)
        key = self.key(x).unflatten(-1, (2, 8)).transpose(1, 2)
        found = functional.scaled_dot_product_attention(query, key, key, dropout_p=0.1, enable_gqa=True)
        return self.head(found.transpose(1, 2).flatten(2).mean(1))

def batches(*shape):
    return lambda size: (torch.randn(size, *shape), torch.randint(3, (size,)))

def strict():
    return Strict(False), batches(8)

def strict_under_autocast():
    return Strict(True), batches(8)

def packed():
    return Packed(), batches(5, 8)

def shared():
    return Shared(), batches(24, 32)
"""
DENSE = ({"type": "linear", "out": 16}, "relu")
HEAD = {"type": "linear", "out": 3}


def workload(*layers: object, inputs: tuple[int, ...], **options: Any) -> Workload:
    return Workload(parse_model({"layers": list(layers), "input_shape": list(inputs)}), 4, **options)


def trace(*layers: object, inputs: tuple[int, ...] = (8,), **options: Any) -> Trace:
    return trace_workload(workload(*layers, inputs=inputs, **options), devices=True)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the current folder."""
    (tmp_path / "own_device_tracing.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "own_device_tracing"


def trace_own(own: str, name: str) -> Trace:
    return trace_workload(Workload(python_model(f"{own}:{name}"), 4), devices=True)


def counts(trace: Trace, precision: str = "fp32") -> Counter[str]:
    found: Counter[str] = Counter()
    for operation in trace.operations_under(precision):
        found[operation.name] += operation.count
    return found


@pytest.mark.parametrize("mode", ["training", "inference"])
def test_convolutions_and_batch_norms_are_the_same_on_a_device(mode: Any) -> None:
    convolution = {"type": "conv2d", "out": 8, "kernel": 3}
    found = trace(convolution, "batch_norm", "relu", "global_avg_pool", HEAD, inputs=(3, 12, 12), mode=mode)
    assert found.devices
    if mode == "training":  # under a device's autocast the loss is in fp32
        assert found.device is not None
        assert found.device.operations == found.operations
        assert without_copies(found.device) == without_copies(found)
    else:
        assert found.device is None


def without_copies(found: Trace) -> Counter[str]:
    """Operations under autocast by name."""
    names: Counter[str] = Counter()
    for operation in found.autocast_operations:
        names[operation.name] += operation.count
    del names["aten._to_copy"]
    return names


def test_dropout_is_another_step_where_it_drops() -> None:
    layers = (*DENSE, {"type": "dropout", "p": 0.2}, HEAD)
    device = trace(*layers).device
    assert device is not None
    assert counts(device)["aten.native_dropout"] == counts(device)["aten.native_dropout_backward"] == 1
    assert counts(device)["aten.bernoulli_"] == 0
    assert trace(*layers, mode="inference").device is None


def test_a_norm_is_another_step_under_autocast_alone() -> None:
    found = trace(*DENSE, "layer_norm", HEAD)
    device = found.device
    assert device is not None
    assert counts(device) == counts(found)
    assert device.activation_peaks == found.activation_peaks
    for whose, dtype in ((found, "bfloat16"), (device, "float32")):
        norms = [each for each in whose.autocast_operations if each.kind == "normalization"]
        assert {each.dtype for each in norms} == {dtype}


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("both", [False, True])
def test_recurrent_layers_are_one_operation_at_every_batch_size(kind: str, both: bool) -> None:
    steps, inputs, hidden, layers, directions = 3, 6, 10, 2, 2 if both else 1
    layer = {"type": kind, "hidden": hidden, "num_layers": layers, "bidirectional": both, "output": "last"}
    device = trace(layer, HEAD, inputs=(steps, inputs)).device
    assert device is not None
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[kind]
    numbers = gates * hidden * directions * (inputs + hidden + hidden * directions + hidden)
    for operations in (device.operations, device.autocast_operations):
        forward, backward = (each for each in operations if each.kind == "recurrent")
        assert (forward.phase, backward.phase) == ("forward", "backward")
        assert (forward.count, backward.count) == (1, 1)
        assert forward.flops.at(5) == 2 * 5 * steps * numbers
        assert backward.flops.at(5) == 2 * forward.flops.at(5)
        assert forward.grain == backward.grain == steps * layers * directions


def test_queries_that_share_keys_are_counted_all(own: str) -> None:
    device = trace_own(own, "shared").device
    assert device is not None
    forward, backward = (each for each in device.autocast_operations if each.kind == "attention")
    assert forward.flops.at(3) == 3 * 4 * 4 * 24 * 24 * 8
    assert backward.flops.at(3) == 2.5 * forward.flops.at(3)
    assert all(each.kind != "attention" for each in device.operations)  # no kernel takes them so in fp32


def test_what_lives_from_step_to_step_is_one_and_what_a_cpu_alone_has_is_not_there() -> None:
    found = trace(*DENSE, {"type": "dropout", "p": 0.2}, HEAD, optimizer="adamw")
    device = found.on(cpu=False)
    for name in (
        "model_key", "mode", "optimizer", "batch_sizes", "parameters", "parameter_tensors", "parameter_bytes",
        "frozen_parameters", "buffer_bytes", "gradient_bytes", "optimizer_bytes", "input_bytes", "torch_version",
    ):  # fmt: skip
        assert getattr(device, name) == getattr(found, name), name
    for name in ("kernel_peaks", "autocast_kernel_peaks", "heap_surplus", "autocast_heap_surplus", "heap_fresh"):
        assert getattr(device, name) == ()
    assert device.activation_bytes in device.activation_peaks
    assert device.autocast_peaks
    assert device.device is None


def test_a_devices_way_costs_the_cpus_trace_nothing() -> None:
    task = workload(*DENSE, {"type": "dropout", "p": 0.2}, HEAD, inputs=(8,))
    without, beside = trace_workload(task), trace_workload(task, devices=True)
    assert counts(beside) == counts(without)
    assert beside.operations == without.operations
    assert beside.autocast_operations == without.autocast_operations
    assert beside.activation_peaks == without.activation_peaks


def test_a_model_that_wants_torchs_own_has_a_cpus_trace_alone(own: str) -> None:
    before = functional.dropout
    found = trace_own(own, "strict")
    assert found.devices
    assert found.device is None
    assert found.operations
    assert found.autocast_operations
    assert functional.dropout is before


def test_a_model_that_wants_torchs_own_under_autocast_has_a_devices_step_in_fp32(own: str) -> None:
    device = trace_own(own, "strict_under_autocast").device
    assert device is not None
    assert counts(device)["aten.native_dropout"] == 1
    assert device.autocast_operations == ()
    assert device.operations_under("bf16") == device.operations


def test_a_model_of_packed_sequences_is_traced_as_a_cpu_runs_it(own: str) -> None:
    found = trace_own(own, "packed")
    assert found.device is None
    assert found.operations
    assert found.on(cpu=False) is found


def test_a_model_that_is_stepped_for_real_was_asked_about_devices_too(own: str) -> None:
    assert trace_own(own, "packed").devices


def test_torchs_functions_and_the_thread_are_as_they_were() -> None:
    asked, lstm, attention = torch.is_autocast_enabled, torch._VF.lstm, functional.scaled_dot_product_attention
    trace({"type": "lstm", "hidden": 6, "output": "last"}, HEAD, inputs=(5, 4))
    assert torch.is_autocast_enabled is asked
    assert torch._VF.lstm == lstm
    assert functional.scaled_dot_product_attention is attention
    assert not torch.is_autocast_enabled("cpu")


def test_it_survives_being_written() -> None:
    found = trace(*DENSE, {"type": "dropout", "p": 0.2}, "layer_norm", HEAD)
    assert found.device is not None
    assert Trace.from_json(json.loads(json.dumps(found.to_json()))) == found
