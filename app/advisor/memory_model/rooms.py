"""What a plan's device has room for, and what a process takes of it before there is a model."""

from __future__ import annotations

from dataclasses import dataclass

from app.advisor.like_cards import measured_plan
from app.advisor.memory_model.old_cards import FLASH
from app.advisor.plans import parse_capability
from probes.hardware import Accelerator, Survey
from probes.machine_facts import shares_all_memory
from probes.profile import Profile
from probes.workload.description import Plan


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes on a plan's device, whatever runs there; None: not known. free: what a new process could take now; beside:
    what it takes of that beside what torch's allocator holds (a GPU's context); data_set: of resident data that are to
    lie there."""

    free: int | None
    beside: int | None
    data_set: int = 0

    @property
    def left(self) -> int | None:
        """By the data set."""
        return None if self.free is None else self.free - self.data_set


def room_for(survey: Survey | None, profile: Profile | None, plan: Plan) -> Room:
    """survey: None for another machine of which no memory is known."""
    beside = 0 if plan.is_cpu else context_bytes(profile, plan)
    return Room(available_bytes(survey, plan) if survey is not None else None, beside)


def available_bytes(survey: Survey, plan: Plan) -> int | None:
    """What a new process could take on the plan's device now. The whole memory does not stand for it where it is not
    known: of a machine's a limit is there then that could not be understood, of a card's others may hold any part."""
    memory = survey.memory
    if plan.is_cpu:
        return memory.usable_bytes
    accelerator = _accelerator(survey, plan.device)
    if accelerator is None:
        return None
    if accelerator.memory_free_bytes is not None:
        return accelerator.memory_free_bytes
    return memory.usable_bytes if shares_all_memory(accelerator, memory) else None


def device_bytes(survey: Survey, plan: Plan) -> int | None:
    """All that a card has; None of a CPU."""
    accelerator = None if plan.is_cpu else _accelerator(survey, plan.device)
    return accelerator.memory_total_bytes if accelerator is not None else None


def lacks_flash(survey: Survey | None, plan: Plan) -> bool:
    """Whether the plan's card is known to be one that torch's flash kernel does not run on (old_cards)."""
    card = None if survey is None or plan.is_cpu else _accelerator(survey, plan.device)
    if card is None or card.compute_capability is None or card.gfx_target is not None:
        return False
    return parse_capability(card.compute_capability) < FLASH


def _accelerator(survey: Survey, device: str) -> Accelerator | None:
    return next((gpu for gpu in survey.accelerators if gpu.torch_device == device), None)


def context_bytes(profile: Profile | None, plan: Plan) -> int | None:
    """What a process takes of a card beside its tensors; None where that was not measured."""
    if profile is None or profile.context_bytes is None:
        return None
    return profile.context_bytes.get(measured_plan(profile, plan).device)
