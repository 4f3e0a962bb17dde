"""The same Hugging Face config wider or narrower: every size that its own class takes, times a factor.

Names of sizes are those that the config classes of transformers 5 use (their attribute_map is asked for others).
Vocabulary, labels, positions, images, layers and experts stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import reduce
from typing import Any, NamedTuple

from probes.microtrain.building.huggingface_models import make_config
from probes.workload.description import InvalidModel, ModelDescription
from probes.workload.huggingface import parse_huggingface
from probes.workload.wording import clean, place

# Sizes that flow through the network, or lie inside its blocks.
WIDTHS = {
    "hidden_size", "hidden_sizes", "d_model", "n_embd", "dim", "emb_dim", "embed_dim", "hidden_dim", "hidden_channels",
    "embedding_size", "word_embed_proj_dim", "embedding_hidden_size", "embedding_dynamic_dim",
    "intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size",
    "moe_shared_expert_intermediate_size", "intermediate_dim", "ffn_dim", "ffn_hidden_size", "encoder_ffn_dim",
    "decoder_ffn_dim", "d_ff", "d_inner", "n_inner", "inner_dim", "attention_hidden_size", "output_hidden_size",
    "pooler_output_size", "pooler_hidden_size", "conv_dim", "stem_channels", "neck_hidden_sizes",
    "coordinate_size", "shape_size", "decoder_hidden_size", "fusion_hidden_size", "encoder_hidden_size",
    "cross_attention_hidden_size", "lru_width", "stage_in_channels", "stage_mid_channels", "stage_out_channels",
}  # fmt: skip
# Multipliers of all of a network's channels.
FACTORS = {"width_coefficient", "depth_multiplier", "width_multiplier"}
HEADS = {
    "num_attention_heads", "num_key_value_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads",
    "decoder_attention_heads", "mamba_n_heads", "linear_num_key_heads", "linear_num_value_heads",
    "num_attn_heads", "num_encoder_attention_heads", "num_decoder_attention_heads", "attention_heads",
}  # fmt: skip
HEAD_SIZES = {"head_dim", "d_kv", "d_head", "kv_channels", "attention_head_dim", "mamba_d_head"}
# What transformers calls these in all of its classes -> the set that a class's own name for it belongs to.
CANONICAL = {
    "hidden_size": WIDTHS, "intermediate_size": WIDTHS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
    "head_dim": HEAD_SIZES,
}  # fmt: skip

Config = dict[str, Any]
FAR = 1.5  # times the width asked for, or less than one over it: another network's


class Change(NamedTuple):
    """where: the size's place in the config object."""

    where: tuple[str, ...]
    before: Any
    after: Any


def widen_huggingface(model: ModelDescription, factor: float) -> ModelDescription:
    """Raises InvalidModel for a config whose sizes are not known by name, or are not set by these names, and where the
    product is out of bounds or rounds to what was there."""
    content = dict(model.content)
    made = make_config(content)[0]
    _check_changes(clean(content["config"]["model_type"]), _changes(made, factor), factor)
    config = _widened(dict(content["config"]), made, factor)
    rest = {name: value for name, value in content.items() if name != "config"}
    widened = parse_huggingface({"huggingface": config, **rest})
    _check_arrival(_changes(made, factor), make_config(widened)[0])
    return ModelDescription("huggingface", f"{model.name} x {factor:g}", widened, model.version)


def _changes(part: Any, factor: float, where: tuple[str, ...] = ()) -> Iterator[Change]:
    """Every size of a config object and of the parts in it, as it is and times the factor."""
    values = _taken(part)
    for name, size in wider_sizes(values, _own_names(part), factor).items():
        yield Change((*where, name), _as_list(values[name]), size)
    for name, nested in _nested(part):
        yield from _changes(nested, factor, (*where, name))


def _check_changes(model_type: str, changes: Iterable[Change], factor: float) -> None:
    sizes = list(changes)
    if not sizes:
        raise InvalidModel(
            f"No size of a {model_type} config is known to be its width. Write the sizes into the config."
        )
    if all(size.before == size.after for size in sizes):
        raise InvalidModel(
            f"Width {factor:g} leaves every size of this {model_type} config as it is: they are rounded to what its "
            "heads and groups divide. Take a width further from 1."
        )
    ratios = (after / before for size in sizes for before, after in _both(size))
    nearest = min(ratios, key=lambda ratio: abs(math.log(ratio / factor)))
    if abs(math.log(nearest / factor)) > math.log(FAR):
        raise InvalidModel(
            f"Width {factor:g} cannot be had of this {model_type} config: its sizes are rounded to what its heads and "
            f"groups divide, and the nearest becomes {nearest:.2g} times as large."
        )


def _both(size: Change) -> Iterator[tuple[float, float]]:
    """Each number of it, before and after."""
    before, after = (value if isinstance(value, list) else [value] for value in (size.before, size.after))
    return zip(before, after, strict=True)


def _check_arrival(changes: Iterable[Change], made: Any) -> None:
    """made: of the sizes after the changes. Raises InvalidModel for one that is as before: some classes take a size by
    a name of old (Bloom's n_embed), and that one wins."""
    for size in changes:
        # Not by attributes: of sizes that layers may have of their own, some classes give none.
        arrived = reduce(lambda part, name: vars(part).get(name), size.where, made)
        if size.before != size.after and _as_list(arrived) == size.before:
            what = place(("huggingface", *size.where))
            raise InvalidModel(f"{what} is set by another name in this config, which no width reaches. Write {what}.")


def _widened(written: Config, part: Any, factor: float) -> Config:
    """What is written of this part of a config, with its sizes and those of the parts in it."""
    own_names = _own_names(part)
    found = wider_sizes(_taken(part), own_names, factor)
    # A size may be written by the name that all classes share, which the class would take after its own.
    written = {name: value for name, value in written.items() if own_names.get(name) not in found} | found
    for own_name, nested in _nested(part):
        name = next((name for name in written if own_names.get(name, name) == own_name), own_name)
        inner = written.get(name)
        known = dict(inner) if isinstance(inner, dict) else {"model_type": nested.model_type}
        widened = _widened(known, nested, factor)
        if widened != known:
            written[name] = widened
    return written


def _taken(part: Any) -> Config:
    """What its class takes of a config object's values: others follow from these (Swin's hidden_size), and nothing is
    built by them."""
    names = {field.name for field in fields(part)} if is_dataclass(part) else vars(part).keys()
    return {name: value for name, value in vars(part).items() if name in names}


def _own_names(part: Any) -> dict[str, str]:
    """What its class calls what others call otherwise."""
    names: dict[str, str] = getattr(part, "attribute_map", {})
    return names


def _nested(part: Any) -> Iterator[tuple[str, Any]]:
    for name, value in vars(part).items():
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            yield name, value


def wider_sizes(values: Config, own_names: dict[str, str], factor: float) -> Config:
    """The sizes among a config's values, times the factor. Heads keep their size and become more or fewer; where that
    leaves no whole number they keep their number, and their sizes change."""
    widths, heads, head_sizes = (_named(values, own_names, names) for names in (WIDTHS, HEADS, HEAD_SIZES))
    found: Config = {name: value * factor for name, value in values.items() if name in FACTORS and value}
    if not widths:
        return found
    dealt = [[count] for count in _groups(values)]
    if heads and all(_is_whole(count * factor) for counts in heads.values() for count in _listed(counts)):
        found |= {name: _each(counts, factor, []) for name, counts in heads.items()}
        dealt += [_listed(found[name]) for name in heads]
    else:
        # Even sizes of heads: rotary positions turn pairs, which networks in stages, with heads of their own, have not.
        pairs = [1 if isinstance(counts, list | tuple) else 2 for counts in heads.values()]
        dealt += [[each * n for n in _listed(counts)] for each, counts in zip(pairs, heads.values(), strict=True)]
        dealt += [] if 1 in pairs else [[2]]
        found |= {name: _each(size, factor, [[2]]) for name, size in head_sizes.items()}
    return found | {name: _each(size, factor, dealt) for name, size in widths.items()}


def _named(values: Config, own_names: dict[str, str], names: set[str]) -> Config:
    """Whole numbers, or lists of them, under one of the names, or under what this class calls one of them."""
    own = {own_names[canonical] for canonical, known in CANONICAL.items() if known is names and canonical in own_names}
    chosen = {name: values[name] for name in values if name in names | own}
    return {name: value for name, value in chosen.items() if _listed(value)}


def _groups(values: Config) -> list[int]:
    """What channels come in multiples of: into how many groups they are dealt, how many a group has, or what a class
    rounds its own to (EfficientNet's last convolution)."""
    return [
        value
        for name, value in values.items()
        if name.endswith(("groups", "groups_width", "depth_divisor")) and _listed(value) == [value]
    ]


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _listed(value: Any) -> list[int]:
    """A number above 0 or a list of such as a list; empty for anything else."""
    items = list(value) if isinstance(value, list | tuple) else [value]
    whole = all(isinstance(item, int) and not isinstance(item, bool) and item > 0 for item in items)
    return items if whole else []


def _each(value: Any, factor: float, dealt: Sequence[Sequence[int]]) -> Any:
    """Times the factor, rounded to what it is dealt out to: a list by stages to the counts of its own stage, where
    there are as many."""
    sizes = _listed(value)
    units = [
        math.lcm(*(count for counts in dealt for count in (counts[i : i + 1] if len(counts) == len(sizes) else counts)))
        for i in range(len(sizes))
    ]
    rounded = [max(unit, round(size * factor / unit) * unit) for size, unit in zip(sizes, units, strict=True)]
    return rounded if isinstance(value, list | tuple) else rounded[0]


def _is_whole(number: float) -> bool:
    return number >= 1 and math.isclose(number, round(number))
