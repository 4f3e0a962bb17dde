"""The plans worth looking at on a machine."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from app.advisor.request import InvalidRequest, Request
from probes.hardware import Accelerator, Cpu, Survey
from probes.machine_facts import may_lack_cards
from probes.profile import Profile
from probes.trace import AUTOCAST
from probes.workload.description import Plan, Precision

# Tensor cores compute in tf32 and bf16 from compute capability 8.0 on (CUDA C++ Programming Guide, "Arithmetic
# instructions" and "Features and technical specifications").
AMPERE = (8, 0)

CUDA_VENDORS = ("NVIDIA", "AMD")  # whose cards torch calls cuda:N
# Whose cards torch calls by the name of a kind of device, a number behind it or not.
VENDORS_OF: Mapping[str, tuple[str, ...]] = {"cuda": CUDA_VENDORS, "xpu": ("Intel",), "mps": ("Apple",)}
MEASURED = "crosspoint measures CPUs, NVIDIA's cards by CUDA and AMD's by ROCm, and no others"


def candidate_plans(survey: Survey, request: Request) -> tuple[Plan, ...]:
    """Every plan to estimate for this request, the cheaper ones first (CPU before GPU, few threads before many).

    Raises InvalidRequest when a device was asked for that is not here or cannot be used, or when no device that
    was asked for computes in the precision asked for.
    """
    plans = [
        plan
        for device in _requested_devices(survey, request.devices)
        for plan in _plans_on(survey, device)
        if request.precision in ("auto", plan.precision)
    ]
    if not plans:
        raise InvalidRequest(_why_no_precision(survey, request.precision))
    return tuple(plans)


def _why_no_precision(survey: Survey, precision: str) -> str:
    """With what each device here has, and those to ask for instead, where any has it."""
    found = {device: _precisions_on(device, _plans_on(survey, device)) for device in _devices_here(survey)}
    told = (f"{device} ({', '.join(precisions)})" for device, precisions in found.items())
    having = [device for device, precisions in found.items() if precision in precisions]
    instead = f", or ask for {' or '.join(having)}" if having else ""
    return f"No device asked for computes in {precision}. Here: {', '.join(told)}. Leave precision at auto{instead}."


def profiled_plans(profile: Profile, request: Request) -> tuple[Plan, ...]:
    """The plans that another machine's profile was calibrated for, of those the request leaves open.

    Raises InvalidRequest when none is left, or a device was asked for that the profile does not have.
    """
    measured = {point.plan.key: point.plan for point in profile.points}.values()
    twins = [
        replace(plan, device=device)
        for device, other in profile.like.items()
        if device in request.devices  # else one of several that are alike tells what all would
        for plan in measured
        if plan.device == other
    ]
    found = {plan.key: plan for plan in (*measured, *twins)}
    there = tuple(dict.fromkeys(plan.device for plan in found.values()))
    plans = [
        plan
        for plan in found.values()
        if request.precision in ("auto", plan.precision)
        and (not request.devices or any(_is_called(plan.device, name) for name in request.devices))
    ]
    lacking = [name for name in request.devices if not any(_is_called(device, name) for device in there)]
    if lacking or not plans:
        what = "a device that was asked for" if lacking else "the devices and precision asked for"
        told = (f"{device} ({', '.join(_precisions_on(device, found.values()))})" for device in there)
        raise InvalidRequest(
            f"That profile has nothing for {what}. It was calibrated for: {', '.join(told) or 'nothing'}.",
            suggestions=there,
        )
    return tuple(plans)


def _is_called(device: str, name: str) -> bool:
    """By its own name, or by that of every device of its kind: `cuda`."""
    return name in (device, device.partition(":")[0])


def _precisions_on(device: str, plans: Iterable[Plan]) -> tuple[Precision, ...]:
    return tuple(dict.fromkeys(plan.precision for plan in plans if plan.device == device))


def halved_precisions(plans: Iterable[Plan]) -> Mapping[str, Precision]:
    """The first precision of two bytes that each device has, by its name; without those that have none."""
    found: dict[str, Precision] = {}
    for plan in plans:
        if plan.precision in AUTOCAST:
            found.setdefault(plan.device, plan.precision)
    return found


def left_out_precisions(plans: Iterable[Plan], everything: Sequence[Plan]) -> Mapping[str, tuple[Precision, ...]]:
    """By device of which none is among the plans, those that it has. everything: whatever the precision asked for."""
    devices = {plan.device for plan in plans}
    left_out = dict.fromkeys(plan.device for plan in everything if plan.device not in devices)
    return {device: _precisions_on(device, everything) for device in left_out}


def thread_counts(cpu: Cpu) -> tuple[int, ...]:
    """One thread, the physical cores that affinity leaves, the usable cores, and the powers of two between them.

    Never more than the usable cores (affinity and cgroup quota, rounded down): with more threads than cores every
    parallel region waits for a thread that has no core.
    """
    usable = whole_usable_cores(cpu)
    counts = {1, min(cpu.allowed_physical_cores or usable, usable), usable}
    power = 2
    while power < usable:
        counts.add(power)
        power *= 2
    return tuple(sorted(counts))


def cuda_accelerators(survey: Survey) -> tuple[Accelerator, ...]:
    """Accelerators that torch can train on as a CUDA device, one a torch device."""
    found: dict[str, Accelerator] = {}
    for accelerator in survey.accelerators:
        if accelerator.usable and (accelerator.torch_device or "").startswith("cuda"):
            found.setdefault(str(accelerator.torch_device), accelerator)
    return tuple(found.values())


def unknown_cards(survey: Survey) -> list[Accelerator]:
    """Which torch has to be asked about, whether it can train on them."""
    return [card for card in survey.accelerators if card.usable is None and card.vendor in CUDA_VENDORS]


def must_ask_torch(survey: Survey) -> bool:
    """Whether what plans there are is for torch to say, which was not heard yet: it must judge a card, or may list one
    that nothing else shows."""
    return bool(unknown_cards(survey)) or may_lack_cards(survey.software.torch, survey.accelerators)


def unmeasured_cards(survey: Survey) -> list[Accelerator]:
    """Which torch may well train on, though not as a CUDA device (Apple's, Intel's): there are no plans for them."""
    is_told = survey.software.torch is not None  # else only a card that torch has a name for is known to be one
    return [
        card
        for card in survey.accelerators
        if card.usable is not False and card.vendor not in CUDA_VENDORS and (is_told or card.torch_device is not None)
    ]


def whole_usable_cores(cpu: Cpu) -> int:
    """One at least."""
    cores = cpu.usable_cores or cpu.physical_cores or cpu.logical_cores or 1
    return max(1, math.floor(cores))


def _requested_devices(survey: Survey, devices: tuple[str, ...]) -> tuple[str, ...]:
    """The devices asked for, in order and once each; every device here when none was asked for."""
    return find_devices(survey, devices) or _devices_here(survey)


def find_devices(survey: Survey, asked: Sequence[str]) -> tuple[str, ...]:
    """The devices asked for by their own names, once each: `cuda` is every one; none: no choice. Raises
    InvalidRequest."""
    here = _devices_here(survey)
    found: list[str] = []
    for device in asked:
        matching = [name for name in here if _is_called(name, device)]
        if not matching:
            raise InvalidRequest(why_not_here(survey, device), suggestions=here)
        found += matching
    return tuple(dict.fromkeys(found))


def _devices_here(survey: Survey) -> tuple[str, ...]:
    return ("cpu", *(str(accelerator.torch_device) for accelerator in cuda_accelerators(survey)))


def why_not_here(survey: Survey, device: str) -> str:
    """Why there is no such device to run on, as far as a card here may be meant, and which there are."""
    meant = next(iter(_cards_meant(survey, device)), None)
    if meant is not None:
        why = _why_no_plan(survey, meant)
    elif device.partition(":")[0] == "cuda" and may_lack_cards(survey.software.torch, survey.accelerators):
        why = "Which cards torch for ROCm shows is not known yet"
    else:
        why = "A device was asked for that is not here"
    return f"{why}. Devices here: {_describe_devices(survey)}."


def _cards_meant(survey: Survey, device: str) -> Iterator[Accelerator]:
    """Those of its name, and then those that a name of this kind may mean: torch gives none to what it cannot use, and
    which card a number means nobody can tell then. Built for one vendor's cards it has names for no other's."""
    kind, usable = device.partition(":")[0], cuda_accelerators(survey)
    yield from (card for card in survey.accelerators if card.torch_device in (device, kind))
    named = {card.vendor for card in survey.accelerators if (card.torch_device or "").partition(":")[0] == kind}
    for vendor in VENDORS_OF.get(kind, ()):
        if named and vendor not in named:
            continue
        of_kind = (card for card in survey.accelerators if card.vendor == vendor and card not in usable)
        yield from (card for card in of_kind if device == kind or card.torch_device is None)


def _why_no_plan(survey: Survey, accelerator: Accelerator) -> str:
    name = accelerator.name or accelerator.id
    if accelerator in unmeasured_cards(survey):
        return f"{name} has no plan: {MEASURED}"
    yet = " yet" if survey.software.torch is not None else ""  # a captured machine never tells
    unknown = f"whether torch can use it is not known{yet}" if accelerator.usable is None else None
    reason = accelerator.why_not or unknown or "torch cannot use it here"
    return f"{name} cannot be trained on: {reason.rstrip('.')}"


def _describe_devices(survey: Survey) -> str:
    names = [f"cpu ({survey.cpu.name})" if survey.cpu.name else "cpu"]
    names += [f"{gpu.torch_device} ({gpu.name or gpu.id})" for gpu in cuda_accelerators(survey)]
    return ", ".join(names)


def _plans_on(survey: Survey, device: str) -> list[Plan]:
    if device == "cpu":
        return [
            Plan("cpu", precision, threads) for threads in thread_counts(survey.cpu) for precision in _cpu_precisions()
        ]
    accelerator = next(gpu for gpu in cuda_accelerators(survey) if gpu.torch_device == device)
    return [Plan(device, precision) for precision in _cuda_precisions(accelerator)]


def _cpu_precisions() -> tuple[Precision, ...]:
    """bf16 runs on every CPU; whether it is emulated, and slow, is for the measurement to say."""
    return ("fp32", "bf16")


def _cuda_precisions(accelerator: Accelerator) -> tuple[Precision, ...]:
    if capability_of(accelerator) >= AMPERE:
        return ("fp32", "tf32", "bf16", "fp16")
    return ("fp32", "fp16")


def capability_of(accelerator: Accelerator) -> tuple[int, int]:
    """As torch tells it, by which a card is calibrated (probes.microtrain.plans): AMD's goes by the instruction set."""
    return parse_target(accelerator.gfx_target) or parse_capability(accelerator.compute_capability)


def parse_target(text: str | None) -> tuple[int, int] | None:
    """`gfx942` -> (9, 4), `gfx1100` -> (11, 0): what is before minor version and stepping is the major one (LLVM, "User
    Guide for AMDGPU Backend"), and HIP tells major and minor as the capability. None when it is no target."""
    target = re.fullmatch(r"gfx(\d{1,2})([0-9a-f])[0-9a-f]", text or "")
    return (int(target[1]), int(target[2], 16)) if target else None


def parse_capability(text: str | None) -> tuple[int, int]:
    """`8.6` -> (8, 6); (0, 0) when it is unknown."""
    major, _, minor = (text or "").partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)
