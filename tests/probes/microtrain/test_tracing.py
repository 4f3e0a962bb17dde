"""A trace says what a real step does: the same operations, their products counted, the memory they hold."""

import json
from typing import Any

import psutil
import pytest
import torch

from app.advisor.memory_model.peaks import Peaks
from probes.microtrain.models import build_model
from probes.microtrain.step import make_step
from probes.microtrain.traces.merging import peak_lines
from probes.microtrain.traces.primed_stepper import PrimedStepper
from probes.microtrain.traces.recording import Record, Recorder
from probes.microtrain.tracing import Untraceable, trace_workload
from probes.trace import Affine, Trace
from probes.workload.description import OPTIMIZERS, InvalidModel, Plan, Workload
from probes.workload.models import parse_model
from tests.probes.microtrain.tiny import TINY

CNN = {
    "layers": [
        {"type": "conv2d", "out": 32, "kernel": 3, "padding": 1},
        "batch_norm",
        "relu",
        {"type": "max_pool2d", "kernel": 2},
        {"type": "conv2d", "out": 64, "kernel": 3, "padding": 1, "groups": 4},
        "relu",
        "global_avg_pool",
        {"type": "linear", "out": 10},
    ],
    "input_shape": [3, 32, 32],
}
LSTM = {
    "layers": [{"type": "lstm", "hidden": 16, "num_layers": 2, "output": "last"}, {"type": "linear", "out": 3}],
    "input_shape": [5, 8],
}
GRU = {"layers": [{"type": "gru", "hidden": 16}, {"type": "linear", "out": 3}], "input_shape": [5, 8]}
ENCODER = {
    "layers": [
        {"type": "embedding", "in": 50, "out": 16},
        {"type": "transformer_encoder_layer", "heads": 2, "feedforward": 32, "dropout": 0.0},
        "mean",
        {"type": "linear", "out": 3},
    ],
    "input_shape": [6],
}


def workload(model: Any, **options: Any) -> Workload:
    return Workload(parse_model(model), 4, **options)


def trace(model: Any, **options: Any) -> Trace:
    return trace_workload(workload(model, **options))


def flops(trace: Trace, phase: str, batch_size: int = 1) -> float:
    return sum(op.count * op.flops.at(batch_size) for op in trace.operations if op.phase == phase)


def records(model: Any, batch_size: int, mode: Any = "training") -> list[Record]:
    """What a real step dispatches, on real tensors."""
    built = build_model(parse_model(model))
    return PrimedStepper(workload(model, mode=mode), built).record(batch_size).records


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize("model", [CNN, LSTM, GRU, ENCODER, TINY["bert"], TINY["gpt2"], TINY["t5"]])
def test_a_trace_has_the_operations_of_a_real_step(model: Any, mode: Any) -> None:
    traced = trace(model, mode=mode)
    real = records(model, traced.batch_sizes[0], mode)
    moving = [record for record in real if record.kind != "view"]
    assert sum(op.count for op in traced.operations if op.kind != "view") == len(moving)
    assert {op.name for op in traced.operations if op.kind != "view"} == {record.name for record in moving}
    assert sum(record.flops for record in real) == traced.flops(traced.batch_sizes[0])


@pytest.mark.parametrize("model", [CNN, LSTM, ENCODER, TINY["mixtral"]])
def test_quantities_at_another_batch_size_follow_from_two(model: Any) -> None:
    traced, real = trace(model), records(model, 70)
    assert traced.flops(70) == pytest.approx(sum(record.flops for record in real))
    written = sum(op.count * op.written_bytes.at(70) for op in traced.operations)
    assert written == pytest.approx(sum(record.written_bytes for record in real), rel=0.05)  # oneDNN rounds up


def test_a_linear_layer_computes_two_flops_a_weight_and_sample_and_twice_that_backward() -> None:
    layers = [{"type": "linear", "out": 20}, "relu", {"type": "linear", "out": 3}]
    traced = trace({"layers": layers, "input_shape": [10]})
    assert flops(traced, "forward", 8) == 2 * 8 * (10 * 20 + 20 * 3)
    assert flops(traced, "backward", 8) == 2 * 8 * (10 * 20 + 2 * 20 * 3)  # none towards the input
    assert flops(traced, "optimizer", 8) == 0


def test_a_convolution_computes_its_kernel_at_every_place() -> None:
    traced = trace({"layers": [{"type": "conv2d", "out": 16, "kernel": 5, "stride": 2}], "input_shape": [3, 21, 21]})
    assert flops(traced, "forward", 2) == 2 * 2 * (9 * 9) * 16 * 3 * 25


@pytest.mark.parametrize("kind", ["conv2d", "conv_transpose2d"])
def test_a_grouped_convolution_computes_twice_as_much_backward_as_forward(kind: str) -> None:
    grouped = {"type": kind, "out": 32, "kernel": 3, "groups": 16}
    traced = trace({"layers": [{"type": "conv2d", "out": 16, "kernel": 1}, grouped], "input_shape": [8, 12, 12]})
    first = 2 * 12 * 12 * 8 * 16  # has no gradient of its input
    assert flops(traced, "backward") == 2 * flops(traced, "forward") - first
    places = 10 * 10 * 32 if kind == "conv2d" else 12 * 12 * 16
    assert flops(traced, "forward") == first + 2 * places * 9 * (1 if kind == "conv2d" else 2)


def test_attention_on_a_cpu_is_counted() -> None:
    config = {"model_type": "gpt2", "n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": 300, "attn_pdrop": 0.0}
    traced = trace({"huggingface": config, "sequence_length": 24})
    steps, width = 24, 32
    attention = [op for op in traced.operations if op.kind == "attention"]
    forward = sum(op.count * op.flops.at(1) for op in attention if op.phase == "forward")
    assert forward == 3 * 2 * 2 * steps * steps * width
    backward = sum(op.count * op.flops.at(1) for op in attention if op.phase == "backward")
    assert backward == 2.5 * forward
    products = 3 * 2 * steps * (12 * width * width) + 2 * steps * width * 300
    assert flops(traced, "forward") == forward + products


def test_attention_that_a_config_asks_for_step_by_step_keeps_its_scores() -> None:
    config = {"model_type": "gpt2", "n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": 300, "attn_pdrop": 0.0}
    whole, steps = (
        trace({"huggingface": config | chosen, "sequence_length": 96})
        for chosen in ({}, {"attn_implementation": "eager"})
    )
    assert not [op for op in steps.operations if op.kind == "attention"]
    assert flops(steps, "forward") == flops(whole, "forward")
    more = Peaks(steps.peaks_under("fp32")).at(8) - Peaks(whole.peaks_under("fp32")).at(8)
    scores = 8 * 3 * 4 * 96 * 96 * 4  # of samples, layers, heads and tokens, in fp32
    assert more > 0.5 * scores  # what the one kernel keeps instead is less


@pytest.mark.parametrize("mode", ["training", "inference"])
def test_an_lstm_is_counted(mode: Any) -> None:
    model = {"layers": [{"type": "lstm", "hidden": 6, "num_layers": 2, "bidirectional": True}], "input_shape": [7, 3]}
    traced = trace(model, mode=mode)
    first, second = 2 * 4 * 6 * (3 + 6), 2 * 4 * 6 * (12 + 6)
    assert flops(traced, "forward", 5) == 2 * 5 * 7 * (first + second)
    assert {op.kind for op in traced.operations if op.flops.at(1)} == {"recurrent"}


def test_the_fast_path_of_an_encoder_layer_is_counted() -> None:
    def of(mode: Any) -> float:
        return flops(trace(ENCODER, mode=mode), "forward", 2)

    assert of("inference") == of("training")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_resident_bytes_are_those_of_a_real_optimizer(optimizer: Any) -> None:
    traced = trace(CNN, optimizer=optimizer)
    built = build_model(parse_model(CNN))
    step = make_step(built, [built.make_batch(4, None)], Plan("cpu"), optimizer=optimizer)
    step()
    assert step.optimizer is not None
    state = [value for entry in step.optimizer.state.values() for value in entry.values() if torch.is_tensor(value)]
    parameters = list(built.module.parameters())
    assert traced.optimizer_bytes == sum(value.nbytes for value in state)
    assert traced.parameters == sum(p.numel() for p in parameters)
    assert traced.parameter_tensors == len(parameters)
    assert traced.gradient_bytes == traced.parameter_bytes == sum(p.nbytes for p in parameters)
    assert traced.buffer_bytes == sum(buffer.nbytes for buffer in built.module.buffers())


def test_the_peak_may_lie_elsewhere_at_another_batch_size() -> None:
    lines = peak_lines((2, 4), [100, 20, 12], [100, 40, 30])
    assert lines == (Affine(100, 0), Affine(0, 10))
    wide = {"layers": [{"type": "linear", "out": 4096}, {"type": "linear", "out": 4096}], "input_shape": [8]}
    traced = trace(wide)
    found = traced.peaks_under("fp32")
    peaks = Peaks(found)
    # At large batches the end of the forward, when the old gradients are gone and the new ones not there.
    assert max(found, key=lambda line: line.at(1)) != max(found, key=lambda line: line.at(5000))
    assert peaks.at(1) == traced.activation_bytes.at(1)
    assert peaks.at(5000) == pytest.approx(traced.activation_bytes.at(5000), rel=0.1)


def test_what_an_optimizer_holds_in_its_step_is_told_apart() -> None:
    """As long as the one parameter takes that is the largest by far: the root and the quotient of its moments, beside
    the batch and its loss."""
    table = {"layers": [{"type": "embedding", "in": 100_000, "out": 8}, "mean", {"type": "linear", "out": 2}]}
    model = {**table, "input_shape": [5]}
    size = 100_000 * 8 * 4
    for optimizer, held in (("adamw", 2), ("adam", 2), ("sgd", 0)):
        traced = trace(model, optimizer=optimizer)
        updating = [line.at(3) - traced.input_bytes.at(3) for line in traced.update_peaks]
        assert max(updating) == pytest.approx(held * size, abs=5000)
        assert max(line.at(3) for line in traced.peaks_under("fp32")) < 1.1 * size  # the gradient's
        assert Trace.from_json(json.loads(json.dumps(traced.to_json()))).update_peaks == traced.update_peaks
    assert trace(model, mode="inference").update_peaks == ()


def test_the_input_is_what_a_batch_takes() -> None:
    assert trace(CNN).input_bytes == Affine(0, 3 * 32 * 32 * 4 + 8)
    assert trace(TINY["gpt2"]).input_bytes == Affine(0, 16 * 8)  # the labels are the inputs
    assert trace(CNN, mode="inference").input_bytes == Affine(0, 3 * 32 * 32 * 4)  # nothing asks for a loss


def test_inference_has_a_forward_only_and_no_composite_operations() -> None:
    traced = trace(CNN, mode="inference")
    assert {op.phase for op in traced.operations} == {"forward"}
    names = {op.name for op in traced.operations}
    assert {"aten.convolution", "aten.addmm"} <= names
    assert not names & {"aten.conv2d", "aten.linear", "aten.flatten"}
    assert traced.optimizer_bytes == traced.gradient_bytes == 0


def test_billions_of_parameters_take_no_memory() -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    traced = trace("llama-2-7b")
    assert traced.parameters > 6e9
    assert flops(traced, "forward") == pytest.approx(2 * traced.parameters * 512, rel=0.1)
    assert process.memory_info().rss - before < 300_000_000


@pytest.mark.parametrize("name", ["wav2vec2", "wav2vec2-ctc", "whisper", "bart-classifies", "llama-classifies", "vit"])
def test_models_that_ask_about_their_numbers_are_traced(name: str) -> None:
    traced = trace(TINY[name])
    assert flops(traced, "backward") > flops(traced, "forward") > 0


def test_a_trace_survives_json() -> None:
    traced = trace(CNN)
    assert Trace.from_json(traced.to_json()) == traced


LARGE_BART = {"huggingface": {"model_type": "bart", "encoder_layers": 1, "decoder_layers": 1, "d_model": 1024}}


def test_samples_that_all_end_alike_need_no_numbers_to_be_told_apart() -> None:
    assert trace({**LARGE_BART, "task": "text-classification"}).parameter_bytes > 200_000_000  # not run for real


_TINY_WIDTHS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
_TINY_WIDTHS |= {"vocab_size": 300}
_SOUND = {**_TINY_WIDTHS, "model_type": "voxtral_encoder", "num_mel_bins": 8, "max_source_positions": 40}
_CAPTIONS = {**_TINY_WIDTHS, "model_type": "git_vision_model", "image_size": 32, "patch_size": 8}
_SPEECH = {"model_type": "voxtral", "audio_token_id": 24, "audio_config": _SOUND}
FED_MORE: dict[str, Any] = {
    "boxes beside words": ({"model_type": "bros", **_TINY_WIDTHS, "hidden_size": 64}, "token-classification"),
    "regions of an image beside a question": (
        {"model_type": "lxmert", **_TINY_WIDTHS, "l_layers": 1, "x_layers": 1, "r_layers": 1, "visual_feat_dim": 16},
        "question-answering",
    ),
    "a language's number": ({"model_type": "xmod", **_TINY_WIDTHS}, "masked-lm"),
    "experts chosen by chance": (
        {"model_type": "jetmoe", **_TINY_WIDTHS, "num_local_experts": 4, "kv_channels": 16, "num_key_value_heads": 1},
        "causal-lm",
    ),
    "an image before its caption": ({"model_type": "git", **_TINY_WIDTHS, "vision_config": _CAPTIONS}, "causal-lm"),
    "sound in a prompt": (
        {**_SPEECH, "text_config": {"model_type": "llama", **_TINY_WIDTHS, "num_key_value_heads": 2}},
        "speech-recognition",
    ),
}


@pytest.mark.parametrize("kind", FED_MORE)
def test_a_model_that_takes_more_than_its_main_input_is_traced_as_it_runs(kind: str) -> None:
    config, task = FED_MORE[kind]
    model = {"huggingface": config, "task": task, "sequence_length": 8}
    traced, real = trace(model), [record for record in records(model, 7) if record.kind != "view"]
    assert traced.batch_sizes == (16, 32)  # under fake tensors
    assert traced.evenly_routed is (kind == "experts chosen by chance")
    counted = sum(op.count for op in traced.operations if op.kind != "view")
    assert counted == pytest.approx(len(real), rel=0.03)  # transformers makes masks anew where it finds fake tensors
    assert traced.flops(7) == pytest.approx(sum(record.flops for record in real))


_BART = TINY["bart-classifies"]["huggingface"] | {"encoder_layers": 3, "decoder_layers": 1}
LAYER_DROP: dict[str, tuple[dict[str, Any], float]] = {
    "all alike": ({**TINY["wav2vec2"]["huggingface"], "num_hidden_layers": 3, "layerdrop": 0.2}, 0.2),
    "by its config's class": ({**TINY["wav2vec2"]["huggingface"], "num_hidden_layers": 3}, 0.1),
    "an encoder's otherwise than a decoder's": ({**_BART, "encoder_layerdrop": 0.5, "decoder_layerdrop": 0.1}, 0.4),
    "none": ({**TINY["wav2vec2"]["huggingface"], "num_hidden_layers": 3, "layerdrop": 0.0}, 0.0),
}


@pytest.mark.parametrize("kind", LAYER_DROP)
def test_a_trace_runs_every_layer_and_tells_how_many_training_leaves_out(kind: str) -> None:
    config, share = LAYER_DROP[kind]
    sizes = {"sequence_length": 16} if config["model_type"] == "bart" else {"audio_samples": 4000}
    task = "text-classification" if config["model_type"] == "bart" else "audio-classification"
    model = {"huggingface": config, "task": task, **sizes}
    assert trace_workload(workload(model), plainly=True).layers_dropped == pytest.approx(share)
    assert trace_workload(workload(model, mode="inference"), plainly=True).layers_dropped == 0


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "llama", "num_key_value_heads": 7, "num_hidden_layers": 1},
        {"model_type": "vit", "image_size": 30, "patch_size": 64, "num_hidden_layers": 1},
    ],
    ids=str,
)
def test_a_config_that_builds_but_does_not_run_is_refused_in_a_sentence(config: dict[str, Any]) -> None:
    with pytest.raises((Untraceable, InvalidModel)) as caught:
        trace({"huggingface": config})
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("shape", [[1000], [20, 9, 9]])
def test_a_loss_reads_the_labels_likelihoods_alone(shape: list[int]) -> None:
    """Of large vocabularies a likelihood in a thousand is read, and as many are not."""
    likelihoods = torch.zeros(4, *shape, requires_grad=True)
    labels = torch.zeros(4, *shape[1:], dtype=torch.long)
    with Recorder() as recorder:
        torch.nn.functional.nll_loss(likelihoods, labels).backward()
    records = {record.name: record for record in recorder.records if "nll_loss" in record.name}
    forward, backward = (next(r for name, r in records.items() if name.endswith(e)) for e in ("forward", "backward"))
    assert forward.read_bytes == labels.numel() * (8 + 4)
    assert backward.written_bytes == likelihoods.numel() * 4
    assert backward.read_bytes < labels.numel() * 8 + 100


def test_depthwise_convolutions_that_leave_places_out_are_told_apart() -> None:
    """Forward and backward, as kernels of the one take ten times as long as the other's (docs/decisions/0005)."""
    depthwise = {"type": "conv2d", "out": 16, "kernel": 3, "padding": 1, "groups": 16}
    layers = [
        {"type": "conv2d", "out": 16, "kernel": 3, "stride": 2},
        depthwise,
        {**depthwise, "stride": 2},
        "global_avg_pool",
    ]
    found = trace({"layers": layers, "input_shape": [3, 32, 32]})
    variants = {(op.name, op.variant) for op in found.operations if op.kind == "convolution"}
    for name in ("aten.convolution", "aten.convolution_backward"):
        of_name = sorted(variant for each, variant in variants if each == name)
        assert of_name == ["2d-depthwise", "2d-depthwise-strided", "2d-image"]
