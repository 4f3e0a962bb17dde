"""What is missing before any card is looked at: a card, torch."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnose.codes import make_finding
from probes.diagnose.facts import Facts
from probes.diagnose.wording import listed
from probes.hardware import Finding
from probes.machine_facts import may_lack_cards


def find_no_gpu(facts: Facts) -> Iterator[Finding]:
    if not facts.accelerators_known or facts.silent_card or facts.training_cards or _has_jetsons_gpu(facts):
        return
    if may_lack_cards(facts.torch, facts.accelerators):
        return
    seen = {card.vendor for card in facts.accelerators}  # whose driver is loaded for what is built in
    drivers = [driver for driver in facts.software.drivers if driver.vendor not in seen]
    loaded = [driver.vendor for driver in drivers if driver.kernel_module_version]
    message = f"{_describe_absence(facts)} Training runs on the CPU."
    if loaded:
        message += (
            f" A driver of {' and '.join(loaded)} is loaded all the same: a card may have failed or been taken out."
        )
    yield make_finding(
        "no-gpu",
        "machine",
        message,
        "In a container or virtual machine, check that the GPU is passed through (docker run --gpus all).",
    )


def _has_jetsons_gpu(facts: Facts) -> bool:
    """It is no PCI device: only its driver, nvgpu, shows it where NVIDIA's libraries do not."""
    return any("nvgpu" in (driver.kernel_modules or ()) for driver in facts.software.drivers)


def _describe_absence(facts: Facts) -> str:
    if not facts.accelerators:
        return "No GPU was found: neither on the PCI bus nor through a driver."
    names = dict.fromkeys(card.name or f"a device of {card.vendor or card.id}" for card in facts.accelerators)
    return f"No GPU was found that crosspoint trains on, only this: {listed(list(names))}."


def find_torch_not_installed(facts: Facts) -> Iterator[Finding]:
    if facts.is_live and facts.torch is None:
        yield make_finding(
            "torch-not-installed",
            "torch",
            f"torch is not installed for this Python ({facts.software.python}), so nothing can be trained or measured.",
            "python -m pip install torch; for a GPU, choose the build at https://pytorch.org/get-started/locally/",
        )


def find_torch_does_not_start(facts: Facts) -> Iterator[Finding]:
    if facts.torch_error is not None:
        yield make_finding(
            "torch-does-not-start",
            "torch",
            f"torch {facts.torch.version if facts.torch else ''} is installed and does not start: {facts.torch_error}.",
            "python -c 'import torch' shows the error; python -m pip install --force-reinstall torch "
            "mends a broken install",
        )
