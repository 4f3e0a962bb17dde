"""The pairs that people choose between, the cheaper plan first."""

from app.advisor.curves.pairs import pairs_worth_telling, plans_of
from probes.workload.description import Plan

CPU = [Plan("cpu", precision, threads) for threads in (1, 4, 16) for precision in ("fp32", "bf16")]  # type: ignore[arg-type]
ONE, FOUR, SIXTEEN = (Plan("cpu", "fp32", threads) for threads in (1, 4, 16))
GPU, GPU_BF16 = Plan("cuda:0", "fp32"), Plan("cuda:0", "bf16")


def test_the_recommended_thread_count_is_compared_with_fewer_and_more() -> None:
    pairs = pairs_worth_telling(CPU, FOUR)
    assert (ONE, SIXTEEN) in pairs
    assert (ONE, FOUR) in pairs
    assert (FOUR, SIXTEEN) in pairs


def test_at_either_end_of_the_thread_counts_one_pair_says_all() -> None:
    for best in (ONE, SIXTEEN):
        threads = [pair for pair in pairs_worth_telling(CPU, best) if {plan.precision for plan in pair} == {"fp32"}]
        assert threads == [(ONE, SIXTEEN)]


def test_precisions_are_compared_with_the_threads_that_are_recommended() -> None:
    pairs = pairs_worth_telling(CPU, FOUR)
    assert {first.threads for first, second in pairs if (first.precision, second.precision) == ("fp32", "bf16")} == {
        1,
        4,
        16,
    }


def test_devices_are_compared_with_their_rivals_on_the_cpu_and_with_fp32() -> None:
    pairs = pairs_worth_telling([*CPU, GPU, GPU_BF16], FOUR, lambda plan: (FOUR,) if plan == GPU else (FOUR, ONE))
    for pair in ((FOUR, GPU), (FOUR, GPU_BF16), (ONE, GPU_BF16), (GPU, GPU_BF16)):
        assert pair in pairs
    assert (ONE, GPU) not in pairs


def test_cards_that_are_alike_are_one_device() -> None:
    """Each plan on one of them, wherever it is known best."""
    halved, twin = Plan("cuda:0", "bf16"), Plan("cuda:1")
    pairs = pairs_worth_telling([*CPU, halved, twin], ONE, lambda plan: (ONE,), {"cuda:0": "A10", "cuda:1": "A10"})
    on_device = [pair for pair in pairs if not pair[1].is_cpu]
    assert on_device == [(ONE, halved), (ONE, twin), (twin, halved)]


def test_a_card_that_lacks_the_recommended_precision_is_compared_by_its_own_best_plan() -> None:
    older, best = [Plan("cuda:0"), Plan("cuda:0", "fp16")], Plan("cuda:1", "bf16")
    plans = [*older, Plan("cuda:1"), best]
    assert (older[1], best) in pairs_worth_telling(plans, best, ranked=(best, older[1], older[0]))
    assert (older[0], best) in pairs_worth_telling(plans, best)  # nothing is known of either


def test_cards_that_lack_fp32_as_others_were_asked_for_are_compared_though_the_cpu_is_best() -> None:
    halved = [Plan("cuda:0", "bf16"), Plan("cuda:1", "bf16")]
    for best in (Plan("cpu", "bf16", 4), None):
        assert (halved[0], halved[1]) in pairs_worth_telling([*CPU, *halved], best)


def test_no_pair_is_told_twice_and_every_plan_has_a_curve() -> None:
    pairs = pairs_worth_telling([*CPU, GPU, GPU_BF16], GPU, lambda plan: (ONE, ONE))
    assert len(pairs) == len({(first.key, second.key) for first, second in pairs})
    curves = plans_of(pairs, GPU)
    assert curves[0] == GPU
    assert {plan.key for pair in pairs for plan in pair} == {plan.key for plan in curves}


def test_the_recommended_plan_is_compared_with_what_torch_does_by_itself() -> None:
    """All threads, in fp32; where both have their threads or their precision in common it is told already."""
    for best, told in ((Plan("cpu", "bf16", 1), True), (Plan("cpu", "bf16", 16), False), (ONE, False), (GPU, False)):
        unlike = [pair for pair in pairs_worth_telling(CPU, best) if (pair[0].threads, pair[1].threads) == (1, 16)]
        assert ((best, SIXTEEN) in unlike) is (told or best == ONE)
        assert len(unlike) == (3 if told else 2)
