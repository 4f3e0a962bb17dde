"""The fingerprint: what a profile or a trace was made on, in 16 hexadecimal digits."""

import hashlib
import json

from probes.diagnose import Facts


def compute_fingerprint(facts: Facts) -> str:
    """16 hexadecimal digits that change when CPU, limits, GPUs, driver or torch change: never with load or time."""
    cpu, torch = facts.cpu, facts.software.torch
    identity = {
        "cpu": [cpu.name, cpu.vendor_id, cpu.architecture, cpu.sockets, cpu.physical_cores, cpu.logical_cores],
        "instruction_sets": cpu.instruction_sets,
        "limits": [cpu.usable_cores, facts.memory.limit_bytes],
        "accelerators": sorted([card.id, card.name or "", card.driver_version or ""] for card in facts.accelerators),
        "torch": [torch.version, torch.cuda_version] if torch else None,
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
