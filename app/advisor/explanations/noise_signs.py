"""What made a machine noisy while it was calibrated, told by the figures that stand in its profile."""

from __future__ import annotations

import math

from app.advisor.explanations.words import say_percent
from probes.context import Context
from probes.measurement import BUSY_FRACTION
from probes.points import NetworkPoint
from probes.profile import Profile

# Figures of a profile's noise from which on it is said, with the words for it. Others' share of the cores, the
# hypervisor's of the time, and the wait for a core are those from which probes.microtrain.quiet.noise calls a machine
# busy.
BUSY = {
    "spread": 0.25,
    "contention": 0.15,
    "steal_fraction": 0.05,
    "waiting_fraction": 0.05,
    "drift": 0.25,
    "hindrance": 0.1,
    "slow_fraction": 0.25,
    "device_busy_fraction": BUSY_FRACTION,
}
# What plans of the CPU found, by their threads.
OF_THREADS = frozenset({"hindrance", "slow_fraction"})
# What others did on the devices that were measured, before they were.
OF_DEVICES = frozenset({"device_busy_fraction"})
SIGNS = {
    "spread": "its points vary by {}",
    "contention": "others wanted {} of the cores that were measured on",
    "steal_fraction": "the hypervisor kept {} of the time for other machines",
    "waiting_fraction": "it waited for a core for {} of its time",
    "drift": "steps took {} longer half a calibration earlier or later",
    "hindrance": "steps took {} longer on all threads than on one, as where neighbours share the cores",
    "slow_fraction": "{} of its times were taken on slow cores alone, as beside other machines' work on the processor",
    "device_busy_fraction": "others computed on its device for {} of the time just before",
}


def signs_of_noise(profile: Profile, *, of_cpu: bool = True, of_devices: bool = True) -> dict[str, str]:
    """What was wrong with the machine while it was calibrated: name of the figure -> a few words. of_cpu, of_devices:
    whose plans it is asked for. A device's have no threads that find the cores slow; a CPU's do not meet who computes
    on a device."""
    others = {*(() if of_cpu else OF_THREADS), *(() if of_devices else OF_DEVICES)}
    return {
        name: SIGNS[name].format(say_percent(value))
        for name, value in profile.noise.items()
        if value is not None and value > BUSY.get(name, math.inf) and name not in others
    }


def is_disturbed(profile: Profile, *, on_devices: bool = False) -> bool:
    """Whether its times are others' work as much as the machine's: those of a CPU's plans, or of devices'. A drift
    alone is none: a state changed midway. Nor are slow cores where each time says whether it met them: the others are
    as good as those of a calm hour."""
    passed_over = {"drift", "slow_fraction"} if tells_which_are_reckoned(profile) else {"drift"}
    return bool(signs_of_noise(profile, of_cpu=not on_devices, of_devices=on_devices).keys() - passed_over)


def tells_which_are_reckoned(profile: Profile) -> bool:
    """One that was calibrated before this was kept tells of none, however slow its cores were."""
    rows: tuple[NetworkPoint | Context, ...] = (*profile.networks, *profile.contexts)
    return not profile.noise.get("slow_fraction") or any(row.reckoned for row in rows)
