"""What transformers knows is read from its source, in the layouts of 4.57 and 5.x."""

import pytest

from probes.workload.architectures import parse_architectures, read_architectures
from probes.workload.description import InvalidModel

LAYOUT_4 = """
CONFIG_MAPPING_NAMES = OrderedDict[str, str](
    [
        # a comment
        ("bert", "BertConfig"),
        ("vit", "ViTConfig"),
    ]
)
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = OrderedDict([("bert", "BertLMHeadModel")])
MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES = OrderedDict(
    [("vit", ("ViTForImageClassification", "ViTForMaskedImageModeling"))]
)
"""
LAYOUT_5 = """
CONFIG_MAPPING_NAMES = OrderedDict([("bert", "BertConfig")])
CONFIG_MAPPING_NAMES.update({"mlcd": "MLCDVisionConfig"})
CONFIG_MAPPING_NAMES = OrderedDict(**{"gpt-sw3": "GPT2Config"}, **CONFIG_MAPPING_NAMES)
MODEL_FOR_MASKED_LM_MAPPING_NAMES = OrderedDict([("bert", "BertForMaskedLM")])
"""


def test_the_layout_of_version_4_is_read() -> None:
    found = parse_architectures([LAYOUT_4])
    assert found.model_types == {"bert", "vit"}
    assert found.tasks("vit") == ("image-classification",)
    assert found.trainable_types() == ("bert", "vit")


def test_the_layout_of_version_5_is_read() -> None:
    found = parse_architectures([LAYOUT_5])
    assert found.model_types == {"bert", "mlcd", "gpt-sw3"}
    assert found.tasks("bert") == ("masked-lm",)


def test_tables_that_moved_are_an_error_not_an_empty_answer() -> None:
    with pytest.raises(InvalidModel, match="elsewhere"):
        parse_architectures(["X = 1"])


def test_the_installed_transformers_knows_the_usual_models() -> None:
    found = read_architectures()
    for model_type in ("bert", "llama", "gpt2", "t5", "vit", "resnet", "whisper", "wav2vec2", "qwen2", "mistral"):
        assert found.tasks(model_type)
