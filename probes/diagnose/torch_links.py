"""The upper links of every vendor's chain: torch is there, is built for this kind of card, has kernels for this one."""

from __future__ import annotations

from dataclasses import replace

from probes.diagnose.codes import make_finding
from probes.diagnose.cuda_versions import find_last_branch, find_minimum_driver, find_oldest_capability, is_older
from probes.diagnose.links import Case, Checked, broken, fine, unknown
from probes.diagnose.machine import find_torch_does_not_start, find_torch_not_installed
from probes.diagnose.visibility import may_be_hidden
from probes.hardware import Accelerator, Finding, Torch
from probes.torch_facts import has_gfx_kernels, has_kernels

_GET_TORCH = "choose the build at https://pytorch.org/get-started/locally/"


def check_torch(case: Case) -> Checked:
    torch = case.facts.torch
    if not case.facts.is_live:
        return unknown("a captured machine does not tell which torch it had")
    if torch is None:
        return broken(next(find_torch_not_installed(case.facts)))
    if case.facts.torch_error is not None:
        return broken(next(find_torch_does_not_start(case.facts)))
    check = {"NVIDIA": _check_cuda, "AMD": _check_rocm, "Intel": _check_xpu, "Apple": _check_mps}.get(
        case.card.vendor or ""
    )
    return check(case, torch) if check else unknown("torch has no backend of its own for it")


def _check_cuda(case: Case, torch: Torch) -> Checked:
    if torch.cuda_version is None and (torch.cuda_available is False or torch.hip_version is not None):
        return broken(_without(case, torch, "cuda", "CUDA"))
    if torch.cuda_version is None:
        return unknown("nothing tells which CUDA torch was built for")
    works = case.card.usable and case.card.torch_device
    if not works and (finding := _driver_too_old(case, torch)):
        return broken(finding)
    if torch.cuda_available is False and not may_be_hidden(case):
        message = (
            f"torch {torch.version} is built for CUDA {torch.cuda_version} and finds no device, though "
            "the driver shows it."
        )
        fix = "python -c 'import torch; torch.cuda.init()' names the error; sudo dmesg | grep -i -e nvrm -e xid | tail"
        return broken(make_finding("cuda-does-not-initialise", case.subject, message, fix))
    return fine(f"torch {torch.version} is built for CUDA {torch.cuda_version}")


def _driver_too_old(case: Case, torch: Torch) -> Finding | None:
    """A torch that has no kernels for the card whatever its driver is told as that. By the table where it knows this
    CUDA; else a driver whose own CUDA has a lower major version is too old. Where
    CUDA has just started here and is as new as torch's, no table says otherwise: a compatibility package is there."""
    driver = case.card.driver_version or case.facts.software.nvidia_driver
    minimum = find_minimum_driver(torch.cuda_version)
    own = case.facts.software.cuda_driver_version
    is_below = is_older((own or "").split(".")[0], (torch.cuda_version or "").split(".")[0])
    if is_below is False and case.driver is not None and case.driver.compute_devices:
        return None
    too_old = is_older(driver, minimum)
    if minimum is None or too_old is None:
        too_old = is_below
    if not too_old:
        return None
    if (without_kernels := _never_has_kernels(case, torch)) is not None:
        return without_kernels  # a newer driver would not help, and one that is new enough may not know the card
    needs = f"driver {minimum} or newer" if minimum else "a newer driver"
    message = (
        f"torch {torch.version} is built for CUDA {torch.cuda_version}, which needs {needs}; this machine has {driver}"
        + (f", good up to CUDA {own}." if own else ".")
    )
    last = find_last_branch(case.card.compute_capability)
    fix = (
        f"Update NVIDIA's driver to {minimum or 'the newest'} or newer{_up_to(last)}, or install a torch for an older "
        f"CUDA: {_GET_TORCH}"
    )
    return make_finding("driver-too-old-for-torch", case.subject, message, fix)


def _up_to(branch: str | None) -> str:
    return f" ({branch} is the last branch of drivers for this card)" if branch else ""


def _never_has_kernels(case: Case, torch: Torch) -> Finding | None:
    """Where the CUDA that this torch was built with makes none for a card as old as this one."""
    capability, oldest = case.card.compute_capability, find_oldest_capability(torch.cuda_version)
    if not is_older(capability, oldest):
        return None
    message = (
        f"The card's compute capability is {capability}, and no torch for CUDA {torch.cuda_version} has kernels for "
        f"less than {oldest}: a newer driver alone does not help."
    )
    fix = f"Install torch's build for CUDA 12.6 (NVIDIA's own for a Jetson){_with_driver(case, '12.6')}: {_GET_TORCH}"
    if is_older(capability, find_oldest_capability("12.6")):
        driver = _with_driver(case, "11") or f", and keep the driver{_up_to(find_last_branch(capability))}"
        fix = f"Install an older torch, built for CUDA 11 or less{driver}: {_GET_TORCH}"
    return make_finding("torch-without-kernels", case.subject, message, fix)


def _with_driver(case: Case, cuda_version: str) -> str:
    """What that CUDA needs besides. Empty: the driver will do, is not known, or none that the card has would."""
    minimum, last = find_minimum_driver(cuda_version), find_last_branch(case.card.compute_capability)
    driver = case.card.driver_version or case.facts.software.nvidia_driver
    if not is_older(driver, minimum) or is_older(last, minimum):
        return ""
    return f", and update the driver to {minimum} or newer{_up_to(last)}"


def _check_rocm(case: Case, torch: Torch) -> Checked:
    if torch.hip_version is not None and torch.cuda_available is False and not may_be_hidden(case):
        message = f"torch {torch.version} is built for ROCm {torch.hip_version} and finds no device."
        fix = "AMD_LOG_LEVEL=3 python -c 'import torch; torch.cuda.init()' names the error; rocminfo must list the card"
        return broken(make_finding("cuda-does-not-initialise", case.subject, message, fix))
    if torch.hip_version is not None:
        return fine(f"torch {torch.version} is built for ROCm {torch.hip_version}")
    if torch.cuda_available is False or torch.cuda_version is not None:
        return broken(_without(case, torch, "rocm", "ROCm"))
    return unknown("nothing tells whether torch was built for ROCm")


def _check_xpu(case: Case, torch: Torch) -> Checked:
    if _is_for_intel(torch) or (case.card.torch_device or "").startswith("xpu"):
        return fine(f"torch {torch.version} is built for Intel's GPUs")
    if torch.version is None:
        return unknown("nothing tells whether torch was built for Intel's GPUs")
    return broken(_without(case, torch, "xpu", "support for Intel's GPUs (XPU)"))


def _check_mps(case: Case, torch: Torch) -> Checked:
    if case.facts.system.architecture == "x86_64":
        return broken(
            _without(case, torch, "mps", "Metal, since it is made for Intel's processors and runs under Rosetta")
        )
    return fine(f"torch {torch.version} has Apple's Metal (MPS)")


def _without(case: Case, torch: Torch, code: str, what: str) -> Finding:
    if (other := _find_other_card(case, torch)) is not None:
        return _for_another(case, torch, other)
    message = f"torch {torch.version} is built without {what}, so this GPU is not used."
    fix = f"python -m pip uninstall -y torch, then install one with it: {_GET_TORCH}"
    if code == "cuda" and case.facts.system.architecture == "aarch64":
        message += " The package index's torch for 64-bit Arm comes without CUDA unless a CUDA build is asked for."
    if code == "mps":
        fix = (
            "Install a Python for Apple silicon (python3 -c 'import platform; print(platform.machine())' "
            "must say arm64), then torch."
        )
    return make_finding(f"torch-without-{code}", case.subject, message, fix)


def _find_vendor(torch: Torch) -> str | None:
    """Whose cards this torch is built for; None: nobody's, or nothing tells."""
    return "NVIDIA" if torch.cuda_version else "AMD" if torch.hip_version else "Intel" if _is_for_intel(torch) else None


def _is_for_intel(torch: Torch) -> bool:
    return torch.xpu_version is not None or "+xpu" in (torch.version or "")


def _find_other_card(case: Case, torch: Torch) -> Accelerator | None:
    """A card beside this one that this torch is built for, and that it drives, may drive or would if it were shown."""
    own = [card for card in case.facts.training_cards if card.vendor == _find_vendor(torch)]
    return next((card for card in own if card.usable is not False or may_be_hidden(replace(case, card=card))), None)


def _for_another(case: Case, torch: Torch, other: Accelerator) -> Finding:
    """No fault: no torch is built for two vendors, and the other card would lose its own."""
    message = (
        f"torch {torch.version} is built for {other.vendor}'s cards and has one here ({other.name or other.id}). "
        "No torch is built for two vendors', so this GPU is not used."
    )
    fix = (
        "To train on this GPU too, leave this torch as it is and install one for it in an environment of its own "
        f"(python -m venv DIRECTORY): {_GET_TORCH}"
    )
    return make_finding("torch-for-another-vendor", case.subject, message, fix)


def check_kernels(case: Case) -> Checked:
    torch, card = case.facts.torch, case.card
    if card.vendor == "NVIDIA":
        return _check_nvidia_kernels(case)
    if card.usable and card.torch_device:
        return fine(f"torch runs on it as {card.torch_device}")
    if torch is None or not torch.architectures:
        return unknown("torch was not started, so its list of kernels is not known")
    return _check_amd_kernels(case, torch) if card.vendor == "AMD" else fine("torch compiles for it as it runs")


def _check_nvidia_kernels(case: Case) -> Checked:
    torch, capability = case.facts.torch, case.card.compute_capability
    architectures = torch.architectures if torch else ()
    if not architectures or capability is None:
        too_old = _never_has_kernels(case, torch) if torch else None
        return broken(too_old) if too_old else unknown("torch was not started, so its list of kernels is not known")
    if has_kernels(capability, architectures):
        return fine(f"this torch has kernels for compute capability {capability}")
    message = (
        f"The card's compute capability is {capability}, and torch {torch.version if torch else ''} has kernels for "
        f"{', '.join(architectures)} only: the first operation on it fails."
    )
    fix = (
        "Install a torch with kernels for it (a newer one for a new card, an older one or its CUDA 12.6 build for an "
        f"old card, NVIDIA's own for a Jetson): {_GET_TORCH}"
    )
    return broken(make_finding("torch-without-kernels", case.subject, message, fix))


def _check_amd_kernels(case: Case, torch: Torch) -> Checked:
    """AMD names an architecture exactly, as gfx1100; only HSA_OVERRIDE_GFX_VERSION makes its kernels run on others."""
    own = case.card.gfx_target or ""
    if (
        has_gfx_kernels(case.card.gfx_target, torch.architectures)
        or "HSA_OVERRIDE_GFX_VERSION" in case.facts.environment
    ):
        return fine(f"this torch has kernels for {own or 'it'}")
    message = f"The card is a {own}, and torch {torch.version} has kernels for {', '.join(torch.architectures)} only."
    fix = (
        "export HSA_OVERRIDE_GFX_VERSION=10.3.0 (RX 6000) or 11.0.0 (RX 7000): it works for cards close "
        "to those; else a newer torch."
    )
    return broken(make_finding("torch-without-kernels", case.subject, message, fix))
