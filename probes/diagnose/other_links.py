"""The lower links of the chains of AMD's, Intel's and Apple's cards."""

from __future__ import annotations

from probes.diagnose.codes import make_finding
from probes.diagnose.links import Case, Checked, broken, fine, unknown
from probes.diagnose.nvidia_kernel import access_lost, no_permission, not_given
from probes.diagnose.passing_in import explain_passing_in
from probes.gpu.driver import VIRTUAL_MACHINE_DRIVERS
from probes.hardware import Finding

_MODULES = {"AMD": ("amdgpu",), "Intel": ("xe", "i915")}
_INSTALL = {
    "AMD": "sudo modprobe amdgpu; where there is no such module, install the kernel's extra modules or amdgpu-dkms: "
    "https://rocm.docs.amd.com/projects/install-on-linux",
    "Intel": "sudo modprobe xe || sudo modprobe i915; a card newer than the kernel needs a newer kernel: "
    "https://dgpu-docs.intel.com/driver/overview.html",
}


_SAYS_WHY = "sudo dmesg | grep -i -w -e amdgpu -e xe -e i915 | tail"


def check_bus(case: Case) -> Checked:
    if case.card.vendor == "Apple":
        return fine("it is a part of the chip")
    address = case.card.pci_address
    return fine(f"it is on the PCI bus at {address}") if address else unknown("no PCI address is known of it")


def check_module(case: Case) -> Checked:
    """What the kernel bound the card to decides; a module may be loaded for another card."""
    vendor, bound = case.card.vendor or "", case.card.kernel_driver
    if vendor == "Apple":
        return fine("macOS brings its driver")
    if bound in VIRTUAL_MACHINE_DRIVERS:
        return broken(_reserved(case))
    if bound == "radeon":
        return broken(_old_driver(case))
    if bound in _MODULES.get(vendor, ()):
        return fine(f"the kernel module {bound} drives it")
    modules = case.driver.kernel_modules if case.driver else None
    if modules is None:
        return unknown("nothing tells which kernel modules are loaded")
    loaded = [name for name in _MODULES.get(vendor, ()) if name in modules]
    if not loaded:
        return broken(_no_driver(case))
    if _is_passed_over(case):
        return broken(_passed_over(case, " or ".join(loaded)))
    return fine(f"the kernel module {loaded[0]} is loaded")


def _is_passed_over(case: Case) -> bool:
    """A captured machine may lack the links that tell what a card is bound to, and a container the bus; what torch
    lists is driven."""
    is_unbound = case.card.kernel_driver is None and case.card.pci_address is not None
    return is_unbound and case.facts.is_live and case.card.torch_device is None


def _passed_over(case: Case, module: str) -> Finding:
    message = (
        f"The kernel module {module} is loaded and does not drive the card at {case.card.pci_address}: the card is "
        "newer or older than what it takes, its firmware files are missing, or it failed to start."
    )
    fix = (
        f"{_SAYS_WHY} says why; a card newer than the kernel needs a newer kernel and the newest linux-firmware, one "
        "of AMD's of 2012 to 2014 amdgpu.si_support=1 amdgpu.cik_support=1 on the kernel's command line."
    )
    return make_finding("gpu-ignored-by-driver", case.subject, message, fix)


def _reserved(case: Case) -> Finding:
    driver, address = case.card.kernel_driver, case.card.pci_address
    message = (
        f"The card at {address} is bound to {driver}: it is set aside for a virtual machine, so no "
        "program here can use it."
    )
    fix = (
        f"echo {address} | sudo tee /sys/bus/pci/drivers/{driver}/unbind, then sudo modprobe "
        f"{_MODULES[case.card.vendor or ''][0]}"
    )
    return make_finding("gpu-reserved-for-virtual-machine", case.subject, message, fix)


def _no_driver(case: Case) -> Finding:
    vendor = case.card.vendor or ""
    names = " or ".join(_MODULES[vendor])
    message = f"There is a card of {vendor} at {case.card.pci_address}, and its kernel module ({names}) is not loaded."
    return make_finding("gpu-without-driver", case.subject, message, _INSTALL[vendor])


def _old_driver(case: Case) -> Finding:
    message = f"The card at {case.card.pci_address} is run by radeon, the driver of old cards; ROCm needs amdgpu."
    fix = (
        "Put radeon.si_support=0 radeon.cik_support=0 amdgpu.si_support=1 amdgpu.cik_support=1 on the kernel's command "
        "line and restart; cards before GCN (2012) run with radeon only."
    )
    return make_finding("gpu-without-driver", case.subject, message, fix)


def check_device_files(case: Case) -> Checked:
    if case.card.vendor == "Apple":
        return fine("macOS needs none")
    if case.card.torch_device:
        return fine(f"its runtime shows it as {case.card.torch_device}")
    files = case.driver.device_files if case.driver else None
    if files is None:
        return unknown("nothing tells which device files there are")
    refused = [file for file in files if file.readable is False or file.writable is False]
    shown = [card for card in case.facts.accelerators if card.vendor == case.card.vendor and card.torch_device]
    if refused and shown:  # a card's further partitions have no address of their own
        return broken(not_given(case, max(1, sum(card.pci_address is not None for card in shown))))
    if any(file.error == "EPERM" for file in refused):
        return broken(
            access_lost(
                case, f"{refused[0].path} exists and its permissions allow this user, yet the kernel refuses it"
            )
        )
    if refused:
        return broken(no_permission(case, refused[0], "sudo usermod -aG {group} $USER, then log in again"))
    missing = _missing(case, [file.path for file in files])
    return broken(_missing_finding(case, missing)) if missing else fine(f"{len(files)} device files are there")


def _missing(case: Case, paths: list[str]) -> list[str]:
    wanted = [] if any("renderD" in path for path in paths) else ["/dev/dri/renderD128"]
    if case.card.vendor == "AMD" and "/dev/kfd" not in paths:
        wanted.insert(0, "/dev/kfd")
    return wanted


def _missing_finding(case: Case, missing: list[str]) -> Finding:
    vendor, names, container = case.card.vendor or "", " and ".join(missing), case.facts.container
    if container is not None:
        message = (
            f"This container ({container}) was started without its GPU: {names} "
            f"{'are' if len(missing) > 1 else 'is'} not in it."
        )
        return make_finding("container-without-gpu", case.subject, message, explain_passing_in(vendor, container))
    message = f"The kernel module is loaded, but {names} {'do' if len(missing) > 1 else 'does'} not exist."
    return make_finding("device-files-missing", case.subject, message, _INSTALL[vendor])


def check_library(case: Case) -> Checked:
    if case.card.vendor in ("Apple", "AMD"):
        return fine(
            "Metal is a part of macOS" if case.card.vendor == "Apple" else "torch's builds for ROCm bring it along"
        )
    driver = case.driver
    if _is_proven(case):
        return fine(f"torch uses it as {case.card.torch_device}")
    if driver and driver.library == "libze_intel_gpu.so.1":
        return fine(f"{driver.library} is there")
    if not case.facts.is_live:
        return unknown("nothing tells whether the driver's library is there")
    message = "Intel's compute library libze_intel_gpu.so.1 is not found: torch sees no GPU without it."
    fix = (
        "sudo apt install libze-intel-gpu1 libze1 intel-opencl-icd (Fedora: sudo dnf install "
        "intel-level-zero oneapi-level-zero)"
    )
    return broken(make_finding("driver-library-missing", case.subject, message, fix))


def _is_proven(case: Case) -> bool:
    """Whether torch has used the card: libraries may lie in folders that nobody thought of."""
    return bool(case.card.usable and case.card.torch_device)


def check_runtime(case: Case) -> Checked:
    driver, card = case.driver, case.card
    if card.torch_device and card.usable:
        return fine(f"torch started it as {card.torch_device}")
    if driver and driver.compute_error:
        message = f"The card's runtime does not start: it says {driver.compute_error}."
        return broken(
            make_finding(
                "cuda-does-not-initialise",
                case.subject,
                message,
                f"{_SAYS_WHY}; then restart the machine",
            )
        )
    return unknown("the runtime was not started")
