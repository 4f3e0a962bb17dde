"""Every snippet here is pasted into a real Python process, which runs it; one process for all of them."""

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from app.advisor.snippets.snippet import write_snippet
from probes.microtrain.models import build_model
from probes.workload.description import Data, Mode, ModelDescription, Plan, Workload
from probes.workload.layers import LAYER_TYPES, parse_layers
from tests.app.advisor.build import a_workload
from tests.app.advisor.snippets.pasting import on_the_cpu, pins, prepared_on_meta, run_all

IMAGE, SERIES, TEXT = [3, 16, 16], [12, 8], [10]
EMBEDDING = {"type": "embedding", "in": 50, "out": 8}

PLAIN = (
    *("relu", "relu6", "gelu", "silu", "mish", "tanh", "sigmoid", "leaky_relu", "elu", "celu", "selu", "softplus"),
    *("softsign", "hardswish", "hardsigmoid", "hardtanh", "log_sigmoid", "identity", "dropout", "alpha_dropout"),
)

# One model for each layer type; between them every option that changes the constructor's call.
MODELS: dict[str, tuple[list[Any], list[int]]] = {
    "linear": ([{"type": "linear", "out": 3, "bias": False}], [4]),
    "regression": ([{"type": "linear", "out": 1}], [4]),
    "flatten": (["flatten", {"type": "linear", "out": 3}], IMAGE),
    "flatten-some": ([{"type": "flatten", "start_dim": 2, "end_dim": 3}, {"type": "linear", "out": 3}], IMAGE),
    "reshape": ([{"type": "reshape", "shape": [3, 256]}, {"type": "linear", "out": 3}], IMAGE),
    "permute": ([{"type": "permute", "dims": [2, 1]}, {"type": "linear", "out": 3}], SERIES),
    "transpose": (["transpose", {"type": "linear", "out": 3}], SERIES),
    "unsqueeze": ([{"type": "unsqueeze", "dim": 1}, {"type": "conv1d", "out": 2, "kernel": 3}], [9]),
    "squeeze": ([{"type": "conv1d", "out": 1, "kernel": 3}, {"type": "squeeze", "dim": 1}], SERIES),
    "mean": (["mean", {"type": "linear", "out": 3}], SERIES),
    "max": (["max", {"type": "linear", "out": 3}], SERIES),
    "softmax": ([{"type": "linear", "out": 3}, "softmax"], [4]),
    "log_softmax": ([{"type": "linear", "out": 3}, "log_softmax"], [4]),
    "prelu": ([{"type": "linear", "out": 3}, "prelu"], [4]),
    "prelu-channels": ([{"type": "conv2d", "out": 4, "kernel": 1}, {"type": "prelu", "count": 4}], IMAGE),
    "conv2d": ([{"type": "conv2d", "out": 4, "kernel": [3, 5], "stride": [1, 2], "padding": [1, 0]}], IMAGE),
    "conv2d-same": ([{"type": "conv2d", "out": 6, "kernel": 3, "padding": "same", "groups": 3, "dilation": 2}], IMAGE),
    "conv1d": ([{"type": "conv1d", "out": 4, "kernel": 3, "bias": False}], SERIES),
    "conv3d": ([{"type": "conv3d", "out": 4, "kernel": 2}], [2, 6, 6, 6]),
    "batch_norm-flat": ([{"type": "linear", "out": 3}, "batch_norm"], [4]),
    "group_norm": ([{"type": "conv2d", "out": 4, "kernel": 1}, {"type": "group_norm", "groups": 2}], IMAGE),
    "group_norm-one": ([{"type": "conv2d", "out": 4, "kernel": 1}, {"type": "group_norm", "groups": 1}], IMAGE),
    "layer_norm-two-axes": ([{"type": "layer_norm", "shape": [8, 8]}, {"type": "linear", "out": 3}], [8, 8]),
    "layer_norm": (["layer_norm", {"type": "linear", "out": 3}], SERIES),
    "rms_norm": (["rms_norm", {"type": "linear", "out": 3}], SERIES),
    "instance_norm": ([{"type": "conv2d", "out": 4, "kernel": 1}, "instance_norm"], IMAGE),
    "norms-of-own-numbers": (
        [
            {"type": "conv2d", "out": 4, "kernel": 1},
            {"type": "batch_norm", "eps": 0.5, "momentum": 0.25},
            {"type": "instance_norm", "eps": 0.25, "momentum": 0.5},
            {"type": "group_norm", "groups": 2, "eps": 0.125},
            {"type": "layer_norm", "shape": 16, "eps": 0.5},
            {"type": "rms_norm", "shape": 16, "eps": 0.25},
        ],
        IMAGE,
    ),
    "unflatten": ([{"type": "unflatten", "sizes": [2, 6]}, {"type": "linear", "out": 3}], SERIES),
    "upsample": (["upsample", {"type": "conv2d", "out": 4, "kernel": 1}], IMAGE),
    "upsample-bilinear": ([{"type": "upsample", "mode": "bilinear"}, {"type": "conv2d", "out": 4, "kernel": 1}], IMAGE),
    "embedding": ([EMBEDDING, "mean", {"type": "linear", "out": 3}], TEXT),
    "position_embedding": ([EMBEDDING, "position_embedding", {"type": "linear", "out": 50}], TEXT),
    "lstm": ([EMBEDDING, {"type": "lstm", "hidden": 8, "bidirectional": True, "output": "last"}], TEXT),
    "gru": ([EMBEDDING, {"type": "gru", "hidden": 8, "num_layers": 2, "dropout": 0.1}], TEXT),
    "rnn": ([{"type": "rnn", "hidden": 8, "nonlinearity": "relu", "bias": False}], SERIES),
    "attention": ([EMBEDDING, {"type": "attention", "heads": 2}], TEXT),
    "transformer_encoder_layer": (
        [
            EMBEDDING,
            {"type": "transformer_encoder_layer", "heads": 2, "feedforward": 16, "activation": "gelu"},
            {"type": "linear", "out": 3},
        ],
        TEXT,
    ),
    "transformer_encoder_layer-stacked": (
        [EMBEDDING, {"type": "transformer_encoder_layer", "heads": 2, "num_layers": 3, "norm_first": True}],
        TEXT,
    ),
    "gru-last": ([{"type": "gru", "hidden": 8, "num_layers": 2, "output": "last"}], SERIES),
    "rnn-last": ([{"type": "rnn", "hidden": 8, "bidirectional": True, "output": "last"}], SERIES),
    "nested": (
        [
            {"type": "conv2d", "out": 4, "kernel": 3, "padding": 1},
            {
                "type": "residual",
                "layers": [
                    {"type": "sequential", "layers": ["relu", {"type": "conv2d", "out": 4, "kernel": 1}]},
                    "batch_norm",
                ],
            },
            "global_avg_pool",
            {"type": "linear", "out": 3},
        ],
        IMAGE,
    ),
    "global_max_pool": ([{"type": "conv2d", "out": 4, "kernel": 1}, "global_max_pool"], IMAGE),
    **{
        f"{name}-{axes}": (
            [{"type": f"conv{axes}d", "out": 4, "kernel": 1}, {"type": f"{name}{axes}d", **options}],
            [2, *[9] * axes],
        )
        for axes in (1, 2, 3)
        for name, options in {
            "max_pool": {"kernel": 3, "stride": 1, "padding": 1},
            "avg_pool": {"kernel": 2, "ceil_mode": True},
            "adaptive_avg_pool": {"out": 2},
            "adaptive_max_pool": {"out": 1},
            "batch_norm": {"affine": False},
            "instance_norm": {"affine": True},
            "dropout": {"p": 0.2},
            "conv_transpose": {"out": 3, "kernel": 2, "stride": 2, "output_padding": 1},
        }.items()
    },
    **{name: ([{"type": "linear", "out": 3}, name], [4]) for name in PLAIN},
    "spatial_dropout": ([{"type": "conv2d", "out": 4, "kernel": 1}, "spatial_dropout"], IMAGE),
}

OWN = """
import torch

def host(device="cpu"):
    make_batch = lambda n: (torch.randn(n, 4, device=device), torch.randint(3, (n,), device=device))
    return torch.nn.Linear(4, 3), make_batch

def card():
    return host("meta")

class Altering(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x.unsqueeze_(1)).flatten(1)

def altering():
    # As a function that keeps the rows it gave once.
    batch = torch.randn(2, 4), torch.randint(1, 4, (2,))
    loss = lambda output, batch: torch.nn.functional.cross_entropy(output, batch[1].sub_(1))
    return Altering(4, 3), lambda n: batch, loss
"""


def a_model(name: str) -> ModelDescription:
    layers, shape = MODELS[name]
    content, _ = parse_layers({"layers": layers, "input_shape": shape})
    return ModelDescription("layers", name, content)


def test_every_layer_type_has_a_snippet_that_runs_when_pasted() -> None:
    plans = (Plan("cpu", "fp32", 1), Plan("cpu", "bf16", 1))
    has_bf16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()  # without AVX-512 torch refuses an LSTM's inference
    snippets = {
        f"{name} {plan.label}": write_snippet(Workload(a_model(name), 2), plan)
        for name in MODELS
        for plan in plans[: 2 if name == "nested" or (name == "lstm" and has_bf16) else 1]
    }
    for optimizer in ("sgd", "sgd-momentum", "adam", "adamw", "rmsprop", "adagrad"):
        snippets[optimizer] = write_snippet(Workload(a_model("linear"), 2, optimizer=optimizer), plans[0])  # type: ignore[arg-type]
    for log_every in (None, 1, 2):
        snippets[f"log {log_every}"] = write_snippet(Workload(a_model("linear"), 2, log_every=log_every), plans[0])
    snippets["inference"] = write_snippet(Workload(a_model("lstm"), 2, mode="inference"), plans[has_bf16])
    snippets["summary"] = write_snippet(a_workload(), Plan("cpu", "bf16", 2))
    for name in MODELS:
        snippets[f"{name} on a device"] = on_the_cpu(write_snippet(Workload(a_model(name), 2), Plan("cuda:0")))
    assert run_all(snippets) == {}


def norm_numbers(module: torch.nn.Module) -> list[tuple[float, float | None]]:
    """`eps` and `momentum` of every normalisation inside; the momentum tells of training alone."""
    norms: list[Any] = [each for each in module.modules() if hasattr(each, "eps")]
    return [(each.eps, getattr(each, "momentum", None)) for each in norms]


@pytest.mark.parametrize("name", MODELS)
def test_a_snippet_builds_the_model_whose_figures_were_told(name: str) -> None:
    """With the same weights both give the same for the same input."""
    workload = Workload(a_model(name), 2, mode="inference")
    threads = torch.get_num_threads()
    pasted: dict[str, Any] = {}
    try:
        exec(write_snippet(workload, Plan("cpu", "fp32", 1)), pasted)
        built = build_model(workload.model).module.eval()
        theirs, ours = pasted["model"].eval(), pasted["x"]
        for pair in (theirs.parameters(), built.parameters()), (theirs.buffers(), built.buffers()):
            for there, here in zip(*pair, strict=True):
                here.data = there.data.clone()
        with torch.inference_mode():
            assert norm_numbers(theirs) == norm_numbers(built)
            torch.testing.assert_close(theirs(ours), built(ours))
    finally:
        torch.set_num_threads(threads)


def test_the_models_above_cover_every_layer_type() -> None:
    def types(layer: Any) -> set[str]:
        if isinstance(layer, str):
            return {layer}
        return {layer["type"], *(kind for inner in layer.get("layers", ()) for kind in types(inner))}

    written = {kind for layers, _ in MODELS.values() for layer in layers for kind in types(layer)}
    assert {kind.name for kind in LAYER_TYPES} - written == set()


@pytest.mark.parametrize(
    ("plan", "lines"),
    [
        (Plan("cpu", "fp32", 3), ["torch.set_num_threads(3)", 'torch.device("cpu")']),
        (Plan("cpu", "bf16", 1), ['torch.autocast("cpu", dtype=torch.bfloat16)']),
        (Plan("cuda:1", "tf32"), ["torch.backends.cuda.matmul.allow_tf32 = True", 'torch.device("cuda:1")']),
        (Plan("cuda:0", "fp32"), ["torch.backends.cudnn.allow_tf32 = False", "x.to(device"]),
        (Plan("cuda:0", "fp16"), ['GradScaler("cuda")', "scaler.update()", 'torch.autocast("cuda"']),
    ],
)
def test_a_snippet_sets_what_the_plan_says(plan: Plan, lines: list[str]) -> None:
    snippet = write_snippet(Workload(a_model("linear"), 2), plan)
    for line in lines:
        assert line in snippet


def test_a_snippet_reads_as_people_write() -> None:
    content, _ = parse_layers(
        {"layers": [{"type": "linear", "out": 10}, "relu", {"type": "linear", "out": 3}], "input_shape": [4]}
    )
    workload = Workload(ModelDescription("layers", "iris", content), 120, optimizer="sgd", log_every=1)
    assert (
        write_snippet(workload, Plan("cpu", "fp32", 1))
        == """import torch
from torch import nn

torch.set_num_threads(1)
device = torch.device("cpu")

model = nn.Sequential(
    nn.Linear(4, 10),
    nn.ReLU(),
    nn.Linear(10, 3),
)
model = model.to(device).train()

optimizer = torch.optim.SGD(model.parameters())

# Random stand-ins: your own data goes here.
x = torch.randn(120, 4)
y = torch.randint(3, (120,))

for step in range(3):  # over your batches
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
    )


@pytest.mark.parametrize("name", MODELS)
def test_a_device_s_model_is_built_there_and_never_on_the_host(name: str) -> None:
    """A host's memory may be the smaller one."""
    pasted = prepared_on_meta(write_snippet(Workload(a_model(name), 2), Plan("cuda:0")))
    assert {parameter.device.type for parameter in pasted["model"].parameters()} <= {"meta"}


@pytest.mark.parametrize("model", [a_model("linear"), a_workload().model])
def test_a_batch_that_was_timed_from_pinned_memory_lies_there_in_the_snippet(
    model: ModelDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = pins(monkeypatch)
    pasted = prepared_on_meta(write_snippet(Workload(model, 2, data="pinned"), Plan("cuda:0")))
    assert [id(tensor) for tensor in pinned] == [id(pasted["x"]), id(pasted["y"])]
    for workload, plan in (Workload(model, 2), Plan("cuda:0")), (Workload(model, 2, data="pinned"), Plan("cpu")):
        assert "pin" not in write_snippet(workload, plan)


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize("model", [a_model("linear"), a_workload().model])
def test_data_that_were_timed_on_the_device_are_put_there_before_the_steps(model: ModelDescription, mode: Mode) -> None:
    snippet = write_snippet(Workload(model, 2, mode, data="resident"), Plan("cuda:0"))
    before, _, steps = snippet.partition("for step in ")
    assert ".to(device" in before
    assert "to(device" not in steps
    assert prepared_on_meta(snippet)["x"].device.type == "meta"
    assert "lies on the device" not in write_snippet(Workload(model, 2, mode, data="resident"), Plan("cpu"))


def test_batches_of_one_s_own_lie_on_the_device_and_each_step_has_a_copy_there() -> None:
    workload = Workload(ModelDescription("python", "own:model", {}), 2, data="resident")
    before, _, steps = write_snippet(workload, Plan("cuda:0")).partition("for step in ")
    assert "import map_tensors, own_copy, to_device" in before
    assert "made = to_device(made, device)" in before
    assert "batch = map_tensors(made, own_copy)" in steps
    assert "to_device" not in steps


def test_what_crosspoint_builds_imports_what_pins_where_a_batch_is_pinned() -> None:
    workload = Workload(ModelDescription("python", "own:model", {}), 2, data="pinned")
    on_cpu, on_device = (write_snippet(workload, Plan(device)) for device in ("cpu", "cuda:0"))
    assert "import pinned, to_device" in on_device
    assert "(made,) = pinned([made])" in on_device
    assert "pinned" not in on_cpu.replace(repr(workload.model.to_json()), "")


@pytest.mark.parametrize(("device", "is_set"), [("cuda:1", True), ("cuda:0", False), ("cpu", False)])
def test_another_card_than_the_first_is_the_current_one_before_anything_is_built(device: str, is_set: bool) -> None:
    """As it was while its steps were measured: it is what `cuda` means in one's own code, and whom autocast asks."""
    for model in (a_model("linear"), ModelDescription("python", "own:model", {})):
        before, _, after = write_snippet(Workload(model, 2), Plan(device, "bf16")).partition("model = ")
        assert ("torch.cuda.set_device(device)" in before.splitlines()) is is_set
        assert "set_device" not in after


@pytest.mark.parametrize(("data", "plan"), [("pageable", Plan("cpu")), ("pinned", Plan("cuda:0"))])
def test_batches_that_one_s_own_code_makes_on_a_card_are_put_on_the_cpu_first(
    data: Data, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where they are measured: else a plan for the CPU fails at its first step, and only the CPU's can be pinned.
    torch's device `meta` is not the CPU either, and says so when it is to be copied there."""
    (tmp_path / f"own_{data}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    targets = (f"own_{data}:{name}" for name in ("host", "card"))
    on_the_host, elsewhere = (ModelDescription("python", target, {"target": target}) for target in targets)
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        prepared_on_meta(write_snippet(Workload(elsewhere, 2, data=data), plan))
    assert run_all({"own": write_snippet(Workload(on_the_host, 2), Plan("cpu", "fp32", 1))}) == {}


def test_a_step_that_alters_its_batch_gets_another_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it is measured; on a device the copy there is one."""
    (tmp_path / "own_altering.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    model = ModelDescription("python", "own_altering:altering", {"target": "own_altering:altering"})
    cpu = Plan("cpu", "fp32", 1)
    snippets = {mode: write_snippet(Workload(model, 2, mode=mode), cpu) for mode in ("training", "inference")}
    assert run_all(snippets) == {}
    on_device = write_snippet(Workload(model, 2), Plan("cuda:0"))
    assert "    batch = to_device(made, device, non_blocking=True)\n" in on_device
    assert "map_tensors" not in on_device


def test_the_loop_of_inference_never_holds_two_outputs() -> None:
    """A model's logits may take more than all else together."""
    outputs: list[weakref.ref[torch.Tensor]] = []

    def begin(module: torch.nn.Module, inputs: object) -> None:
        if isinstance(module, torch.nn.Sequential):
            held.append(sum(output() is not None for output in outputs))

    def end(module: torch.nn.Module, inputs: object, output: torch.Tensor) -> None:
        outputs.append(weakref.ref(output))

    held: list[int] = []
    hooks = [register_module_forward_pre_hook(begin), register_module_forward_hook(end)]
    threads = torch.get_num_threads()
    try:
        for precision in ("fp32", "bf16"):
            exec(write_snippet(Workload(a_model("linear"), 2, mode="inference"), Plan("cpu", precision, 1)), {})  # type: ignore[arg-type]
    finally:
        torch.set_num_threads(threads)
        for hook in hooks:
            hook.remove()
    assert held == [0] * 6
