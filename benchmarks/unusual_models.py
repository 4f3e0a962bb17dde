"""Small networks of layers that few have, as people write them: none is in benchmarks.workloads or in a calibration.

Each function is one for `python` models (docs/cli.md): it returns a module and a function that makes a batch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Model = tuple[nn.Module, Callable[[int], tuple[Tensor, Tensor]]]
CLASSES, WORDS = 10, 1000


class Function(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Added(nn.Sequential):
    """Layers around which their input is added."""

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


def _numbers(*shape: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    return lambda count: (torch.randn(count, *shape), torch.randint(CLASSES, (count,)))


def _words(length: int, words: int = WORDS) -> Callable[[int], tuple[Tensor, Tensor]]:
    return lambda count: (torch.randint(words, (count, length)), torch.randint(CLASSES, (count,)))


class UNet(nn.Module):
    """Down, up by a transposed convolution, and the first features beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = self._block(3, 32), nn.Conv2d(32, 64, 3, stride=2, padding=1)
        self.middle, self.up = self._block(64, 64), nn.ConvTranspose2d(64, 32, 2, stride=2)
        self.last, self.head = self._block(64, 32), nn.Linear(32, CLASSES)

    def _block(self, channels: int, out: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(channels, out, 3, padding=1), nn.GroupNorm(8, out), nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        up = self.up(self.middle(self.down(first)))
        return self.head(self.last(torch.cat([first, up], 1)).mean((2, 3)))


def unet() -> Model:
    return UNet(), _numbers(3, 48, 48)


class SwiGlu(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.gate, self.value = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)
        self.out = nn.Linear(3 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(x)
        return x + self.out(functional.silu(self.gate(normed)) * self.value(normed))


def swiglu() -> Model:
    return nn.Sequential(nn.Linear(64, 256), *[SwiGlu(256) for _ in range(4)], nn.Linear(256, CLASSES)), _numbers(64)


def _sparsemax(x: Tensor) -> Tensor:
    """Martins and Astudillo, 2016."""
    ordered = torch.sort(x, -1, descending=True).values
    above = ordered.cumsum(-1)
    places = torch.arange(1, x.shape[-1] + 1)
    support = (1 + places * ordered > above).sum(-1, keepdim=True)
    return torch.relu(x - (above.gather(-1, support - 1) - 1) / support)


def sparsemax() -> Model:
    layers = (nn.Linear(100, 512), Function(_sparsemax), nn.Linear(512, 512), Function(_sparsemax))
    return nn.Sequential(*layers, nn.Linear(512, CLASSES)), _numbers(100)


class Fourier(nn.Module):
    """Tokens mixed by a Fourier transform (Lee-Thorp et al., 2021)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.first(x + torch.fft.fft2(x.float()).real)
        return self.second(mixed + self.layers(mixed))


def fnet() -> Model:
    layers = (nn.Embedding(WORDS, 128), Fourier(128), Fourier(128), Function(lambda x: x.mean(1)))
    return nn.Sequential(*layers, nn.Linear(128, CLASSES)), _words(128)


def bags() -> Model:
    layers = (nn.EmbeddingBag(20_000, 64, mode="sum"), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, CLASSES))
    return nn.Sequential(*layers), _words(30, 20_000)


def zoom() -> Model:
    layers = (
        *(nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2, mode="bilinear")),
        *(nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(7), nn.Flatten()),
    )
    return nn.Sequential(*layers, nn.Linear(24 * 49, CLASSES)), _numbers(3, 40, 40)


def volume() -> Model:
    layers = (
        *(nn.Conv3d(1, 16, 3, padding=1), nn.BatchNorm3d(16), nn.ReLU(), nn.MaxPool3d(2)),
        *(nn.Conv3d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten()),
    )
    return nn.Sequential(*layers, nn.Linear(32, CLASSES)), _numbers(1, 24, 24, 24)


def activations() -> Model:
    ones = (nn.Mish(), nn.Softplus(), nn.PReLU(), nn.Hardswish(), nn.ELU(), nn.LeakyReLU(), nn.Tanhshrink(), nn.GLU())
    return nn.Sequential(nn.Linear(64, 512), *ones, nn.Linear(256, CLASSES)), _numbers(64)


class Fading(nn.Module):
    """A state that fades, place after place."""

    def __init__(self) -> None:
        super().__init__()
        self.entrance, self.head = nn.Linear(16, 96), nn.Linear(96, CLASSES)
        self.rate = nn.Parameter(torch.rand(96))

    def forward(self, x: Tensor) -> Tensor:
        entered = self.entrance(x)
        state = torch.zeros_like(entered[:, 0])
        for place in range(entered.shape[1]):
            state = torch.sigmoid(self.rate) * state + entered[:, place]
        return self.head(state)


def fading() -> Model:
    return Fading(), _numbers(40, 16)


class Einsum(nn.Module):
    """Attention by einsum, with biases for the distance."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.entrance, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.biases = nn.Parameter(torch.zeros(heads, 2 * length - 1))

    def forward(self, x: Tensor) -> Tensor:
        samples, length, width = x.shape
        query, key, value = self.entrance(x).view(samples, length, 3, self.heads, width // self.heads).unbind(2)
        places = torch.arange(length)
        apart = places[:, None] - places + length - 1
        scores = torch.einsum("blhd,bmhd->bhlm", query, key) * 0.1 + self.biases[:, apart]
        return x + self.out(torch.einsum("bhlm,bmhd->blhd", scores.softmax(-1), value).reshape(x.shape))


def einsum() -> Model:
    layers = (nn.Embedding(WORDS, 96), Einsum(96, 4, 128), Einsum(96, 4, 128), Function(lambda x: x.amax(1)))
    return nn.Sequential(*layers, nn.Linear(96, CLASSES)), _words(128)


def shuffle() -> Model:
    layers = (
        *(nn.Conv2d(3, 32, 7, stride=2, padding=3), nn.InstanceNorm2d(32), nn.LeakyReLU(0.2), nn.ReflectionPad2d(1)),
        *(nn.Conv2d(32, 48, 3), nn.PixelShuffle(2), nn.AvgPool2d(2), nn.Conv2d(12, 32, 5, dilation=2)),
        *(nn.Softplus(), nn.Flatten(), nn.AdaptiveMaxPool1d(64)),
    )
    return nn.Sequential(*layers, nn.Linear(64, CLASSES)), _numbers(3, 64, 64)


class TwoWays(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.GRU(24, 80, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(160, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x)[0][:, -1])


def two_ways() -> Model:
    return TwoWays(), _numbers(30, 24)


def _with_neighbours(x: Tensor) -> Tensor:
    """Beside each point the largest features of the eight nearest (Wang et al., 2019, edge convolutions)."""
    nearest = torch.cdist(x, x).topk(8, largest=False).indices
    samples, points, width = x.shape
    around = x.unsqueeze(1).expand(samples, points, points, width)
    found = torch.gather(around, 2, nearest.unsqueeze(-1).expand(samples, points, 8, width))
    return torch.cat([x, found.amax(2)], -1)


def points() -> Model:
    layers = (
        *(nn.Linear(3, 32), Function(_with_neighbours), nn.Linear(64, 64), nn.ReLU()),
        *(nn.Linear(64, 64), Function(lambda x: x.amax(1))),
    )
    return nn.Sequential(*layers, nn.Linear(64, CLASSES)), _numbers(128, 3)


def spectral() -> Model:
    norms = nn.utils.parametrizations
    first, second = norms.spectral_norm(nn.Linear(128, 512)), norms.weight_norm(nn.Linear(512, 512))
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Linear(512, CLASSES)), _numbers(128)


def autoencoder() -> Model:
    """With noise among its features, as variational ones have."""
    noisy = Function(lambda x: x + 0.1 * torch.randn_like(x) * torch.exp(0.5 * x))
    layers = (nn.Linear(784, 400), nn.Softplus(), nn.Linear(400, 32), noisy, nn.Linear(32, 400), nn.Tanh())
    return nn.Sequential(*layers, nn.Linear(400, CLASSES)), _numbers(784)


class Gated(nn.Module):
    """A dilated convolution over time whose one half opens the other (van den Oord et al., 2016)."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(width, 2 * width, 3, padding=dilation, dilation=dilation)
        self.out = nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.convolution(x).chunk(2, 1)
        return x + self.out(torch.tanh(value) * torch.sigmoid(gate))


def waves() -> Model:
    layers = (nn.Conv1d(1, 40, 1), *(Gated(40, 2**place) for place in range(4)), Function(lambda x: x.mean(2)))
    return nn.Sequential(*layers, nn.Linear(40, CLASSES)), _numbers(1, 800)


def mixer() -> Model:
    """Patches mixed by linear layers, in turns with features (Tolstikhin et al., 2021)."""

    def mixing(width: int, hidden: int) -> nn.Module:
        return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    turned = Function(lambda x: x.transpose(1, 2))
    blocks = [Added(turned, mixing(64, 96), turned) for _ in range(3)]
    layers = (nn.Conv2d(3, 96, 6, stride=6), nn.Flatten(2), turned, *blocks, Function(lambda x: x.mean(1)))
    return nn.Sequential(*layers, nn.Linear(96, CLASSES)), _numbers(3, 48, 48)
