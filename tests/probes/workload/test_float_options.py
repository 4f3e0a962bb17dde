"""Which options take floats alone is read from transformers' source."""

from probes.workload.float_options import float_options, parse_float_options

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
