"""Which options take floats alone is read from transformers' source."""

from dataclasses import replace
from typing import Any

from probes.workload.float_options import float_options, parse_float_options, with_float_options
from probes.workload.models import parse_model

CLASSES = '''
class OneConfig(PreTrainedConfig):
    """dropout: float"""

    hidden_size: int = 768
    layer_norm_eps: float = 1e-12
    layerdrop: float | None = 0.0
    drop_rate: list[float] | tuple[float, ...] = (0.0, 0.1)
    dropout: float | int = 0.1
    factors: list[int | float] = (4, 0.5)
    rope_parameters: dict[str, float] | None = None
    kind: Literal["float32"] = "float32"

    def __post_init__(self, default_theta: float = 1e4):
        pass
'''


def test_those_that_take_whole_numbers_as_well_are_left_out() -> None:
    assert parse_float_options(CLASSES) == {"layer_norm_eps", "layerdrop", "drop_rate"}
    assert parse_float_options("class OneConfig:\n    def __init__(self, eps=1e-12):\n        pass\n") == set()


def test_they_are_found_by_model_type() -> None:
    assert {"init_std", "encoder_layerdrop"} <= float_options("bart")
    assert "rms_norm_eps" in float_options("gemma3_text")  # in the folder of gemma3
    assert not {"d_model", "scale_embedding", "dropout"} & float_options("bart")
    assert float_options("../bert") == float_options("no such type") == frozenset()


def types_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: types_of(each) for name, each in value.items()}
    return [types_of(each) for each in value] if isinstance(value, list) else type(value)


def test_a_config_that_lost_its_points_has_them_where_its_class_takes_no_whole_numbers_and_the_same_key() -> None:
    """What was traced and measured of it lies in stores under that."""
    written = {"model_type": "bart", "d_model": 16, "init_std": 1, "dropout": 0, "scale_embedding": True}
    model = parse_model({"huggingface": {**written, "encoder_layerdrop": 0}})
    config = model.content["config"]
    assert types_of(config) == {
        "model_type": str, "d_model": int, "init_std": float, "dropout": int, "scale_embedding": bool,
        "encoder_layerdrop": float,
    }  # fmt: skip
    as_written = {**config, "init_std": 1, "encoder_layerdrop": 0}
    assert replace(model, content={**model.content, "config": as_written}).key == model.key


def test_parts_of_a_config_and_lists_have_them_as_well() -> None:
    parts = {"text_config": {"rms_norm_eps": 1, "hidden_size": 16}}
    assert types_of(with_float_options({"model_type": "gemma3", **parts})["text_config"]) == {
        "rms_norm_eps": float, "hidden_size": int,
    }  # fmt: skip
    assert types_of(with_float_options({"model_type": "mamba2", "time_step_limit": [0, 1.5]}))["time_step_limit"] == [
        float, float,
    ]  # fmt: skip


def test_a_number_that_no_float_holds_stays_as_its_key_tells_it_from_its_neighbours() -> None:
    config = with_float_options({"model_type": "bart", "init_std": 2**53 + 1, "encoder_layerdrop": 2**53})
    assert types_of(config) == {"model_type": str, "init_std": int, "encoder_layerdrop": float}
