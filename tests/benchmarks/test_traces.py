"""The benchmark of traces counts what traced and shows what did not."""

from benchmarks.traces import FEW_LAYERS, OWN_SIZES, Case, all_cases, describe_tries, fewer_layers, summarize


def test_layers_are_made_few_in_nested_configs_too_and_nothing_else_is_touched() -> None:
    config = {"num_hidden_layers": 12, "hidden_size": 64, "text_config": {"model_type": "llama", "num_layers": 8}}
    assert fewer_layers(config) == {"num_hidden_layers": 2, "text_config": {"model_type": "llama", "num_layers": 2}}
    assert fewer_layers({"num_hidden_layers": 1}) == {}


def test_every_task_of_a_model_type_is_a_case() -> None:
    assert {"text-classification", "masked-lm"} <= {case.task for case in all_cases(["bert"], [])}


def test_outcomes_are_counted_by_task_and_untraced_types_are_named() -> None:
    rows = [
        {"model_type": "bert", "task": "masked-lm", "outcome": "traced", "sizes": FEW_LAYERS},
        {"model_type": "odd", "task": "masked-lm", "outcome": "refused", "sizes": OWN_SIZES},
    ]
    summary = summarize(rows)
    assert summary["by_task"] == {"masked-lm": {"traced": 1, "refused": 1}}
    assert summary["model_types_untraced"] == ["odd"]


def test_what_traced_is_told_by_its_sizes_and_all_layers_beside_it() -> None:
    case = Case("zamba", "causal-lm")
    few, whole = {"outcome": "traced", "seconds": 3.0}, {"outcome": "failed", "code": "late", "seconds": 60.0}
    both = describe_tries(case, {FEW_LAYERS: few, OWN_SIZES: whole})
    assert (both["outcome"], both["sizes"], both["own_sizes"]) == ("traced", FEW_LAYERS, whole)
    alone = describe_tries(case, {FEW_LAYERS: few})
    assert (alone["sizes"], alone["own_sizes"]) == (FEW_LAYERS, None)  # nobody asked
    assert describe_tries(case, {FEW_LAYERS: whole, OWN_SIZES: whole})["sizes"] == OWN_SIZES
    summary = summarize([both, alone])
    assert (summary["sizes"], summary["own_sizes"]) == ({FEW_LAYERS: 2}, {"failed": 1})
