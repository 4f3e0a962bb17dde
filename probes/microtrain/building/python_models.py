"""The user's own Python: `module:function`, called without arguments, returns one of

- `(module, make_batch)`: a torch.nn.Module, and a function of the batch size that returns a random batch;
- `(module, example_batch)`: rows of the example are drawn at random to make batches of any size;
- `(module, make_batch or example_batch, loss)`: with `loss(output, batch)` returning a scalar;
- a torch.nn.Module alone, when it begins with nn.Linear: its inputs are then random.

A batch is `(inputs, targets)` — the module is called with the inputs, of a mapping with its entries where its forward
takes them by name; targets of whole numbers mean cross-entropy, others mean squared error — or a mapping, and then the
module is called with its entries and returns the loss as `output.loss`, `output["loss"]` or a scalar; or a dataclass of
tensors, which is the module's one argument. The Python module is found from the current folder first. The code is the
user's, run with the user's rights; this door is open on the command line only.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parameter import is_lazy
from torch.nn.utils.rnn import PackedSequence

from probes.microtrain.building.built import Batch, BuiltModel, InvalidLoss, MakeBatch
from probes.microtrain.building.compiled_modules import is_compiled
from probes.microtrain.building.own_calls import called
from probes.microtrain.building.random_samples import LABELS
from probes.microtrain.building.samples_asked import InvalidBatch, asked_for_samples, refuse_hidden
from probes.microtrain.building.script_settings import as_placed, settings_kept
from probes.microtrain.failures import explain_exit, is_out_of_memory
from probes.microtrain.feeding import MAPPINGS, as_leaf, map_parts, map_tensors, own_copy, parts_of
from probes.workload.description import InvalidModel

_EXPECTED = (
    "It must return (module, make_batch), where make_batch(batch_size) gives (inputs, targets), or (module, "
    "example_batch) with tensors; see docs/cli.md."
)
_OURS = __name__.partition(".")[0]
# As transformers, huggingface_hub and datasets say that something is not in their caches.
_ASKS_A_HUB = re.compile(r"huggingface\.co|\bhf\.co|offline ?mode|outgoing traffic", re.IGNORECASE)


def build_python(target: str) -> BuiltModel:
    """Import and call. Raises InvalidModel when that does not give a module and batches, and torch's own errors when
    memory runs out."""
    with settings_kept(_module_name(target)), called():
        returned = _call(target)
    module, batches, loss = _parts(target, returned)
    _refuse_lazy(target, module)
    forward, loss = (as_placed(_module_name(target), call) for call in (call_module, loss))
    fed = _make_batch(target, batches)
    return BuiltModel(module, fed, forward, loss, _inputs_of_batches(module), compiled=is_compiled(module))


def _module_name(target: str) -> str:
    return target.partition(":")[0]


def _refuse_lazy(target: str, module: nn.Module) -> None:
    if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        raise InvalidModel(
            f"The module that {target} returns has lazy layers whose sizes nobody knows yet. Call the module once on a "
            "batch before you return it."
        )


def call_module(module: nn.Module, batch: Batch) -> Any:
    packed = isinstance(batch, PackedSequence)
    if isinstance(batch, tuple | list) and not packed:
        _check_parts(_class_of(module), batch)
    inputs = batch[0] if isinstance(batch, tuple | list) and not packed else batch
    if isinstance(inputs, torch.Tensor | PackedSequence):
        return module(inputs)
    if isinstance(inputs, tuple | list):
        return module(*inputs)
    if isinstance(inputs, MAPPINGS) and (inputs is batch or _takes_entries(_class_of(module), tuple(inputs))):
        return module(**inputs)
    return module(inputs)


def _inputs_of_batches(module: nn.Module) -> Callable[[Batch], Batch]:
    """What of a batch call_module takes, and of a mapping, without labels that the module does not need: by these it
    would compute a loss, which no inference asks for. Raises InvalidBatch. It does not hold the module, of which
    another may be made (fake_python)."""
    kind, decodes = _class_of(module), getattr(getattr(module, "config", None), "is_encoder_decoder", False)

    def inputs_of(batch: Batch) -> Batch:
        if isinstance(batch, tuple | list) and not isinstance(batch, PackedSequence):
            _check_parts(kind, batch)
            return (batch[0],)
        if not isinstance(batch, MAPPINGS) or decodes:  # a decoder is fed what was said
            return batch
        spared = {name for name in LABELS if name in batch and _is_spared(kind, name)}
        return {name: value for name, value in batch.items() if name not in spared} if spared else batch

    return inputs_of


def _is_spared(kind: Any, name: str) -> bool:
    """Whether the forward of a module of this class has this argument and may go without."""
    try:
        argument = inspect.signature(kind.forward).parameters.get(name)
    except (AttributeError, TypeError, ValueError):
        return False
    return argument is not None and argument.default is None


def _check_parts(kind: Any, batch: Batch) -> None:
    """kind: of module. Raises InvalidBatch where the second part may be the module's or the loss's: a mask that is left
    out makes another model."""
    if len(batch) > 2 and isinstance(batch[0], torch.Tensor) and _takes_several(kind):
        raise InvalidBatch(
            f"The batch has {len(batch)} parts, and the module's forward takes more than one: which of them are its "
            "inputs is not known. Give them together, as ((inputs, mask), targets) or (inputs, (targets, weights))."
        )


@lru_cache(maxsize=64)
def _takes_several(kind: Any) -> bool:
    """Whether the forward of a module of this class has room for a second tensor: an argument by place that has no
    default, or None."""
    try:
        arguments = list(inspect.signature(kind.forward).parameters.values())[2:]  # without itself and the first
    except (AttributeError, TypeError, ValueError):
        return False
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(each.kind in by_place and each.default in (inspect.Parameter.empty, None) for each in arguments)


def _class_of(module: nn.Module) -> Any:
    """A compiled module's own takes anything."""
    return type(getattr(module, "_orig_mod", module))


@lru_cache(maxsize=64)
def _takes_entries(kind: Any, names: tuple[str, ...]) -> bool:
    """Whether the forward of a module of this class has arguments of these names, or takes any by name and none by
    place; else a mapping is one argument, as it is where a wrapper's takes anything. Asked once, not in every step."""
    try:
        signature = inspect.signature(kind.forward)
        signature.bind(None, **dict.fromkeys(names))
    except (AttributeError, TypeError, ValueError):  # a scripted module's has none
        return False
    return not names or any(name in signature.parameters for name in names) or not _takes_one(signature)


def _takes_one(signature: inspect.Signature) -> bool:
    try:
        signature.bind(None, None)
    except TypeError:
        return False
    return True


def default_loss(output: Any, batch: Batch) -> torch.Tensor:
    """Raises InvalidLoss where neither the batch's targets nor the output say what the loss is, InvalidBatch where the
    targets are not as many as the output's numbers."""
    targets = batch[1] if isinstance(batch, tuple | list) and len(batch) == 2 else None
    if isinstance(targets, torch.Tensor) and isinstance(output, torch.Tensor):
        if targets.dtype.is_floating_point:
            return functional.mse_loss(output, _targets_like(output, targets))
        return functional.cross_entropy(_classes_second(output, targets), targets)
    found = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", output)
    if isinstance(found, torch.Tensor) and found.dim() == 0:
        return found
    if targets is not None and isinstance(output, torch.Tensor):
        raise InvalidLoss(
            f"The batch's targets are {_kind_of(targets)}, of which no loss is known. Give a tensor, or return "
            "(module, make_batch, loss), where loss(output, batch) gives a scalar."
        )
    raise InvalidLoss(
        "The model's output has no loss. Return (module, make_batch, loss), where loss(output, batch) gives a scalar."
    )


def _classes_second(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """As cross-entropy takes them, of an output that has them last: a language model's, [batch, steps, classes].
    Raises InvalidLoss where there is one class alone."""
    given, as_told = tuple(output.shape), (*output.shape[:1], *output.shape[2:]) == targets.shape
    if not as_told and output.dim() > 2 and output.shape[:-1] == targets.shape:
        output = output.movedim(-1, 1)
    if output.dim() > 1 and output.shape[1] == 1:
        raise InvalidLoss(
            f"The model's output has the shape {given}, one class, and the batch's targets are class "
            "numbers. Give targets with a point, or return (module, make_batch, loss), as by "
            "binary_cross_entropy_with_logits."
        )
    return output


def _targets_like(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A row of targets against a column of outputs would be every sample against every other one."""
    if targets.shape == output.shape:
        return targets
    if targets.numel() == output.numel():
        return targets.reshape(output.shape)
    if targets.dim() <= output.dim() and _is_spread(targets.shape, output.shape):
        return targets
    raise InvalidBatch(
        f"The model's output has the shape {tuple(output.shape)} and the batch's targets {tuple(targets.shape)}, of "
        "which no mean squared error is computed. Give targets like the output, or return (module, make_batch, loss)."
    )


def _is_spread(small: torch.Size, large: torch.Size) -> bool:
    """Whether what is smaller stands for each of many without making them more."""
    return all(one in (1, other) for one, other in zip(reversed(small), reversed(large), strict=False))


def import_target(target: str) -> Any:
    """The Python module of `module:function`, which comes from the cache the next time: what it makes when imported is
    to be real, so this is called before building on the meta device. Raises InvalidModel, and torch's own errors when
    memory runs out."""
    name, folder = _module_name(target), str(Path.cwd())
    if name not in sys.modules and folder not in sys.path:  # our own networks are there, and need no folder
        sys.path.insert(0, folder)
    try:
        with settings_kept(name):
            return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        raise InvalidModel(_not_called(target, error)) from error


def _not_called(target: str, error: BaseException) -> str:
    hub = any(_ASKS_A_HUB.search(str(each)) for each in (error, error.__cause__, error.__context__))
    remedy = " crosspoint works without network: load it once yourself, so that it is in the cache." if hub else ""
    if _got_ours(error):
        remedy = f" crosspoint's own package is called {_OURS}, so that yours is not found: give it another name."
    return f"{target} could not be called: {_said(error)}.{remedy}"


def _got_ours(error: BaseException) -> bool:
    """Whether something was looked for in our package that may be in a module of the user's with its name."""
    folder = Path.cwd()
    package, other = folder / _OURS, folder / f"{_OURS}.py"
    has_one = other.is_file() or (package.is_dir() and not package.samefile(Path(__file__).parents[2]))
    return has_one and isinstance(error, ImportError | AttributeError) and f"'{_OURS}" in str(error)


def _said(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return explain_exit(error)
    said = str(error).splitlines()[0][:200].rstrip(".") if str(error) else "no message"
    return f"{type(error).__name__}: {said}"


def _call(target: str) -> Any:
    found = import_target(target)
    _, _, path = target.partition(":")
    try:
        for name in path.split("."):
            found = getattr(found, name)
        return found() if callable(found) and not isinstance(found, nn.Module) else found
    except InvalidModel:  # of a bound that building stopped at
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        raise InvalidModel(_not_called(target, error)) from error


def _parts(target: str, returned: Any) -> tuple[nn.Module, Any, Callable[[Any, Batch], torch.Tensor]]:
    """Module, batches (None: none were given), loss."""
    parts = returned if isinstance(returned, tuple) else (returned,)
    if not 1 <= len(parts) <= 3 or not isinstance(parts[0], nn.Module):
        raise InvalidModel(f"{target} returned no torch.nn.Module. {_EXPECTED}")
    batches = parts[1] if len(parts) > 1 else _inputs_of(target, parts[0])
    return parts[0], batches, _own_loss(target, parts[2]) if len(parts) == 3 else default_loss


def _own_loss(target: str, loss: Any) -> Callable[[Any, Batch], torch.Tensor]:
    """Raises InvalidModel where it is none; each call raises InvalidLoss that gives nothing to go backward from."""
    if not callable(loss):
        raise InvalidModel(
            f"The third value that {target} returns has to be the loss, a function of (output, batch), and it is "
            f"{_kind_of(loss)}. Give inputs and targets together, as (module, (inputs, targets))."
        )

    def own_loss(output: Any, batch: Batch) -> torch.Tensor:
        found = loss(output, batch)
        if isinstance(found, torch.Tensor) and found.numel() == 1:
            return found
        raise InvalidLoss(
            f"loss(output, batch) of {target} returned {_kind_of(found)}. It has to return a tensor with one number."
        )

    return own_loss


def _kind_of(value: Any) -> str:
    """In words that follow `is` and `returned`."""
    if value is None:
        return "None"
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"


def _inputs_of(target: str, module: nn.Module) -> MakeBatch:
    """Random inputs for a module that begins with a linear layer, targets for one that ends with one: classes, or
    numbers where it gives one, as of layers."""
    leaves = [child for child in module.modules() if next(child.children(), None) is None]
    linear = [child for child in leaves if isinstance(child, nn.Linear)]
    if not linear or leaves[0] is not linear[0]:
        raise InvalidModel(f"{target} does not say what its inputs are. {_EXPECTED}")
    inputs, outputs = linear[0].in_features, linear[-1].out_features

    def make_batch(batch_size: int, generator: torch.Generator | None = None) -> Batch:
        x = torch.randn(batch_size, inputs, generator=generator)
        if outputs == 1:
            return x, torch.randn(batch_size, 1, generator=generator)
        return x, torch.randint(outputs, (batch_size,), generator=generator)

    return make_batch


def _make_batch(target: str, batches: Any) -> MakeBatch:
    make = asked_for_samples(target, batches) if callable(batches) else None

    def make_batch(batch_size: int, generator: torch.Generator | None = None) -> Batch:
        return _draw(batches, batch_size, generator) if make is None else _owned(make(batch_size))

    if make is None:
        _check_rows(target, list(_values_in(batches)))
        refuse_hidden(f"The example batch of {target} has", batches)
    return make_batch


def _owned(batch: Batch) -> Batch:
    """A copy: a function may give parts of its data set, which a step that alters its batch would alter for all. Labels
    that are the inputs themselves stay so."""
    copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # what was copied lives on, or another has its id

    def own(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in copies:
            copies[id(tensor)] = tensor, own_copy(tensor)
        return copies[id(tensor)][1]

    return map_tensors(batch, own)


def _check_rows(target: str, values: list[Any]) -> None:
    """Raises InvalidModel where no rows of an example batch can be drawn; a shape in its place has none."""
    if any(isinstance(value, PackedSequence) for value in values):
        raise InvalidModel(
            f"The example batch of {target} has packed sequences, of which no rows can be drawn. Return (module, "
            "make_batch), where make_batch(batch_size) packs as many as it is asked for."
        )
    rows = [value.shape[0] for value in values if isinstance(value, torch.Tensor) and value.dim()]
    if not rows:
        raise InvalidModel(f"{target} returned no batch of tensors beside its module. {_EXPECTED}")
    if 0 in rows:
        raise InvalidModel(f"The example batch of {target} has a tensor without rows. Give one sample or more.")
    counts = sorted({*rows} - {1})  # one row stands for every sample's
    if len(counts) > 1:
        raise InvalidModel(
            f"The example batch of {target} has tensors of {counts[-1]} rows and of {counts[0]}: which of them are "
            "samples is not known. Return (module, make_batch), or keep what is no sample in the module."
        )


def _values_in(example: Any) -> Iterator[Any]:
    parts = () if isinstance(example, torch.Tensor | PackedSequence) else parts_of(example)
    if not parts:
        yield example
    for value in parts:
        yield from _values_in(value)


def _draw(example: Any, batch_size: int, generator: torch.Generator | None) -> Any:
    """The same random rows of every tensor of an example batch."""
    rows: dict[int, torch.Tensor] = {}

    def draw(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if not value.dim():
                return own_copy(value)
            if value.is_meta:
                return value.new_empty((batch_size, *value.shape[1:]), requires_grad=value.requires_grad)
            count = value.shape[0]
            if count not in rows:
                rows[count] = torch.randint(count, (batch_size,), generator=generator)
            return as_leaf(value[rows[count]])
        return map_parts(value, draw)

    return draw(example)
