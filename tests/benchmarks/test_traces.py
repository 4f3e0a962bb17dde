"""The benchmark of traces counts what traced and shows what did not."""

from benchmarks.traces import all_cases, fewer_layers, summarize


def test_layers_are_made_few_in_nested_configs_too_and_nothing_else_is_touched() -> None:
    config = {"num_hidden_layers": 12, "hidden_size": 64, "text_config": {"model_type": "llama", "num_layers": 8}}
    assert fewer_layers(config) == {"num_hidden_layers": 2, "text_config": {"model_type": "llama", "num_layers": 2}}
    assert fewer_layers({"num_hidden_layers": 1}) == {}


def test_every_task_of_a_model_type_is_a_case() -> None:
    assert {"text-classification", "masked-lm"} <= {case.task for case in all_cases(["bert"], [])}


def test_outcomes_are_counted_by_task_and_untraced_types_are_named() -> None:
    rows = [
        {"model_type": "bert", "task": "masked-lm", "outcome": "traced"},
        {"model_type": "odd", "task": "masked-lm", "outcome": "refused"},
    ]
    summary = summarize(rows)
    assert summary["by_task"] == {"masked-lm": {"traced": 1, "refused": 1}}
    assert summary["model_types_untraced"] == ["odd"]
