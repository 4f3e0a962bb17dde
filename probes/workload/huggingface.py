"""A model written as a Hugging Face config: its model type and task checked against the installed transformers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from probes.bounds import MAX_AUDIO_SAMPLES, MAX_IMAGE_SIDE, MAX_SEQUENCE_LENGTH
from probes.workload.architectures import TASKS, TASKS_BY_NAME, Architectures, read_architectures
from probes.workload.config import check_config
from probes.workload.config_classes import is_rotary
from probes.workload.description import InvalidModel
from probes.workload.float_options import with_float_options
from probes.workload.model_classes import are_positions_endless, config_class_of
from probes.workload.options import whole
from probes.workload.wording import clean, describe, join, unknown

DEFAULT_SEQUENCE_LENGTH = 128  # tokens; what fine-tuning scripts pad short texts to
DEFAULT_IMAGE_SIDE = 224  # pixels; ImageNet's usual crop, where the config states no image_size
DEFAULT_AUDIO_SAMPLES = 16_000  # one second at 16 kHz

IMAGE_TASKS = ("image-classification", "semantic-segmentation")
AUDIO_TASKS = ("audio-classification", "speech-recognition")
# Without a task and without `architectures`: what the model type was made for.
_SPECIALISED = ("image-classification", "speech-recognition", "audio-classification", "seq2seq-lm")
_POSITIONS = (
    "max_position_embeddings", "n_positions", "max_target_positions", "max_seq_len",
    "max_encoder_position_embeddings", "max_decoder_position_embeddings",
)  # fmt: skip
# The task with a text to read and another to say, each with as many positions as its half has.
_TWO_TEXTS = "seq2seq-lm"
# Classes that are told by another model what to say: transformers has no loss for them, and trains the plain one.
_TAUGHT = "WithTeacher"
_OPTIONS = ("huggingface", "task", "sequence_length", "image_size", "audio_samples")


def parse_huggingface(document: dict[str, Any]) -> dict[str, Any]:
    """Canonical content of a `huggingface` model. Raises InvalidModel.

    Content: `config` (with `architectures` where these name another class than is usual for the task, and floats where
    its class takes these alone), `task`, and what the task takes of `sequence_length` (tokens), `image_size` (height,
    width) and `audio_samples`; null: what the config's class says, else the defaults above.
    """
    for key in document:
        if key not in _OPTIONS:
            raise unknown("The option", key, _OPTIONS, f"Beside huggingface a model takes {join(_OPTIONS[1:])}.")
    written = document["huggingface"]
    if not isinstance(written, dict):
        raise InvalidModel(
            f'"huggingface" is {describe(written)}; the content of a config.json is expected: {{"model_type": …}}.'
        )
    known = read_architectures()
    _refuse_own_code(written, known)
    model_type = _model_type(written.get("model_type"), known)
    config = with_float_options(check_config(written))
    named = _names_in(config.pop("architectures", None))
    task = _task(document.get("task"), model_type, named, known)
    config |= _other_class(named, model_type, task, known)
    return {"config": config, "task": task} | _sizes(document, config, task)


def _names_in(architectures: Any) -> list[str]:
    """A single name, as people write it by hand, is a list of one."""
    listed = architectures if isinstance(architectures, list) else [architectures]
    return [name for name in listed if isinstance(name, str)]


def _refuse_own_code(written: dict[str, Any], known: Architectures) -> None:
    """Raises InvalidModel for a config whose class is not in transformers but in a file beside the weights."""
    classes, model_type = written.get("auto_map"), written.get("model_type")
    if not isinstance(classes, dict) or (isinstance(model_type, str) and model_type in known.model_types):
        return
    named = [name for key, name in classes.items() if key.startswith("AutoModel") and isinstance(name, str)]
    which = f', "{clean(named[0])}",' if named else ""
    raise InvalidModel(
        f"This model's class{which} is code of its own (auto_map) and not in the installed transformers; a config is "
        "data and loads no code. Write a function of yours that makes the model, and ask for it as module:function "
        "on the command line, where its real steps are measured."
    )


def _model_type(written: Any, known: Architectures) -> str:
    if written is None:
        raise InvalidModel('The huggingface config has no "model_type". Copy the whole config.json of the model.')
    if not isinstance(written, str):
        raise InvalidModel(f'model_type is {describe(written)}; a name is expected, such as "bert".')
    if written not in known.model_types:
        hint = 'The installed transformers does not have it; "crosspoint models" lists models to start from.'
        raise unknown("The model_type", written, known.trainable_types(), hint)
    return written


def _task(written: Any, model_type: str, architectures: list[str], known: Architectures) -> str:
    supported = known.tasks(model_type)
    if not supported:
        raise InvalidModel(
            f'Models of type "{model_type}" have no task that is trained here ({join(task.name for task in TASKS)}). '
            "Describe the part to be trained as layers, or as the config of that part."
        )
    if written is None:
        return _task_of_architecture(architectures, model_type, known) or default_task(supported)
    name = written.lower().replace("_", "-") if isinstance(written, str) and len(written) < 100 else None
    if name not in TASKS_BY_NAME:
        hint = f"{model_type} supports {join(supported)}."
        raise unknown("The task", written, TASKS_BY_NAME, hint)
    task = TASKS_BY_NAME[name].name
    if task not in supported:
        raise InvalidModel(f"{model_type} has no {task} in transformers; it supports {join(supported)}.", supported)
    return task


def _task_of_architecture(architectures: list[str], model_type: str, known: Architectures) -> str | None:
    """The task of the class that a config.json names, as in ["BertForMaskedLM"]."""
    names = set(architectures)
    for task in TASKS:
        if any(names & set(known.classes.get(table, {}).get(model_type, ())) for table in task.tables):
            return task.name
    return None


def _other_class(architectures: list[str], model_type: str, task: str, known: Architectures) -> dict[str, list[str]]:
    """`architectures` with the class that a config.json names, where transformers has several for the task and would
    take another one without it."""
    classes = known.classes[known.table(model_type, task) or ""][model_type]
    named = next((name for name in architectures if name in classes), None)
    if named is None or named == classes[0] or named.endswith(_TAUGHT):
        return {}
    return {"architectures": [named]}


def default_task(supported: tuple[str, ...]) -> str:
    """Decoders predict the next token; encoders, known by their masked-lm, classify; the rest is what it is."""
    for task in _SPECIALISED:
        if task in supported:
            return task
    if "masked-lm" in supported and "text-classification" in supported:
        return "text-classification"
    return next((task for task in ("causal-lm", "text-classification") if task in supported), supported[0])


def _sizes(document: dict[str, Any], config: dict[str, Any], task: str) -> dict[str, Any]:
    takes = sizes_of(task)
    for name in ("sequence_length", "image_size", "audio_samples"):
        if document.get(name) is not None and name not in takes:
            raise InvalidModel(f'"{name}" makes no sense for {task}, which takes {join(takes)}. Leave it out.')
    read = {"sequence_length": _sequence_length, "image_size": _image_size, "audio_samples": _audio_samples}
    return {name: read[name](document.get(name), config, task) for name in takes}


def sizes_of(task: str) -> tuple[str, ...]:
    """What says how large one sample of a task is."""
    if task in IMAGE_TASKS:
        return ("image_size",)
    if task == "speech-recognition":
        return ("audio_samples", "sequence_length")
    return ("audio_samples",) if task in AUDIO_TASKS else ("sequence_length",)


def _sequence_length(written: Any, config: dict[str, Any], task: str) -> int | None:
    if written is None:
        return None
    length = whole('"sequence_length"', written, 1, MAX_SEQUENCE_LENGTH)
    limit = position_limit(config, left_out(task))
    if limit is not None and length > limit:
        raise InvalidModel(
            f'"sequence_length" is {length}, but the config has {limit} positions. Take at most {limit}.'
        )
    return length


def max_positions(config: dict[str, Any]) -> int | None:
    """Tokens that a config has positions for, or that its model was trained for; None: it does not say."""
    return _fewest_positions(_parts(config))


def position_limit(config: dict[str, Any], without: str = "") -> int | None:
    """Tokens that a config has positions for, and beyond which its model fails; None: it has no table of positions, or
    one that grows, or does not say. without: the half that does not count, "encoder" or "decoder"; empty: both do."""
    model_type = config.get("model_type")
    parts = (part for part in _parts(config, without) if not _is_endless(part, model_type))
    return _fewest_positions(parts, without)


def left_out(task: str) -> str:
    """The half of a model whose positions do not bound `sequence_length`: a decoder's, where there is a text to read
    (LED reads 16,384 tokens and says 1,024)."""
    return "decoder" if task == _TWO_TEXTS else ""


def _parts(config: dict[str, Any], without: str = "") -> list[dict[str, Any]]:
    nested = (config.get(name) for name in ("text_config", "encoder", "decoder") if name != without)
    return [config, *(part for part in nested if isinstance(part, dict))]


def _is_endless(part: dict[str, Any], around: Any) -> bool:
    """Whether more tokens than a part of a config tells of are taken. around: the model type of what it is a part of,
    where it does not tell its own."""
    own = part.get("model_type") or around
    if part.get("position_embedding_type") == "rotary":
        return True
    return isinstance(own, str) and (is_rotary(own) or are_positions_endless(own, _POSITIONS))


def _fewest_positions(parts: Iterable[dict[str, Any]], without: str = "") -> int | None:
    names = [name for name in _POSITIONS if not without or without not in name]
    found = [part[name] for part in parts for name in names if _limits(part, name)]
    return min((limit for limit in found if limit > 0), default=None)


def _limits(part: dict[str, Any], name: str) -> bool:
    """Whether tokens beyond this number have no position: T5 and DeBERTa tell tokens' distances, and their published
    configs have numbers that nothing reads."""
    relative = (name == "n_positions" and "relative_attention_num_buckets" in part) or (
        name == "max_position_embeddings" and part.get("position_biased_input") is False
    )
    return isinstance(part.get(name), int) and not relative


def _image_size(written: Any, config: dict[str, Any], task: str) -> list[int] | None:
    if written is None:
        return None
    sides = written if isinstance(written, list) else [written, written]
    if len(sides) != 2:
        raise InvalidModel(f'"image_size" has {len(sides)} numbers; one, or height and width, are expected.')
    return [whole('"image_size"', side, 1, MAX_IMAGE_SIDE) for side in sides]


def _audio_samples(written: Any, config: dict[str, Any], task: str) -> int | None:
    return None if written is None else whole('"audio_samples"', written, 1, MAX_AUDIO_SAMPLES)


def name_of(content: dict[str, Any]) -> str:
    """What to call it: `bert, text-classification`; with which half is built, where transformers' class for the task is
    that of the text part alone: `mllama, causal-lm (text part)`."""
    half = " (text part)" if _is_text_alone(content) else ""
    return f"{clean(content['config']['model_type'])}, {content['task']}{half}"


def _is_text_alone(content: dict[str, Any]) -> bool:
    known, model_type = read_architectures(), content["config"]["model_type"]
    built = next(iter(content["config"].get("architectures", ())), None) or known.class_of(model_type, content["task"])
    taken = config_class_of(model_type, built) if built is not None else None
    return taken is not None and taken.endswith("TextConfig") and taken != known.config_class(model_type)


def default_sequence_length(limit: int | None) -> int:
    """Tokens in a sample when nobody says. limit: positions that the model has; None: no limit."""
    return min(DEFAULT_SEQUENCE_LENGTH, limit or DEFAULT_SEQUENCE_LENGTH)
