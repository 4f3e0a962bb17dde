"""The words about readings follow from the figures alone; the figures here are made to be told apart."""

from dataclasses import asdict
from typing import Any

import pytest

from probes.measurement import Overheads, Timing
from probes.microtrain.iris_experiment.readings import divide_time, explain_readings, thin_curve


def timing(seconds: float, spread: float = 0.0) -> Timing:
    return Timing(seconds, seconds - spread, seconds + spread)


def device(name: str, epoch: float, reading: float, extra: Timing | None, launch: float) -> dict[str, Any]:
    def variant(every: int | None, extra: Timing | None) -> dict[str, Any]:
        readings = 0 if every is None else 1000 // every
        overheads = Overheads(launch_seconds=launch)
        return {
            "log_every": every,
            "readings": readings,
            "total_seconds": 1000 * epoch + readings * reading,
            "epoch_seconds": asdict(timing(epoch)),
            "extra_seconds_per_reading": None if extra is None else asdict(extra),
            "shares": divide_time(epoch, readings / 1000, overheads, timing(reading)),
        }

    return {
        "device": name,
        "outcome": "ok",
        "overheads": {"launch_seconds": launch},
        "reading_seconds": asdict(timing(reading)),
        "ready_reading_seconds": asdict(timing(reading / 2)),
        "variants": [variant(1, extra), variant(10, None), variant(None, None)],
    }


def test_shares_are_of_the_epoch_and_compute_is_what_remains() -> None:
    shares = divide_time(100e-6, 0.5, Overheads(launch_seconds=60e-6), timing(20e-6))
    assert shares == pytest.approx({"launch": 0.6, "transfer": 0, "synchronize": 0.1, "compute": 0.3})


def test_parts_that_exceed_the_whole_are_scaled_to_it() -> None:
    shares = divide_time(50e-6, 1, Overheads(launch_seconds=60e-6), timing(20e-6))
    assert shares == pytest.approx({"launch": 0.75, "transfer": 0, "synchronize": 0.25, "compute": 0})


def test_a_difference_that_the_slices_do_not_agree_on_is_called_noise() -> None:
    text = " ".join(explain_readings([device("cpu", 100e-6, 1e-6, timing(1e-6, 5e-6), 80e-6)]))
    assert "within this machine's noise" in text
    assert "a reading 1 µs" in text


def test_what_too_few_slices_tell_of_is_not_called_noise() -> None:
    text = " ".join(explain_readings([device("cpu", 100e-6, 1e-6, None, 80e-6)]))
    assert "too few stretches of the run had readings" in text
    assert "noise" not in text


def test_a_cost_that_shows_in_the_runs_is_taken_from_the_runs() -> None:
    text = " ".join(explain_readings([device("cuda:0", 100e-6, 20e-6, timing(25e-6, 2e-6), 80e-6)]))
    assert "a reading 25 µs" in text
    assert "after every epoch 20 %, after every 10th 2.4 %" in text
    assert "waits until the device has done" in text


def test_a_learner_is_told_what_copying_takes_and_that_the_table_has_none_of_it() -> None:
    card = device("cuda:0", 100e-6, 20e-6, timing(25e-6, 2e-6), 80e-6)
    card["overheads"]["transfer_seconds"] = 45e-6
    text = " ".join(explain_readings([card]))
    assert "Copying the data set to cuda:0 takes 45 µs." in text
    assert "in no row of the table" in text
    assert "Copying" not in " ".join(explain_readings([device("cpu", 100e-6, 1e-6, timing(1e-6, 5e-6), 80e-6)]))


def test_slow_epochs_and_long_runs_are_told_in_units_that_suit() -> None:
    slow, fast = device("cuda:0", 1.3, 0.02, None, 1.2), device("cpu", 1.3e-3, 1e-6, None, 8e-4)
    text = " ".join(explain_readings([fast, slow]))
    assert "here an epoch costs 1.3 ms, a reading 1 µs" in text
    assert "with 1,000 readings the run took 22 min 0 s, with none 21 min 40 s" in text
    assert "1.3 s an epoch (1.2 s of it issuing operations) against 1.3 ms an epoch" in text


def test_two_devices_are_held_against_each_other() -> None:
    slow = device("cuda:0", 300e-6, 20e-6, timing(25e-6, 2e-6), 280e-6)
    fast = device("cpu", 100e-6, 1e-6, timing(1e-6, 5e-6), 80e-6)
    assert "cuda:0 needs 3.0 times as long as cpu" in explain_readings([fast, slow])[-1]


def test_a_device_that_failed_is_not_talked_about() -> None:
    assert explain_readings([{"device": "cuda:0", "outcome": "failed", "reason": "…"}]) == []


def test_a_thinned_curve_keeps_its_ends() -> None:
    curve = thin_curve([(epoch, 1 / epoch) for epoch in range(1, 20_001)], points=200)
    assert len(curve) == 200
    assert curve[0] == [1, 1.0]
    assert curve[-1][0] == 20_000
