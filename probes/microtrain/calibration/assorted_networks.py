"""Networks of many operations that few networks have, each run once: what nobody has timed is priced like others of its
kind, and a sort, a bicubic zoom or a Fourier transform takes ten times as long as an addition of as many bytes.

Nothing is learned from how long their steps take, as no network is made like this; their operations are clocked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

Branch = Callable[[Tensor], Tensor]
Assortment = tuple[nn.Module, Callable[[int], dict[str, Tensor]]]  # of probes.microtrain.building.python_models

ROWS, WIDTH = 32, 128  # of one sample
CHANNELS, SIDE = 12, 32  # of one image: as many channels as no kernel takes at once
EVEN = 32  # channels that kernels take at once
DEPTH, VOLUME_CHANNELS, VOLUME_SIDE = 8, 4, 16
SAMPLES = 2560  # of one signal


class Assorted(nn.Module):
    """Every branch reads what the entrance makes of the inputs (under autocast in its dtype); the loss is the sum of
    their means, so that each has a gradient of its own."""

    def __init__(self, entrance: nn.Module, branches: Sequence[Branch]) -> None:
        super().__init__()
        self.entrance = entrance
        self.branches = branches
        self.layers = nn.ModuleList(branch for branch in branches if isinstance(branch, nn.Module))

    def forward(self, inputs: Tensor) -> Tensor:
        entered = self.entrance(inputs)
        loss = inputs.new_zeros(())
        for branch in self.branches:
            loss = loss + branch(entered).float().mean()
        return loss


class Bags(nn.Module):
    """Sums of rows of a table, of as many as there are inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(4_000, WIDTH, mode="sum")

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[0] * ROWS, device=x.device)
        return self.table(places.view(-1, ROWS) % self.table.num_embeddings)


def elementwise() -> Assortment:
    """Activations, functions of one and two numbers, random numbers and losses."""
    return _assorted(nn.Linear(WIDTH, WIDTH), (*_activations(), *_functions(), *_losses()), (ROWS, WIDTH))


def rows() -> Assortment:
    """What sorts, scans, reduces, looks up, moves and transforms rows, and what multiplies small matrices."""
    return _assorted(nn.Linear(WIDTH, WIDTH), (*_reductions(), *_moves(), *_transforms()), (ROWS, WIDTH))


def images() -> Assortment:
    """Pools, zooms, borders and norms of images, and convolutions of few channels."""
    branches = (*_pools(), *_zooms(), *_channels())
    return _assorted(nn.Conv2d(3, CHANNELS, 1), branches, (3, SIDE, SIDE))


def signals() -> Assortment:
    """Of signals: convolutions (a stem that reads raw samples, layers that halve them, one with more weights than
    places), pools, norms, a zoom and a border."""
    branches: tuple[Branch, ...] = (
        nn.Conv1d(EVEN, 2 * EVEN, 1),
        nn.Conv1d(EVEN, EVEN, 3, padding=1),
        nn.Conv1d(EVEN, EVEN, 3, padding=2, dilation=2),
        nn.Conv1d(EVEN, EVEN, 31, padding=15, groups=4),
        nn.Conv1d(EVEN, EVEN, 15, padding=7, groups=EVEN),
        nn.Conv1d(EVEN, EVEN, 4, padding=3, groups=EVEN),
        nn.ConvTranspose1d(EVEN, EVEN, 4, stride=2, padding=1),
        nn.Sequential(
            nn.Conv1d(EVEN, 4 * EVEN, 3, stride=2),
            nn.Conv1d(4 * EVEN, 4 * EVEN, 3, stride=2),
            nn.Conv1d(4 * EVEN, 6 * EVEN, 3, stride=2),
            nn.Conv1d(6 * EVEN, 6 * EVEN, 8, padding=4),
        ),
        nn.GroupNorm(4, EVEN),
        nn.BatchNorm1d(EVEN),
        lambda x: functional.max_pool1d(x, 2),
        lambda x: functional.max_pool1d(x, 4),
        lambda x: functional.avg_pool1d(x, 2),
        lambda x: functional.interpolate(x, scale_factor=2, mode="linear"),
        lambda x: functional.pad(x, (1, 1), mode="reflect"),
    )
    return _assorted(nn.Conv1d(1, EVEN, 10, stride=5), branches, (1, SAMPLES))


def volumes() -> Assortment:
    """The same of volumes."""
    volume: tuple[Branch, ...] = (
        lambda x: functional.max_pool3d(x, 2),
        lambda x: functional.avg_pool3d(x, 2),
        lambda x: functional.adaptive_avg_pool3d(x, 4),
        lambda x: functional.interpolate(x, scale_factor=2),
        lambda x: functional.interpolate(x, scale_factor=2, mode="trilinear"),
        nn.Conv3d(VOLUME_CHANNELS, 2 * VOLUME_CHANNELS, 3, padding=1),
        nn.Sequential(
            nn.Conv3d(VOLUME_CHANNELS, 16, 1), nn.Conv3d(16, 16, 3, padding=1), nn.ConvTranspose3d(16, 16, 2, stride=2)
        ),
        nn.BatchNorm3d(VOLUME_CHANNELS),
    )
    sides = (DEPTH, VOLUME_SIDE, VOLUME_SIDE)
    return _assorted(nn.Conv3d(2, VOLUME_CHANNELS, 1), volume, (2, *sides))


def _assorted(entrance: nn.Module, branches: Sequence[Branch], shape: Sequence[int]) -> Assortment:
    return Assorted(entrance, branches), lambda batch_size: {"inputs": torch.randn(batch_size, *shape)}


def _activations() -> tuple[Branch, ...]:
    return (
        functional.mish,
        functional.softplus,
        functional.elu,
        functional.leaky_relu,
        functional.hardswish,
        functional.hardsigmoid,
        functional.hardtanh,
        functional.logsigmoid,
        functional.softshrink,
        functional.hardshrink,
        functional.glu,
        lambda x: functional.gelu(x, approximate="tanh"),
        nn.PReLU(),
        nn.Dropout(0.1),
        nn.RReLU(),
    )


def _functions() -> tuple[Branch, ...]:
    """Of numbers that are above zero where they are to be."""
    return (
        torch.exp,
        torch.expm1,
        torch.sin,
        torch.cos,
        torch.tan,
        torch.atan,
        torch.erf,
        torch.abs,
        torch.sign,
        torch.round,
        torch.floor,
        torch.square,
        lambda x: (x.abs() + 1).log(),
        lambda x: (x.abs() + 1).lgamma(),
        lambda x: (x.abs() + 1).log1p(),
        lambda x: (x.abs() + 1).sqrt(),
        lambda x: (x.abs() + 1).rsqrt(),
        lambda x: (x.abs() + 1).reciprocal(),
        lambda x: (x.abs() + 1) ** 1.5,
        lambda x: (x.abs() + 1) ** x,
        lambda x: x**3,
        lambda x: x.clamp(-1, 1),
        lambda x: x / (x.abs() + 1),
        lambda x: torch.maximum(x, -x),
        lambda x: torch.where(x > 0, x, -x),
        lambda x: x.masked_fill(x > 1, 0.0),
        lambda x: torch.lerp(x, -x, 0.3),
        lambda x: torch.addcmul(x, x, x),
        lambda x: torch.atan2(x, x + 3),
        lambda x: torch.remainder(x, 0.7),
        lambda x: torch.logaddexp(x.float(), -x.float()),
        lambda x: torch.nan_to_num(x),
        lambda x: x + torch.randn_like(x),
        lambda x: x + torch.rand_like(x),
    )


def _losses() -> tuple[Branch, ...]:
    def of_probabilities(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):  # a GPU's refuses it
            return functional.binary_cross_entropy(torch.sigmoid(x.float()), torch.sigmoid(x.detach().float()))

    return (
        lambda x: functional.binary_cross_entropy_with_logits(x, torch.sigmoid(x.detach())),
        of_probabilities,
        lambda x: functional.kl_div(x.float().log_softmax(-1), x.detach().float().softmax(-1), reduction="batchmean"),
        lambda x: functional.mse_loss(x, -x.detach()),
        lambda x: functional.l1_loss(x, -x.detach()),
        lambda x: functional.smooth_l1_loss(x, -x.detach()),
        lambda x: functional.huber_loss(x, -x.detach()),
    )


def _reductions() -> tuple[Branch, ...]:
    return (
        lambda x: x.sort(-1).values,
        lambda x: x.topk(8, -1).values,
        lambda x: x.max(-1).values,
        lambda x: x.median(-1).values,
        lambda x: x.argmax(-1),
        lambda x: x.amax(1),
        lambda x: x.cumsum(-1),
        lambda x: x.cumsum(1),
        lambda x: (x / WIDTH + 1).cumprod(-1),
        lambda x: x.cummax(-1).values,
        lambda x: x.logsumexp(-1),
        lambda x: x.float().logcumsumexp(-1),
        lambda x: x.softmax(1),
        lambda x: x.std(-1),
        lambda x: x.var(1),
        lambda x: x.norm(dim=-1),
        lambda x: (x / WIDTH + 1).prod(-1),
        lambda x: functional.normalize(x, dim=-1),
        lambda x: functional.rms_norm(x, (WIDTH,)),
        nn.BatchNorm1d(ROWS),
    )


def _moves() -> tuple[Branch, ...]:
    def backwards(x: Tensor) -> Tensor:
        return torch.arange(x.shape[-1] - 1, -1, -1, device=x.device).expand(x.shape)

    def from_last(x: Tensor) -> Tensor:
        return torch.arange(ROWS - 1, -1, -1, device=x.device)

    return (
        lambda x: x.roll(1, 1),
        lambda x: x.flip(-1),
        lambda x: x.tril(),
        lambda x: x.mT.contiguous(),
        lambda x: x.repeat(1, 1, 2),
        lambda x: torch.stack([x, -x], 1),
        lambda x: functional.pad(x, (1, 1)),
        lambda x: x.repeat_interleave(2, 1),
        lambda x: x.unfold(-1, 8, 4).contiguous(),
        lambda x: x.gather(-1, backwards(x)),
        lambda x: torch.zeros_like(x).scatter_add(-1, backwards(x), x),
        lambda x: x.index_select(1, from_last(x)),
        lambda x: x[:, from_last(x)],
        lambda x: x.new_zeros(x.shape[0], ROWS // 2, WIDTH).index_add(1, from_last(x) // 2, x),
        lambda x: functional.one_hot((x > 0).long(), 2),
        Bags(),
        lambda x: torch.bucketize(x.float(), torch.linspace(-2, 2, 16, device=x.device)),
    )


def _transforms() -> tuple[Branch, ...]:
    def one(x: Tensor) -> Tensor:
        return torch.eye(ROWS, device=x.device)

    return (
        lambda x: torch.fft.rfft(x.float()).abs(),
        lambda x: torch.fft.fft2(x.float()).real,
        lambda x: torch.fft.irfft(torch.fft.rfft(x.float())),
        lambda x: torch.cdist(x.float(), x.float()),
        lambda x: (x[:, :, None] - x[:, None]).abs().sum(-1),
        lambda x: torch.einsum("bik,bjk->bij", x, x),
        lambda x: torch.linalg.solve_ex(x[:, :, :ROWS].float() + 9 * one(x), x.float()).result,
        lambda x: torch.linalg.cholesky_ex(x.float() @ x.float().mT + one(x)).L,
    )


def _pools() -> tuple[Branch, ...]:
    return (
        lambda x: functional.max_pool2d(x, 2),
        lambda x: functional.max_pool2d(x, 3, 2, 1),
        lambda x: functional.avg_pool2d(x, 2),
        lambda x: functional.adaptive_max_pool2d(x, 4),
        lambda x: functional.adaptive_avg_pool2d(x, 7),
        lambda x: functional.lp_pool2d(x, 2, 2),
    )


def _zooms() -> tuple[Branch, ...]:
    def places(x: Tensor) -> Tensor:
        return torch.rand(x.shape[0], SIDE, SIDE, 2, dtype=x.dtype, device=x.device) * 2 - 1

    return (
        lambda x: functional.interpolate(x, scale_factor=2),
        lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
        lambda x: functional.interpolate(x, scale_factor=0.5, mode="bicubic"),
        lambda x: functional.grid_sample(x.float(), places(x.float()), align_corners=False),
        lambda x: functional.pixel_shuffle(x, 2),
        lambda x: functional.pixel_unshuffle(x, 2),
        lambda x: functional.pad(x, (1, 1, 1, 1), mode="reflect"),
        lambda x: functional.pad(x, (1, 1, 1, 1), mode="replicate"),
        lambda x: functional.pad(x, (1, 1, 1, 1), mode="circular"),
        lambda x: functional.unfold(x, 2, stride=2),
    )


def _even() -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(EVEN, EVEN, 3, padding=2, dilation=2),
        nn.Conv2d(EVEN, EVEN, 3, padding=1, groups=4),
        nn.Conv2d(EVEN, EVEN, 3, stride=2, padding=1),
        nn.ConvTranspose2d(EVEN, EVEN, 2, stride=2),
        nn.MaxPool2d(2),
        nn.ConvTranspose2d(EVEN, EVEN, 4, stride=2, padding=1),
    )


def _narrowing() -> nn.Module:
    """Ever fewer places and ever more channels, as the last layers of a network of images have: weights are most of
    what they move."""
    return nn.Sequential(
        nn.Conv2d(CHANNELS, EVEN, 3, stride=2, padding=1),
        nn.Conv2d(EVEN, 4 * EVEN, 3, stride=2, padding=1),
        nn.Conv2d(4 * EVEN, 8 * EVEN, 3, stride=2, padding=1),
        nn.Conv2d(8 * EVEN, 8 * EVEN, 3, padding=1),
        nn.Conv2d(8 * EVEN, 16 * EVEN, 1),
    )


def _channels() -> tuple[Branch, ...]:
    wide = 2 * CHANNELS
    return (
        nn.GroupNorm(4, CHANNELS),
        nn.InstanceNorm2d(CHANNELS),
        nn.LocalResponseNorm(3),
        nn.Dropout2d(0.1),
        nn.PReLU(CHANNELS),
        nn.Sequential(nn.Conv2d(CHANNELS, wide, 3, padding=1), nn.Conv2d(wide, wide, 3, padding=1)),
        nn.Conv2d(CHANNELS, wide, 5, stride=2, padding=2),
        _narrowing(),
        nn.Sequential(nn.Conv2d(CHANNELS, EVEN, 1), *_even()),
    )
