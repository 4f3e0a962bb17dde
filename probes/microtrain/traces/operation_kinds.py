"""Which class an operation belongs to (probes.trace.Kind), by its name in ATen."""

from __future__ import annotations

import re
from functools import cache

from torch._ops import OpOverload

from probes.trace import Kind

# The first pattern that a name matches decides; names are ATen's without overload and trailing underscore.
_PATTERNS: tuple[tuple[Kind, str], ...] = (
    ("attention", r"scaled_dot_product|_flash_attention|_efficient_attention"),
    ("matmul", r"multi_head_attention|transformer_encoder"),  # whole layers in one operation: mostly their products
    ("recurrent", r"mkldnn_rnn|_thnn_|_cudnn_rnn|^lstm|^gru|^rnn_"),
    ("convolution", r"convolution|^_?slow_conv|conv_depthwise|conv_transpose|^conv\d?"),
    ("matmul", r"^(addmm|mm|bmm|baddbmm|addbmm|addmv|mv|dot|vdot|addr|matmul|linear|_grouped_mm|_scaled_mm)$|_int_mm"),
    ("matmul", r"^linear(_\w+)?_dynamic|^linear_(relu|leaky_relu|tanh)$"),  # with packed weights
    # Made of products. What factorizes matrices is not of their kind: it takes many times as long as they do where
    # matrices are small, and would be taken for what they take (app.advisor.operation_prices.context_prices).
    ("matmul", r"^(_trilinear|linalg_matrix_exp|_euclidean_dist|_addmm_activation)$"),
    ("matmul", r"^_weight_int(8pack_mm|4pack_mm_for_cpu)$"),
    (
        "random",
        r"^(bernoulli|native_dropout|rand|randn|randint|randperm|normal|uniform|random|multinomial|exponential)",
    ),
    ("normalization", r"(batch|layer|group|instance|rms)_norm"),
    (
        "view",
        r"^(_unsafe_view|_reshape_alias|alias|detach|lift_fresh|empty|new_empty|resize|set|item|_local_scalar|is_)",
    ),
    ("gather", r"embedding|^index|gather|scatter|^take|nonzero|masked_select|searchsorted|bucketize|_unique|^one_hot"),
    ("copy", r"^(copy|clone|_to_copy|to(?!pk)|contiguous|cat|stack|fill|zero|ones?|full|constant_pad)"),
    ("copy", r"^new_(zeros|ones|full)"),
    (
        "copy",
        r"^(repeat|roll|flip|select_backward|slice_backward|slice_scatter|select_scatter|arange|linspace|eye|tri)",
    ),
    ("copy", r"_pad|unfold_backward|im2col|col2im|as_strided|pixel_(un)?shuffle|diagonal_backward"),
    ("reduction", r"^(sum|mean|amax|amin|max|min|arg|var|std|prod|any|all|cum|logsumexp|norm|linalg_vector_norm|sort)"),
    ("reduction", r"softmax|pool|nll_loss|mse_loss|l1_loss|cross_entropy|binary_cross|_ctc_loss|topk|median|aminmax"),
    ("reduction", r"upsample|grid_sampler|cdist|_loss"),
)
_COMPILED = tuple((kind, re.compile(pattern)) for kind, pattern in _PATTERNS)


@cache
def kind_of(operation: OpOverload) -> Kind:
    """Views by torch's own word; the rest by name; what nothing names works element by element."""
    if operation.is_view:
        return "view"
    name = operation._schema.name.split("::")[-1].rstrip("_")
    return next((kind for kind, pattern in _COMPILED if pattern.search(name)), "elementwise")
