"""Where a step takes another way on a CUDA device than on a CPU, so that a CPU can trace what a device would run.

Most of what torch dispatches is the same on both. But on a device attention mostly is one kernel also with dropout, a
recurrent layer of any kind is one call to cuDNN, dropout draws and scales at once, and autocast keeps other operations
in fp32 (device_autocast). Inside `as_on_device` torch's functions for these are others, which dispatch operations of
the same shapes; they have results for fake tensors alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional

from probes.microtrain.traces.device_autocast import HALF, casts_of_device

NAMESPACE = "crosspoint"
# Numbers that a recurrent layer keeps for its backward at least, of each step, sample and direction for each hidden
# unit: an LSTM's four gates, its cell and what it gave. What cuDNN takes beside them is its own choice and hangs on the
# shape: layers of 1,024 samples took 22 to 31 of them together, one of 256 took 11 (H200, cuDNN 9.19).
KEPT = 6
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


class Ways:
    """taken: whether any of them was."""

    def __init__(self) -> None:
        self.taken = False

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        self.taken = True
        if torch.is_autocast_enabled("cpu"):
            query, key, value = (each.to(torch.bfloat16) for each in (query, key, value))
        if not _is_fused(query, key, value, attn_mask, is_causal):
            return self._by_products(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
        output, _ = torch.ops.crosspoint.scaled_dot_product_attention(query, key, value, attn_mask)
        return output

    def _by_products(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, causal: bool, shares: bool
    ) -> Tensor:
        """What `_scaled_dot_product_attention_math` in aten/src/ATen/native/transformers/attention.cpp runs, in fp32
        where these are narrower. A CPU's own way keeps numbers of what it drops. The scale is any: nobody sees it."""
        dtype, scale = query.dtype, 0.5
        with torch.autocast("cpu", enabled=False):
            if dtype in HALF:
                query, key, value = (each.float() for each in (query, key, value))
            if shares and query.shape[-3] != key.shape[-3]:
                key, value = (each.repeat_interleave(query.shape[-3] // each.shape[-3], -3) for each in (key, value))
            if causal:
                mask = query.new_ones((query.shape[-2], key.shape[-2]), dtype=torch.bool).tril()
            weights = (query * scale) @ (key.transpose(-2, -1) * scale)
            if mask is not None and mask.dtype is torch.bool:
                mask = torch.zeros_like(mask, dtype=weights.dtype).masked_fill(mask.logical_not(), -torch.inf)
            if mask is not None:
                weights.add_(mask)
            weights = torch.ops.aten._safe_softmax(weights, -1)
            weights = self.dropout(weights, dropout)
            return (weights @ value).to(dtype)

    def dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p <= 0:
            return input
        self.taken = True
        return torch.native_dropout(input, p, True)[0]

    def recurrent(self, data: Tensor, *arguments: Any) -> Any:
        """(input, states, weights, has biases, layers, dropout, training, both directions, batch first), as torch._VF
        has it; of packed sequences (input, lengths, states, weights, …)."""
        self.taken = True
        packed = isinstance(arguments[0], Tensor) and arguments[0].dtype is torch.long
        states, weights, *others = arguments[1:] if packed else arguments
        layers, both, batch_first = others[1], others[4], not packed and others[5]
        several = isinstance(states, tuple | list)
        first = states[0] if several else states
        if torch.is_autocast_enabled("cpu"):  # a device's are fp16 in either case, which autocast refuses on a CPU
            data, weights = data.to(torch.bfloat16), [weight.to(torch.bfloat16) for weight in weights]
        steps = len(arguments[0]) if packed else data.shape[1 if batch_first else 0]
        turns = [layers, 2 if both else 1, steps]
        begun = [each.to(data.dtype) for each in ((first, states[1]) if several else (first,))]
        output, state, cell, _ = torch.ops.crosspoint._cudnn_rnn(data, list(weights), begun, turns)
        return (output, state, cell) if several else (output, state)

    def cast(self) -> None:
        self.taken = True


def _is_fused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> bool:
    """Whether one of CUDA's kernels takes all of attention, on a card of compute capability 8 or later: flash in half
    precision without a mask, also of heads that share keys, up to a width of 256, where causal of as many queries as
    keys; the memory-efficient one of widths that fill 16 bytes (`can_use_flash_attention`,
    `can_use_mem_efficient_attention` and `minimum_gemm_alignment` in
    aten/src/ATen/native/transformers/cuda/sdp_utils.cpp). Else it is matrix multiplications and softmax, whose results
    are kept. One refusal is left out, as it is some cards' alone: those of 8.6, 8.9 and 12 train no heads of 193 to 224
    numbers with flash, nor wider ones with dropout. A torch whose memory-efficient kernel takes shared keys is not out
    yet (pytorch pull request 191085)."""
    if query.dim() != 4:
        return False
    half, widths = query.dtype in HALF, (query.shape[-1], value.shape[-1])
    square = not causal or query.shape[-2] == key.shape[-2]
    if half and mask is None and square and widths[0] == widths[1] <= 256:
        return True
    shared = query.shape[1] != key.shape[1]
    filled = all(width * query.element_size() % 16 == 0 for width in widths)
    return not shared and filled and (half or query.dtype is torch.float32)


@contextlib.contextmanager
def as_on_device() -> Iterator[Ways]:
    """To be entered in a fake mode, by a process that traces one model at a time: it is torch's own functions that are
    others inside."""
    _register()
    ways = Ways()
    with contextlib.ExitStack() as patches:

        def patch(owner: Any, name: str, function: Any) -> None:
            patches.enter_context(mock.patch.object(owner, name, function))

        patch(functional, "scaled_dot_product_attention", ways.attention)
        patch(functional, "dropout", ways.dropout)
        for kind in RECURRENT:
            patch(torch._VF, kind, ways.recurrent)
        asked = torch.is_autocast_enabled
        # Without a device it asks about CUDA's: whether an encoder layer may run as one kernel, above all.
        patch(torch, "is_autocast_enabled", lambda *device: asked(*device) if device else asked("cpu"))
        patches.enter_context(casts_of_device(ways.cast))
        yield ways


def _register() -> None:
    """Operations of a device's, with shapes and no numbers. Once a process."""
    if hasattr(torch.ops.crosspoint, "_cudnn_rnn"):
        return
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    _kept.append(library)
    for schema, fake in (
        ("scaled_dot_product_attention(Tensor q, Tensor k, Tensor v, Tensor? mask) -> (Tensor, Tensor)", _attention),
        (
            "scaled_dot_product_attention_backward(Tensor g, Tensor q, Tensor k, Tensor v, Tensor o, Tensor l)"
            " -> (Tensor, Tensor, Tensor)",
            _attention_backward,
        ),
        ("_cudnn_rnn(Tensor input, Tensor[] weights, Tensor[] states, int[] turns) -> (Tensor, Tensor, Tensor, Tensor)",
         _recurrent),
        ("_cudnn_rnn_backward(Tensor input, Tensor[] weights, Tensor[] states, Tensor kept, int[] turns)"
         " -> (Tensor, Tensor[], Tensor[])", _recurrent_backward),
    ):  # fmt: skip
        name = schema.partition("(")[0]
        library.define(schema)
        library.impl(name, fake, "Meta")
        torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=library)
    torch.library.register_autograd(
        f"{NAMESPACE}::scaled_dot_product_attention", _backward_of_attention, setup_context=_keep_attention, lib=library
    )
    torch.library.register_autograd(
        f"{NAMESPACE}::_cudnn_rnn", _backward_of_recurrent, setup_context=_keep_recurrent, lib=library
    )


_kept: list[torch.library.Library] = []  # registrations end with the object that made them


def _attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Output, and the logarithms of the sums."""
    output = query.new_empty((*query.shape[:-1], value.shape[-1]))
    return output, query.new_empty(query.shape[:-1], dtype=torch.float32)


def _attention_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, sums: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _keep_attention(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, mask = inputs
    ctx.set_materialize_grads(False)
    ctx.mask = mask
    ctx.save_for_backward(query, key, value, *output)


def _backward_of_attention(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    """A learned mask's gradient is made with the others, by the same kernel."""
    backward = torch.ops.crosspoint.scaled_dot_product_attention_backward
    of_mask = torch.empty_like(ctx.mask) if ctx.mask is not None and ctx.mask.requires_grad else None
    return (*backward(gradient, *ctx.saved_tensors), of_mask)


def _recurrent(
    data: Tensor, weights: Sequence[Tensor], states: Sequence[Tensor], turns: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Output, the last states, cells (of an LSTM, which may be wider), and what is kept for the backward. states: the
    first, and cells. turns: layers, directions, and steps."""
    layers, directions, _ = turns
    places, width, hidden = data.shape[:-1], states[0].shape[-1], states[-1].shape[-1]
    output = data.new_empty((*places, width * directions))
    kept = data.new_empty(KEPT * layers * directions * places.numel() * hidden)
    return output, torch.empty_like(states[0]), torch.empty_like(states[-1]), kept


def _recurrent_backward(
    data: Tensor, weights: Sequence[Tensor], states: Sequence[Tensor], kept: Tensor, turns: Sequence[int]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    return (
        torch.empty_like(data),
        [torch.empty_like(weight) for weight in weights],
        [torch.empty_like(state) for state in states],
    )


def _keep_recurrent(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    data, weights, states, turns = inputs
    ctx.set_materialize_grads(False)
    ctx.weights, ctx.states, ctx.turns = weights, states, turns
    ctx.save_for_backward(data, output[3])


def _backward_of_recurrent(ctx: Any, *_: Tensor) -> tuple[Any, ...]:
    data, kept = ctx.saved_tensors
    backward = torch.ops.crosspoint._cudnn_rnn_backward
    return (*backward(data, ctx.weights, ctx.states, kept, ctx.turns), None)
