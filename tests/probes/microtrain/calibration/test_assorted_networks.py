"""The networks of rare operations run under every precision, and stay the same step after step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from probes.microtrain.building.python_models import build_python
from probes.microtrain.calibration import assorted_networks, looped_network
from probes.microtrain.traces.recording import Recorder

NAMES = ("elementwise", "rows", "images", "volumes", "signals")


def make_step(name: str, casts: bool) -> tuple[Callable[[], float], torch.nn.Module]:
    torch.manual_seed(1)
    target = looped_network if name == "looped" else assorted_networks
    built = build_python(f"{target.__name__}:{name}")
    optimizer = torch.optim.AdamW(built.module.parameters())
    batch = built.make_batch(2, None)

    def step() -> float:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=casts):
            loss = built.loss(built.forward(built.module, batch), batch)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, built.module


@pytest.mark.parametrize("casts", [False, True])
@pytest.mark.parametrize("name", [*NAMES, "looped"])
def test_steps_stay_finite_and_train_everything(name: str, casts: bool) -> None:
    step, module = make_step(name, casts)
    assert all(torch.isfinite(torch.tensor(step())) for _ in range(5))
    for path, parameter in module.named_parameters():
        assert parameter.grad is not None, path
        assert torch.isfinite(parameter).all(), path


@pytest.mark.parametrize("name", NAMES)
def test_every_step_runs_the_same_operations(name: str) -> None:
    """As clocked steps are counted only where they run what was recorded."""
    step, _ = make_step(name, casts=True)
    step()  # makes what the optimizer keeps
    ran = []
    for _ in range(3):
        with Recorder() as recorder:
            step()
        ran.append([(record.name, record.dtype) for record in recorder.records])
    assert ran[0] == ran[1] == ran[2]


MAKERS = {torch.arange, torch.empty, torch.eye, torch.full, torch.linspace, torch.ones, torch.rand, torch.randint,
          torch.randn, torch.tensor, torch.zeros}  # fmt: skip


class OnTheDevice(TorchFunctionMode):
    """Whoever makes a tensor has to say where: on a GPU a step fails that reads one on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func not in MAKERS or "device" in (kwargs or {}), func
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", NAMES)
def test_a_device_can_run_every_branch(name: str) -> None:
    built = build_python(f"{assorted_networks.__name__}:{name}")
    batch = built.make_batch(2, None)
    with OnTheDevice():
        built.forward(built.module, batch)


def test_a_gpus_autocast_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's refuses the cross entropy of probabilities whatever their dtype."""
    plain = functional.binary_cross_entropy

    def refusing(*arguments: Any, **named: Any) -> Any:
        assert not torch.is_autocast_enabled("cpu")
        return plain(*arguments, **named)

    monkeypatch.setattr(functional, "binary_cross_entropy", refusing)
    built = build_python(f"{assorted_networks.__name__}:elementwise")
    with torch.autocast("cpu", torch.bfloat16):
        built.forward(built.module, built.make_batch(2, None))


def test_there_is_a_price_for_what_people_use() -> None:
    """Forward and backward, in both precisions where torch computes both."""
    names: dict[bool, set[str]] = {}
    for casts in (False, True):
        found = names[casts] = set()
        for name in NAMES:
            step, _ = make_step(name, casts)
            with Recorder() as recorder:
                step()
            found |= {record.name.removeprefix("aten.") for record in recorder.records}
    used = {
        *("mish", "mish_backward", "softplus", "elu", "exp", "rsqrt", "sort", "topk", "cumsum", "scatter_add", "flip"),
        *("_fft_r2c", "_fft_c2c", "_euclidean_dist", "native_group_norm", "max_pool3d_with_indices", "pixel_shuffle"),
        *("upsample_bilinear2d", "upsample_bilinear2d_backward", "upsample_nearest2d", "reflection_pad2d", "im2col"),
        *(
            "grid_sampler_2d",
            "avg_pool3d",
            "_embedding_bag",
            "_adaptive_avg_pool2d",
            "binary_cross_entropy",
            "randn_like",
        ),
    }
    for found in names.values():
        assert used - found == set()
        assert len(found) > 200


def test_what_bodies_of_video_and_sequence_networks_are_made_of_is_clocked() -> None:
    """Convolutions of volumes between many channels; short ones of each channel of a signal by itself."""
    for name, variant in (("volumes", "3d-spatial"), ("signals", "1d-depthwise")):
        step, _ = make_step(name, casts=False)
        with Recorder() as recorder:
            step()
        names = {record.name for record in recorder.records if record.variant == variant}
        assert names == {"aten.convolution", "aten.convolution_backward"}
