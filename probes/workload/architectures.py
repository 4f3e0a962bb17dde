"""Which model types the installed transformers knows, and which tasks each supports.

Read from the package's source text, without importing it: importing takes seconds and hundreds of megabytes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from probes.installed import Stamp, stamp_of
from probes.workload.description import InvalidModel


@dataclass(frozen=True, slots=True)
class Task:
    """What a model is trained to do. tables: the names of transformers' tables (models/auto/modeling_auto.py) that say
    which class does it for a model type, best first; aliases: the pipeline's and other usual names."""

    name: str
    tables: tuple[str, ...]
    aliases: tuple[str, ...] = ()


TASKS: tuple[Task, ...] = (
    Task("image-classification", ("MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",)),
    Task(
        "speech-recognition",
        ("MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES", "MODEL_FOR_CTC_MAPPING_NAMES"),
        ("automatic-speech-recognition", "asr", "speech-to-text", "ctc"),
    ),
    Task("audio-classification", ("MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES",)),
    Task(
        "seq2seq-lm",
        ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",),
        ("text2text-generation", "seq2seq", "translation", "summarization"),
    ),
    Task(
        "text-classification",
        ("MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",),
        ("sequence-classification", "sentiment-analysis"),
    ),
    Task("causal-lm", ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",), ("text-generation", "language-modeling")),
    Task("masked-lm", ("MODEL_FOR_MASKED_LM_MAPPING_NAMES",), ("fill-mask",)),
    Task("token-classification", ("MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",), ("ner",)),
    Task("question-answering", ("MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES",), ("extractive-qa",)),
    Task("semantic-segmentation", ("MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES",), ("image-segmentation",)),
)
TASKS_BY_NAME = {name: task for task in TASKS for name in (task.name, *task.aliases)}
_CONFIGS = "CONFIG_MAPPING_NAMES"


@dataclass(frozen=True, slots=True)
class Architectures:
    """model_types: all that have a config class. classes: table -> model type -> names of model classes."""

    model_types: frozenset[str]
    classes: dict[str, dict[str, tuple[str, ...]]]

    def tasks(self, model_type: str) -> tuple[str, ...]:
        """The tasks that a model type supports, in the order of TASKS."""
        return tuple(task.name for task in TASKS if self.table(model_type, task.name) is not None)

    def table(self, model_type: str, task: str) -> str | None:
        """The first of a task's tables that has the model type; None: not supported."""
        tables = TASKS_BY_NAME[task].tables
        return next((table for table in tables if model_type in self.classes.get(table, {})), None)

    def class_of(self, model_type: str, task: str) -> str | None:
        """The model class that is taken for a task unless another is named; None: not supported."""
        table = self.table(model_type, task)
        return None if table is None else self.classes[table][model_type][0]

    def config_class(self, model_type: str) -> str | None:
        return next(iter(self.classes[_CONFIGS].get(model_type, ())), None)

    def trainable_types(self) -> tuple[str, ...]:
        """Model types that support at least one task, sorted."""
        return tuple(sorted(name for name in self.model_types if self.tasks(name)))


def read_architectures() -> Architectures:
    """Of the transformers that is installed now (4.57 to 5.x). Raises InvalidModel when it is not installed or cannot
    be read."""
    stamp = stamp_of("transformers")
    if stamp is None:
        raise InvalidModel("transformers is not installed here, so Hugging Face models cannot be built. Use layers.")
    return _read_architectures(stamp)


@lru_cache(maxsize=1)
def _read_architectures(stamp: Stamp) -> Architectures:
    folder = Path(stamp[0]).parent / "models" / "auto"
    names = ("configuration_auto.py", "auto_mappings.py", "modeling_auto.py")
    try:
        texts = [(folder / name).read_text("utf-8") for name in names if (folder / name).exists()]
    except OSError as error:
        raise InvalidModel("The installed transformers cannot be read. Install it anew.") from error
    return parse_architectures(texts)


def transformers_version() -> str:
    """Of the one that is installed now; empty where its metadata is missing."""
    try:
        return _read_version(stamp_of("transformers"))
    except PackageNotFoundError:
        return ""


@lru_cache(maxsize=1)
def _read_version(_: Stamp | None) -> str:
    """Raises PackageNotFoundError, which is not remembered."""
    return version("transformers")


def parse_architectures(sources: list[str]) -> Architectures:
    """From the text of transformers' auto modules. Raises InvalidModel when the tables are not where they were."""
    tables: dict[str, dict[str, tuple[str, ...]]] = {}
    for source in sources:
        for name, value in _tables(ast.parse(source)):
            rows = tables.setdefault(name, {})
            for model_type, classes in _pairs(value):
                rows.setdefault(model_type, classes)
    if not tables.get(_CONFIGS) or not any(tables.get(table) for task in TASKS for table in task.tables):
        raise InvalidModel("This transformers keeps its model types elsewhere. Use a version from 4.57 to 5.x.")
    return Architectures(frozenset(tables[_CONFIGS]), tables)


def _tables(module: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Name and value of each top-level `X_MAPPING_NAMES = …` and `X_MAPPING_NAMES.update(…)`."""
    for node in module.body:
        name, value = _named_value(node)
        if value is not None and name.endswith("_MAPPING_NAMES"):
            yield name, value


def _named_value(node: ast.stmt) -> tuple[str, ast.expr | None]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=value):
            return name, value
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update"), args=[value])):
            return name, value
    return "", None


def _pairs(value: ast.expr) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every (model type, class or classes) in a literal: pairs in a list, or items of a dict."""
    for node in ast.walk(value):
        match node:
            case ast.List(elts=rows):
                pairs = [row.elts for row in rows if isinstance(row, ast.Tuple) and len(row.elts) == 2]
                yield from _named_classes((pair[0], pair[1]) for pair in pairs)
            case ast.Dict(keys=keys, values=values):
                yield from _named_classes(zip(keys, values, strict=True))


def _named_classes(pairs: Iterable[tuple[ast.expr | None, ast.expr]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, item in pairs:
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield name.value, _classes(item)


def _classes(node: ast.expr) -> tuple[str, ...]:
    items = node.elts if isinstance(node, ast.Tuple) else [node]
    return tuple(item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str))
