"""Models are really built, fed and stepped; what the pure description said of them is true."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from probes.microtrain.building import built as building
from probes.microtrain.building.fake_models import build_fake
from probes.microtrain.failures import explain_failure
from probes.microtrain.models import build_model
from probes.workload.catalogue import CatalogueRow, list_models
from probes.workload.description import InvalidModel, ModelDescription
from probes.workload.layers import LAYER_TYPES, parse_layers
from probes.workload.models import parse_model, python_model
from probes.workload.written import write_model
from tests.probes.microtrain.tiny import TINY

EXAMPLES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "linear": ({"out": 3}, [2, 4]),
    "embedding": ({"in": 20, "out": 3}, [5]),
    "position_embedding": ({}, [5, 4]),
    "leaky_relu": ({"negative_slope": 0.2}, [4]),
    "prelu": ({"count": 4}, [4, 3, 3]),
    "gelu": ({"approximate": "tanh"}, [4]),
    "softmax": ({"dim": -1}, [3, 4]),
    "flatten": ({"start_dim": 2}, [2, 3, 4]),
    "reshape": ({"shape": [2, -1]}, [4, 3]),
    "permute": ({"dims": [3, 1, 2]}, [2, 3, 4]),
    "transpose": ({}, [2, 3]),
    "unsqueeze": ({"dim": -1}, [2, 3]),
    "squeeze": ({"dim": 2}, [2, 1, 3]),
    "mean": ({}, [5, 4]),
    "max": ({"dim": 2}, [5, 4]),
    "global_avg_pool": ({}, [4, 3, 3]),
    "global_max_pool": ({}, [4, 3]),
    "layer_norm": ({"shape": [3, 4]}, [2, 3, 4]),
    "group_norm": ({"groups": 2}, [4, 3]),
    "instance_norm": ({"affine": True}, [4, 3]),
    "spatial_dropout": ({"p": 0.2}, [4, 3]),
    "rms_norm": ({"shape": [3, 4]}, [2, 3, 4]),
    "unflatten": ({"dim": 1, "sizes": [2, -1]}, [4, 3]),
    "batch_norm": ({}, [4]),
    "upsample": ({"scale": 2, "mode": "bilinear"}, [4, 3, 3]),
    "lstm": ({"hidden": 5, "num_layers": 2, "bidirectional": True, "output": "last", "dropout": 0.1}, [4, 3]),
    "gru": ({"hidden": 5, "bidirectional": True}, [4, 3]),
    "rnn": ({"hidden": 5, "nonlinearity": "relu", "output": "last", "bias": False}, [4, 3]),
    "attention": ({"heads": 2, "bias": False}, [5, 4]),
    "transformer_encoder_layer": ({"heads": 2, "feedforward": 8, "norm_first": True, "num_layers": 3}, [5, 4]),
}


READING_LAST = ("linear", "lstm", "gru", "rnn", "attention", "transformer_encoder_layer")


def example(name: str) -> tuple[dict[str, Any], list[int]]:
    """Options and an input shape for any layer type."""
    if name in EXAMPLES:
        return EXAMPLES[name]
    axes = int(name[-2]) if name.endswith("d") and name[-2].isdigit() else 0
    shape = [4, *[9] * axes] if axes else [4]
    if name.startswith("conv"):
        return {"out": 6, "kernel": 3, "stride": 2, "padding": 1, "groups": 2}, shape
    if "adaptive" in name:
        return {"out": 2}, shape
    return ({"kernel": 2} if "pool" in name else {}), shape


def describe(*layers: Any, shape: list[int]) -> ModelDescription:
    return parse_model({"layers": list(layers), "input_shape": shape})


def outputs(description: ModelDescription) -> torch.Tensor:
    built = build_model(description)
    built.module.eval()
    result: torch.Tensor = built.forward(built.module, built.make_batch(3, None))
    return result


def parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


@pytest.mark.parametrize("name", [kind.name for kind in LAYER_TYPES])
def test_a_layer_has_the_shape_and_parameters_that_were_inferred(name: str) -> None:
    options, shape = example(name)
    document = {"layers": [{"type": name, **options}, {"type": "prelu"}], "input_shape": shape}
    content, count = parse_layers(document)
    description = parse_model(document)
    assert list(outputs(description).shape) == [3, *content["output_shape"]]
    assert parameters(build_model(description).module) == count


@pytest.mark.parametrize("name", [kind.name for kind in LAYER_TYPES if kind.name != "embedding"])
def test_a_checked_model_written_out_is_the_same_model(name: str) -> None:
    """Behind a convolution, which puts the classes first."""
    options, shape = example(name)
    shape = shape if len(shape) > 1 else [*shape, 1]
    convolution = {"type": f"conv{len(shape) - 1}d", "out": shape[0], "kernel": 1}
    turned = ["transpose"] if name == "position_embedding" else []
    reads_last = {"in": shape[-1]} if name in READING_LAST else {}  # or it is taken for a mistake
    checked = describe(convolution, *turned, {"type": name, **options, **reads_last}, shape=shape)
    assert parse_model(write_model(checked)).content == checked.content


@pytest.mark.parametrize("name", [kind.name for kind in LAYER_TYPES if "norm" in kind.name])
def test_a_norm_is_built_with_the_numbers_that_were_written(name: str) -> None:
    options, shape = example(name)
    numbers = {"eps": 0.25, "momentum": 0.5} if name.startswith(("batch", "instance")) else {"eps": 0.25}
    norm = build_model(describe({"type": name, **options, **numbers}, "prelu", shape=shape)).module[0]  # type: ignore[index]
    assert {number: getattr(norm, number) for number in numbers} == numbers


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("name", ["spatial_dropout", "dropout{}d", "SpatialDropout{}D"])
def test_dropout_of_whole_channels_is_torchs_own(name: str, axes: int) -> None:
    layer = {"type": name.format(axes), "p": 0.25, "inplace": False}
    built = build_model(describe(layer, "prelu", shape=[40, *[3] * axes]))
    dropout = built.module[0]  # type: ignore[index]
    assert type(dropout) is (torch.nn.Dropout1d, torch.nn.Dropout2d, torch.nn.Dropout3d)[axes - 1]
    dropped = dropout.train()(torch.ones(2, 40, *[3] * axes)).flatten(2)
    assert set(dropped.amin(2).flatten().tolist()) == set(dropped.amax(2).flatten().tolist()) != {1.0}
    assert torch.equal(dropped.amin(2), dropped.amax(2))  # a channel as a whole


@pytest.mark.parametrize(("name", "shape"), [("spatial_dropout", [4]), ("dropout1d", [4]), ("dropout2d", [4, 3])])
def test_dropout_of_channels_that_there_are_not_is_refused(name: str, shape: list[int]) -> None:
    with pytest.raises(InvalidModel, match=f"{name}.*whole channels"):
        describe(name, "prelu", shape=shape)


small = st.integers(1, 4)


@given(
    st.sampled_from(["conv2d", "max_pool2d", "avg_pool2d", "conv_transpose2d"]),
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
    st.fixed_dictionaries({"kernel": small}, optional={"stride": small, "padding": st.integers(0, 3)}),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_windows_are_counted_as_torch_counts_them(
    name: str, size: tuple[int, int], options: dict[str, Any], ceil: bool
) -> None:
    extra: dict[str, Any] = {"ceil_mode": ceil} if "pool" in name else {"out": 2}
    try:
        description = describe({"type": name, **options, **extra}, "prelu", shape=[2, *size])
    except InvalidModel:
        return
    assert list(outputs(description).shape[1:]) == description.content["output_shape"]


@pytest.mark.parametrize("row", list_models(), ids=lambda row: row.name)
def test_a_catalogue_row_states_the_parameters_of_the_model_that_is_built(row: CatalogueRow) -> None:
    assert parameters(build_fake(row.description, FakeTensorMode()).module) == row.parameters


@pytest.mark.parametrize("name", TINY)
def test_a_hugging_face_model_takes_a_real_step_with_its_own_loss(name: str) -> None:
    built = build_model(parse_model(TINY[name]))
    before = [parameter.detach().clone() for parameter in built.module.parameters()]
    optimizer = torch.optim.SGD(built.module.parameters(), lr=0.5)
    batch = built.make_batch(3, None)
    built.module.train()
    loss = built.loss(built.forward(built.module, batch), batch)
    loss.backward()
    optimizer.step()
    assert torch.isfinite(loss)
    assert any(not torch.equal(a, b) for a, b in zip(before, built.module.parameters(), strict=True))
    built.module.eval()
    with torch.inference_mode():
        assert getattr(built.forward(built.module, batch), "loss", None) is None


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("model", ["iris-mlp", "lstm-classifier", TINY["bert"], TINY["resnet"]], ids=str)
def test_batches_differ_each_time_unless_a_generator_says_otherwise(model: Any) -> None:
    built = build_model(parse_model(model))
    assert not same(built.make_batch(8, None), built.make_batch(8, None))
    seeds = [torch.Generator().manual_seed(1) for _ in range(2)]
    assert same(built.make_batch(8, seeds[0]), built.make_batch(8, seeds[1]))
    assert {len(tensor) for tensor in built.make_batch(5, None).values()} == {5}


def test_a_global_pool_behind_an_embedding_is_over_the_steps() -> None:
    layers = [{"type": "embedding", "in": 9, "out": 4}, "GlobalAveragePooling1D", {"type": "linear", "out": 2}]
    built = build_model(parse_model({"layers": layers, "input_shape": [7]}))
    inputs = torch.randint(9, (3, 7))
    assert isinstance(built.module, torch.nn.Sequential)
    embedding, _, linear = built.module
    assert torch.equal(built.module(inputs), linear(embedding(inputs).mean(1)))


def test_a_sequence_of_classes_is_judged_at_every_step() -> None:
    built = build_model(describe({"type": "gru", "hidden": 8}, {"type": "linear", "out": 3}, shape=[6, 4]))
    batch = built.make_batch(2, None)
    output = built.forward(built.module, batch)
    expected = torch.nn.functional.cross_entropy(output.reshape(12, 3), batch["targets"].reshape(12))
    assert torch.isclose(built.loss(output, batch), expected)


def test_a_pixelwise_classifier_is_judged_at_every_pixel() -> None:
    built = build_model(describe({"type": "conv2d", "out": 5, "kernel": 3, "padding": "same"}, shape=[3, 8, 8]))
    batch = built.make_batch(2, None)
    assert list(batch["targets"].shape) == [2, 8, 8]
    built.loss(built.forward(built.module, batch), batch).backward()


def test_more_tokens_than_positions_are_refused_with_the_limit() -> None:
    widths = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    with pytest.raises(InvalidModel, match="512"):
        build_model(parse_model({"huggingface": {"model_type": "bert", **widths}, "sequence_length": 513}))
    roberta = {"model_type": "roberta", "max_position_embeddings": 40, **widths}
    with pytest.raises(InvalidModel, match="38"):
        build_model(parse_model({"huggingface": roberta, "sequence_length": 39}))
    built = build_model(parse_model({"huggingface": roberta}))  # the default is cut to what fits
    built.module.train()
    built.forward(built.module, built.make_batch(2, None))


def test_building_stops_at_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "MAX_MODULES", 3)
    with pytest.raises(InvalidModel, match="modules"):
        build_model(describe(*["relu"] * 5, {"type": "linear", "out": 2}, shape=[4]))
    monkeypatch.setattr(building, "MAX_PARAMETERS", 5)
    with pytest.raises(InvalidModel, match="parameters"):
        build_model(describe({"type": "linear", "out": 2}, shape=[4]))


def test_building_stops_before_parameters_take_more_memory_than_they_may() -> None:
    model = describe({"type": "linear", "out": 1000}, {"type": "linear", "out": 2}, shape=[250])
    needed = 4 * (250 * 1000 + 1000 + 1000 * 2 + 2)
    assert build_model(model, needed).module
    with pytest.raises(building.TooManyBytes, match=r"more than 0\.00101\d* GB"):
        build_model(model, needed - 1)
    with torch.device("meta"):
        assert build_model(model, 0).module


def test_parameters_that_layers_share_take_their_memory_once() -> None:
    with building.bounded_building(4 * 10 * 10):
        one, other = (torch.nn.Linear(10, 10, bias=False, device=device) for device in ("cpu", "meta"))
        other.weight = one.weight
    with building.bounded_building(4 * 10 * 10), pytest.raises(building.TooManyBytes):
        _kept = [torch.nn.Linear(10, 10, bias=False) for _ in range(2)]


def test_a_summary_cannot_be_built() -> None:
    figures = {"parameters": 25, "flops_per_sample": 4, "activation_bytes_per_sample": 9, "operations": 160}
    with pytest.raises(InvalidModel, match="summary"):
        build_model(parse_model({"summary": figures}))


PROGRAM = """
import torch
from torch import nn

def alone():
    return nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 2))

def too_large_for_torch():
    return nn.Linear(1 << 25, 1 << 25)

def too_large_for_python():
    return bytearray(1 << 55)

def with_batches():
    return nn.Linear(3, 2), lambda size: (torch.randn(size, 3), torch.randint(2, (size,)))

def with_example():
    return nn.Linear(3, 2), (torch.randn(10, 3), torch.randn(10, 2))

def with_loss():
    return nn.Linear(3, 2), lambda size: torch.randn(size, 3), lambda output, batch: output.sum()

class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
    def forward(self, x):
        return {"loss": self.layer(x).sum()}

def with_names():
    return Own(), {"x": torch.randn(10, 3)}

class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
    def forward(self, x, scale):
        return self.layer(x) * scale

def with_names_and_targets():
    batch = lambda size: ({"x": torch.randn(size, 3), "scale": torch.ones(size, 1)}, torch.randint(2, (size,)))
    return Named(), batch

class Together(Named):
    def forward(self, rows):
        return super().forward(**rows)

def with_names_in_one_argument():
    return Together(), with_names_and_targets()[1]

class Wrapper(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs)

def with_names_in_one_argument_of_a_wrapped_model():
    return Wrapper(Together()), with_names_and_targets()[1]

def nothing():
    return 3

def unclear():
    return nn.Conv2d(3, 4, 3)

def shape_for_a_batch():
    return nn.Linear(3, 2), (3,)

def broken():
    raise RuntimeError("no data here")

def leaving():
    raise SystemExit(3)
"""


@pytest.fixture
def own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the current folder."""
    (tmp_path / "own_training.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", __import__("sys").path[:])
    monkeypatch.delitem(__import__("sys").modules, "own_training", raising=False)
    return "own_training"


@pytest.mark.parametrize("function", [
    "alone", "with_batches", "with_example", "with_loss", "with_names", "with_names_and_targets",
    "with_names_in_one_argument", "with_names_in_one_argument_of_a_wrapped_model",
])  # fmt: skip
def test_the_users_own_python_is_stepped(own_code: str, function: str) -> None:
    built = build_model(python_model(f"{own_code}:{function}"))
    batch = built.make_batch(4, None)
    built.loss(built.forward(built.module, batch), batch).backward()
    assert all(parameter.grad is not None for parameter in built.module.parameters())


@pytest.mark.parametrize("function", ["too_large_for_torch", "too_large_for_python"])
def test_python_that_runs_out_of_memory_is_not_called_wrong(own_code: str, function: str) -> None:
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        build_model(python_model(f"{own_code}:{function}"))
    assert explain_failure(caught.value).code == "out-of-memory"


@pytest.mark.parametrize("function", ["nothing", "unclear", "shape_for_a_batch", "broken", "leaving", "missing"])
def test_python_that_gives_no_model_is_told_what_is_expected(own_code: str, function: str) -> None:
    with pytest.raises(InvalidModel, match=function):
        build_model(python_model(f"{own_code}:{function}"))
