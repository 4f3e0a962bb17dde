"""Whether somebody had torch compile a module: what it runs is not what following it shows."""

from __future__ import annotations

from torch import nn


def is_compiled(module: nn.Module) -> bool:
    """Or a module in it, by `torch.compile(module)` or `module.compile()`. A compiled function that a forward calls is
    not seen."""
    return any(
        "_orig_mod" in child._modules or child.__dict__.get("_compiled_call_impl") is not None
        for child in module.modules()
    )
