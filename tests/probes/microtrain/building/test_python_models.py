"""One's own Python is called as it wants to be, judged as its batches say, and leaves torch as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from probes.microtrain.building.built import InvalidLoss
from probes.microtrain.building.fake_models import build_meta
from probes.microtrain.building.python_models import call_module, default_loss
from probes.microtrain.building.samples_asked import InvalidBatch
from probes.microtrain.models import build_model
from probes.microtrain.tracing import trace_workload
from probes.workload.description import InvalidModel, Workload
from probes.workload.models import python_model
from tests.probes.microtrain.traces.test_tracing_own_code import place

PROGRAM = """
import argparse
import torch
from torch import nn

torch.set_num_threads(3)

def one_output():
    return nn.Sequential(nn.Linear(13, 8), nn.ReLU(), nn.Linear(8, 1))

def from_an_example():
    return one_output(), {"x": torch.rand(10, 13, requires_grad=True)}, lambda output, batch: output.sum()

def by_a_function():
    x = torch.rand(100, 13, requires_grad=True)
    return one_output(), lambda size: {"x": x[:size]}, lambda output, batch: output.sum()

def asking_example():
    return one_output(), (torch.rand(10, 13, requires_grad=True), torch.rand(10, 1))

def asking_function():
    return one_output(), lambda size: (torch.rand(size, 13, requires_grad=True), torch.rand(size, 1))

def packed_example():
    return nn.LSTM(4, 3), (nn.utils.rnn.pack_sequence([torch.rand(3, 4), torch.rand(2, 4)]), torch.rand(2, 3))

def hiding_example():
    return one_output(), (argparse.Namespace(x=torch.rand(10, 13)), torch.rand(10, 1))

def empty_example():
    return one_output(), (torch.rand(0, 13), torch.rand(0, 1))

def mixed_example():
    return nn.Linear(13, 1), ((torch.rand(64, 13), torch.rand(32, 32)), torch.rand(64, 1))

def sets_threads():
    torch.set_num_threads(3)
    return one_output()

def with_its_targets():
    return one_output(), torch.rand(10, 13), torch.rand(10, 1)

def with_a_loss(loss):
    return lambda: (one_output(), (torch.rand(10, 13), torch.rand(10, 1)), loss)

def without_a_known_argument():
    argparse.ArgumentParser().parse_args(["--unheard-of"])

def from_a_hub():
    # as offline, wherever this runs
    import transformers
    return transformers.AutoModel.from_pretrained("nobody/has-this", local_files_only=True)

def from_a_hub_by_file():
    import huggingface_hub
    return huggingface_hub.hf_hub_download("nobody/has-this", "model.bin", local_files_only=True)

ROWS, CLASSES = torch.rand(40, 13), torch.tensor([1, 2]).repeat(20)

def counted_from_one():
    model = nn.Sequential(nn.Linear(13, 2))
    loss = lambda output, batch: nn.functional.cross_entropy(output, batch[1].sub_(1))
    return model, lambda size: (ROWS[:size], CLASSES[:size]), loss

def its_own_target():
    def batch(size):
        rows = ROWS[:size]
        return {"x": rows, "labels": rows, "scale": SCALE}
    return one_output(), batch

SCALE = torch.ones(())

def with_a_scale():
    return one_output(), {"x": ROWS, "labels": ROWS, "scale": SCALE}

squares_of = lambda output, batch: (output - batch[1]).square()
squared = with_a_loss(lambda output, batch: squares_of(output, batch).mean())
in_a_column = with_a_loss(lambda output, batch: squares_of(output, batch).mean(0, keepdim=True))
printed = with_a_loss(lambda output, batch: None)
in_parts = with_a_loss(lambda output, batch: {"loss": squares_of(output, batch).mean()})
one_by_one = with_a_loss(squares_of)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the current folder."""
    place(tmp_path, monkeypatch, "own_python", PROGRAM)
    monkeypatch.delitem(__import__("sys").modules, "own_python", raising=False)
    return "own_python"


@pytest.mark.parametrize("function", ["one_output", "sets_threads"])
def test_threads_that_a_script_sets_for_itself_are_not_a_plans(own: str, function: str) -> None:
    before = torch.get_num_threads()
    build_model(python_model(f"{own}:{function}"))
    assert torch.get_num_threads() == before != 3


def test_nor_where_it_is_imported_alone(own: str) -> None:
    before = torch.get_num_threads()
    build_meta(python_model(f"{own}:one_output"))
    assert torch.get_num_threads() == before != 3


def test_a_module_with_one_output_learns_numbers_as_layers_with_one_do(own: str) -> None:
    built = build_model(python_model(f"{own}:one_output"))
    batch = built.make_batch(4, None)
    output = built.forward(built.module, batch)
    loss = built.loss(output, batch)
    assert loss.item() == functional.mse_loss(output, batch[1]).item()
    loss.backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in built.module.parameters())


@pytest.mark.parametrize("shapes", [((5, 1), (5,)), ((5,), (5, 1)), ((5, 1, 3), (5, 3))])
def test_targets_that_are_as_many_as_the_outputs_are_taken_one_by_one(shapes: tuple[tuple[int, ...], ...]) -> None:
    output, targets = (torch.randn(shape) for shape in shapes)
    expected = (output.flatten() - targets.flatten()).square().mean()
    assert torch.isclose(default_loss(output, (None, targets)), expected)


@pytest.mark.filterwarnings("ignore:Using a target size")  # torch's, which means what is meant here
@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 1)])
def test_one_target_may_stand_for_many_outputs(shape: tuple[int, ...]) -> None:
    output, targets = torch.randn(5, 3), torch.randn(shape)
    assert torch.isclose(default_loss(output, (None, targets)), (output - targets).square().mean())


@pytest.mark.parametrize("shapes", [((5, 1), (5, 3)), ((5, 3), (5,)), ((5, 3), (5, 3, 2))])
def test_targets_of_another_number_are_refused_with_both_shapes(shapes: tuple[tuple[int, ...], ...]) -> None:
    output, targets = (torch.randn(shape) for shape in shapes)
    with pytest.raises(InvalidBatch) as caught:
        default_loss(output, (None, targets))
    assert all(str(shape) in str(caught.value) for shape in shapes)


@pytest.mark.parametrize("shapes", [((2, 7, 5), (2, 7)), ((2, 3, 7, 5), (2, 3, 7))])
def test_class_numbers_of_each_place_are_learned_where_the_classes_come_last(
    shapes: tuple[tuple[int, ...], ...],
) -> None:
    """As a language model's, or a tagger's."""
    output, targets = torch.randn(shapes[0]), torch.randint(5, shapes[1])
    expected = functional.cross_entropy(output.flatten(0, -2), targets.flatten())
    assert torch.isclose(default_loss(output, (None, targets)), expected)
    assert torch.isclose(default_loss(output.movedim(-1, 1), (None, targets)), expected)


@pytest.mark.parametrize("shape", [(5, 1), (5, 1, 3)])
def test_class_numbers_of_a_single_class_are_refused_before_any_is_out_of_bounds(shape: tuple[int, ...]) -> None:
    targets = torch.ones((shape[0], *shape[2:]), dtype=torch.long)
    with pytest.raises(InvalidLoss, match=r"one class, and the batch's targets are class numbers\. Give targets with"):
        default_loss(torch.randn(shape), (None, targets))


@pytest.mark.parametrize(
    ("targets", "told"), [({"labels": torch.ones(5)}, "are a dict"), ([torch.ones(5)], "are a list")]
)
def test_targets_that_are_no_tensor_need_a_loss(targets: object, told: str) -> None:
    with pytest.raises(InvalidLoss, match=rf"targets {told}, of which no loss is known\. Give a tensor, or"):
        default_loss(torch.randn(5, 3), (None, targets))


def test_but_not_where_the_model_gives_its_loss_itself() -> None:
    assert default_loss(torch.tensor(2.0), (None, {"labels": torch.ones(5)})).item() == 2.0


class ByName(nn.Module):
    """Hands on what it is given, and takes nothing by place."""

    def forward(self, **inputs: torch.Tensor) -> list[str]:
        return sorted(inputs)


class AnyWay(nn.Module):
    def forward(self, *args: object, **kwargs: object) -> tuple[int, int]:
        return len(args), len(kwargs)


def test_a_mapping_is_the_entries_of_a_forward_that_takes_any_by_name() -> None:
    inputs = {"input_ids": torch.ones(2), "attention_mask": torch.ones(2)}
    assert call_module(ByName(), (inputs, torch.ones(2))) == ["attention_mask", "input_ids"]
    assert call_module(AnyWay(), (inputs, torch.ones(2))) == (1, 0)


@pytest.mark.parametrize("function", ["from_an_example", "by_a_function"])
def test_a_batch_that_asks_for_gradients_can_be_stepped_again(own: str, function: str) -> None:
    batch = build_model(python_model(f"{own}:{function}")).make_batch(4)
    for _ in range(3):
        (batch["x"] * 2).sum().backward()
    assert torch.equal(batch["x"].grad, torch.full((4, 13), 6.0))


def test_so_it_does_in_a_trace_whether_it_is_drawn_or_made(own: str) -> None:
    drawn, made = (
        trace_workload(Workload(python_model(f"{own}:asking_{kind}"), 4), plainly=True)
        for kind in ("example", "function")
    )
    assert [operation.name for operation in drawn.operations] == [operation.name for operation in made.operations]


def test_parts_of_a_data_set_are_altered_by_no_step(own: str) -> None:
    """Labels that a loss counts from none would be less in each step, of a trace as well."""
    workload = Workload(python_model(f"{own}:counted_from_one"), 4)
    assert trace_workload(workload, plainly=True).operations
    make_batch = build_model(workload.model).make_batch
    for _ in range(2):
        _, labels = make_batch(4)
        assert labels.sub_(1).tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("function", ["its_own_target", "with_a_scale"])
def test_a_batch_shares_memory_with_nothing_but_itself(own: str, function: str) -> None:
    make_batch = build_model(python_model(f"{own}:{function}")).make_batch
    one, other = make_batch(4), make_batch(4)
    assert one["scale"] is not other["scale"]
    assert (one["labels"] is one["x"]) is (function == "its_own_target")
    assert not {each.data_ptr() for each in one.values()} & {each.data_ptr() for each in other.values()}


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("packed_example", r"packed sequences, of which no rows.*\(module, make_batch\)"),
        ("empty_example", "without rows"),
        ("mixed_example", "tensors of 64 rows and of 32: which of them are samples"),
        ("hiding_example", "^The example batch of .* has a Namespace, and where its tensors lie is not known"),
    ],
)
def test_an_example_of_which_no_rows_are_drawn_is_refused(own: str, function: str, told: str) -> None:
    with pytest.raises(InvalidModel, match=told):
        build_model(python_model(f"{own}:{function}"))
    with pytest.raises(InvalidModel, match=told):
        trace_workload(Workload(python_model(f"{own}:{function}"), 4), plainly=True)


def test_targets_in_the_place_of_a_loss_are_told_from_one(own: str) -> None:
    with pytest.raises(InvalidModel, match=r"a function of \(output, batch\).*a tensor of shape \(10, 1\).*together"):
        build_model(python_model(f"{own}:with_its_targets"))


@pytest.mark.parametrize(
    ("function", "returned"),
    [("printed", "returned None"), ("in_parts", "returned a dict"), ("one_by_one", r"tensor of shape \(\d+, 1\)")],
)
def test_a_loss_that_nothing_goes_backward_from_is_told_what_it_gave(own: str, function: str, returned: str) -> None:
    with pytest.raises(InvalidModel, match=rf"{returned}\. It has to return a tensor with one number"):
        trace_workload(Workload(python_model(f"{own}:{function}"), 4), plainly=True)


@pytest.mark.parametrize("function", ["squared", "in_a_column"])
def test_a_loss_of_one_number_is_one_whatever_its_shape(own: str, function: str) -> None:
    built = build_model(python_model(f"{own}:{function}"))
    batch = built.make_batch(4, None)
    built.loss(built.forward(built.module, batch), batch).backward()


def test_a_script_that_misses_an_argument_is_told_that_there_are_none(own: str) -> None:
    with pytest.raises(InvalidModel, match=r"it ended Python \(exit code 2\), as argparse does.*called without any\.$"):
        build_model(python_model(f"{own}:without_a_known_argument"))


@pytest.mark.parametrize("function", ["from_a_hub", "from_a_hub_by_file"])
def test_what_is_not_in_the_cache_is_not_blamed_on_the_network(own: str, function: str) -> None:
    with pytest.raises(InvalidModel, match=r"crosspoint works without network: load it once yourself"):
        build_model(python_model(f"{own}:{function}"))


@pytest.mark.parametrize(
    ("files", "target"),
    [
        ({"probes.py": "def make(): pass"}, "probes:make"),
        ({"probes/__init__.py": "", "probes/linear.py": "def make(): pass"}, "probes.linear:make"),
        ({"probes.py": "class Probe: pass", "asks_probes.py": "from probes import Probe"}, "asks_probes:make"),
        ({"probes.py": "", "uses_probes.py": "import probes\ndef make(): return probes.Probe()"}, "uses_probes:make"),
    ],
)
def test_a_module_that_is_called_as_our_package_is_told_to_be_called_otherwise(
    files: dict[str, str], target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InvalidModel, match=r"crosspoint's own package is called probes, .* another name"):
        build_model(python_model(target))


def test_where_nobody_has_such_a_module_nothing_is_said_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "misspells.py").write_text("from torch import Probe")
    for target in ("misspells:make", "probes:make"):
        with pytest.raises(InvalidModel) as refused:
            build_model(python_model(target))
        assert "own package" not in str(refused.value)
