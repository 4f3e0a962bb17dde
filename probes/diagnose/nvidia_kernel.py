"""The lower links of an NVIDIA card's chain: the bus, the kernel module, the device files."""

from __future__ import annotations

import re

from probes.diagnose.codes import make_finding
from probes.diagnose.facts import Facts
from probes.diagnose.links import Case, Checked, broken, fine, unknown
from probes.diagnose.passing_in import explain_passing_in
from probes.gpu.driver import FREE_NVIDIA_DRIVERS, VIRTUAL_MACHINE_DRIVERS
from probes.gpu.nvml.asking import NO_ACCESS
from probes.hardware import DeviceFile, Finding

INSTALL_DRIVER = (
    "Install NVIDIA's driver and restart, then nvidia-smi must list the card: sudo ubuntu-drivers install (Ubuntu), "
    "sudo dnf install akmod-nvidia (Fedora with RPM Fusion), else https://www.nvidia.com/drivers"
)
_FALLEN_OFF = 79  # XID: the GPU does not answer on the bus any more (docs.nvidia.com/deploy/xid-errors)
_FAILED = r"cannot reach|must be reset"  # NVML's errors but for a lack of permission (probes.gpu.nvml.asking)


def is_told(case: Case) -> bool:
    """Whether NVIDIA's driver tells of this card: it then has the driver's own id or version."""
    has_its_word = case.card.id.startswith(("GPU-", "MIG-")) or case.card.driver_version is not None
    return has_its_word and not is_refused(case)


def is_lost(case: Case) -> bool:
    """The kernel's log outlives a reset: a card that tells its memory again is not lost any more."""
    answers = case.card.memory_total_bytes is not None
    fallen_off = any(xid.code == _FALLEN_OFF for xid in case.card.xids or ()) and not answers
    return fallen_off or re.search(rf"\blost\b|{_FAILED}", case.card.why_not or "") is not None


def is_refused(case: Case) -> bool:
    """Whether the driver works on this card for others, and not for this process."""
    return case.card.why_not == NO_ACCESS


def check_bus(case: Case) -> Checked:
    if is_lost(case):
        return broken(
            make_finding(
                "gpu-lost",
                case.subject,
                *_describe_loss(case.card.why_not),
            )
        )
    if case.card.pci_address:
        return fine(f"it is on the PCI bus at {case.card.pci_address}")
    return fine("the driver tells of it") if is_told(case) else unknown("no PCI address is known of it")


def _describe_loss(why: str | None) -> tuple[str, str]:
    """What happened, and what to do."""
    log = "sudo dmesg | grep -i -e xid -e nvrm says more"
    if why is not None and re.search(_FAILED, why) and not re.search(r"\blost\b", why):
        fix = f"Restart the machine; {log}. If it stays so, check the card's power cables and its seat."
        if re.search("must be reset|requires a reset", why):  # our words, and NVML's own
            fix = f"Reset the card (sudo nvidia-smi --gpu-reset) or restart the machine; {log}."
        elif "power" in why.lower():
            fix = f"Check the card's power cables and its seat, then restart the machine; {log}."
        return f"NVIDIA's driver cannot use this card: {why}.", fix
    what = "The driver lost this card: it does not answer on the bus any more"
    what = f"{what} ({why})." if why else f"{what}: Xid 79 is in the kernel's log."
    return what, (
        "sudo dmesg | grep -i xid; then restart the machine. If it comes back, check the card's power cables, "
        "its seat and its temperature."
    )


def check_module(case: Case) -> Checked:
    driver, modules = case.driver, case.driver.kernel_modules if case.driver else None
    if case.card.kernel_driver in VIRTUAL_MACHINE_DRIVERS:
        return broken(_reserved(case))
    if is_told(case):
        return fine(f"NVIDIA's driver {case.card.driver_version or ''} answers for it".replace("  ", " "))
    if case.card.kernel_driver in FREE_NVIDIA_DRIVERS or _only_free_driver(case):
        return broken(_nouveau(case))
    version = case.facts.software.nvidia_driver or (driver.kernel_module_version if driver else None)
    if version or case.card.kernel_driver == "nvidia" or {"nvidia", "nvgpu"} & set(modules or ()):
        return fine(f"NVIDIA's kernel module {version or ''} is loaded".replace("  ", " "))
    if driver and any(file.path == "/dev/dxg" for file in driver.device_files or ()):
        return fine("Windows's driver is reached through /dev/dxg")
    if modules is None and not case.facts.is_live:
        return unknown("the capture does not tell which kernel modules were loaded")
    if case.card.pci_address is None:
        return unknown("no module of NVIDIA's is listed")
    return broken(_no_driver(case))


def _only_free_driver(case: Case) -> bool:
    modules = set((case.driver.kernel_modules if case.driver else None) or ())
    return bool(modules & set(FREE_NVIDIA_DRIVERS)) and "nvidia" not in modules and case.card.kernel_driver is None


def _reserved(case: Case) -> Finding:
    return make_finding(
        "gpu-reserved-for-virtual-machine",
        case.subject,
        f"The card at {case.card.pci_address} is bound to {case.card.kernel_driver}: it is set aside for a virtual "
        "machine, so no program here can use it.",
        f"To give it back: echo {case.card.pci_address} | sudo tee "
        f"/sys/bus/pci/drivers/{case.card.kernel_driver}/unbind "
        "&& sudo modprobe nvidia; for good, take its ids out of vfio-pci.ids= on the kernel's command line.",
    )


def _nouveau(case: Case) -> Finding:
    name = case.card.kernel_driver or "nouveau"
    return make_finding(
        "nouveau-instead-of-nvidia",
        case.subject,
        f"The card at {case.card.pci_address} is run by {name}, the kernel's own display driver; CUDA needs NVIDIA's.",
        f"{INSTALL_DRIVER} (its installer keeps {name} from loading; Secure Boot asks for its key once).",
    )


def _no_driver(case: Case) -> Finding:
    return make_finding(
        "gpu-without-driver",
        case.subject,
        f"There is an NVIDIA card at {case.card.pci_address}, and no NVIDIA driver is loaded for it.",
        INSTALL_DRIVER
        if case.facts.container is None
        else f"{INSTALL_DRIVER} It belongs on the host, not into the container.",
    )


def check_device_files(case: Case) -> Checked:
    files = case.driver.device_files if case.driver else None
    if files is None:
        return fine("the driver answers") if is_told(case) else unknown("nothing tells which device files there are")
    refused = [file for file in files if file.readable is False or file.writable is False]
    if is_refused(case) or (refused and not is_told(case)):
        told = count_told(case.facts)
        return broken(not_given(case, told) if told else _refused(case, refused))
    names = {file.path.rsplit("/", 1)[-1] for file in files}
    if is_told(case) or "dxg" in names or ("nvidiactl" in names and any(name[6:].isdigit() for name in names)):
        return fine(f"{len(files)} device files are there" if files else "the driver answers")
    return broken(_missing(case, names)) if case.card.pci_address else unknown("no device files of NVIDIA's are here")


def _missing(case: Case, names: set[str]) -> Finding:
    wanted = "/dev/nvidiactl and /dev/nvidia0"
    if case.facts.container is not None:
        return make_finding(
            "container-without-gpu",
            case.subject,
            f"This container ({case.facts.container}) was started without its GPU: the host's driver is loaded "
            f"and the card is on the bus, but {wanted} are not in the container.",
            explain_passing_in("NVIDIA", case.facts.container),
        )
    return make_finding(
        "device-files-missing",
        case.subject,
        f"NVIDIA's kernel module is loaded, but {wanted} do not exist"
        + (f" (only {', '.join(sorted(names))})." if names else "."),
        "sudo nvidia-modprobe -c 0 -u && sudo nvidia-smi",
    )


def count_told(facts: Facts) -> int:
    """NVIDIA's cards that its driver tells this process of."""
    told = [card.id for card in facts.accelerators if card.vendor == "NVIDIA"]  # AMD's ids begin so, too
    return sum(name.startswith("GPU-") for name in told)


def not_given(case: Case, others: int) -> Finding:
    """others: cards of the vendor that this process has; a job, a service or a container has its share of them."""
    has = f"which has {others} other card{'' if others == 1 else 's'}"
    container = case.facts.container
    if container is not None:
        message = f"This card is on the host's bus and was not given to this container ({container}), {has}."
        fix = explain_passing_in(case.card.vendor, container)
    else:
        message = f"This card was not given to this process, {has}: its device file is refused."
        fix = (
            f"Where it is wanted too, ask for it where the process is started (Slurm: --gpus={others + 1}; a systemd "
            "unit: DeviceAllow=); who may open device files shows ls -l /dev/nvidia* /dev/dri"
        )
    return make_finding("gpu-not-in-container", case.subject, message, fix)


def _refused(case: Case, refused: list[DeviceFile]) -> Finding:
    if not refused:  # NVML alone says so, and not of which file
        return _kept_away(case)
    first = refused[0]
    if any(file.error == "EPERM" for file in refused):
        return access_lost(case, f"{first.path} exists and its permissions allow this user, yet the kernel refuses it")
    return no_permission(case, first, "sudo usermod -aG {group} $USER, then log in again")


def _kept_away(case: Case) -> Finding:
    container = case.facts.container
    fix = "ls -l /dev/nvidia* shows who may open its file; in a batch job ask for the card (Slurm: --gpus=1)"
    return make_finding(
        "no-permission-on-device-files",
        case.subject,
        "NVIDIA's driver does not let this process use this card: its device file is refused.",
        fix if container is None else explain_passing_in("NVIDIA", container),
    )


def access_lost(case: Case, what: str) -> Finding:
    if case.facts.container is None:
        return make_finding(
            "gpu-access-lost",
            case.subject,
            f"{what}: this process was not given this device, as in a batch job that asked for none.",
            "Ask for it where the process is started: Slurm's --gpus=1, a systemd unit's DeviceAllow=, then start it "
            "again.",
        )
    return make_finding(
        "gpu-access-lost",
        case.subject,
        f"{what}: the container was not given this device, or lost it when systemd reloaded its units.",
        "Restart the container. To keep it from happening again: sudo nvidia-ctk system create-dev-char-symlinks "
        "--create-all on the host, or start it with --device=/dev/nvidiactl --device=/dev/nvidia-uvm "
        "--device=/dev/nvidia0",
    )


def no_permission(case: Case, file: DeviceFile, advice: str) -> Finding:
    group = file.group if file.group not in (None, "root", "0") else None
    fix = advice.format(group=group) if group else "sudo chmod a+rw " + re.sub(r"\d+$", "*", file.path)
    if case.facts.container is not None and group:
        fix = f"Start the container with --group-add {group} (its number on the host, where the names differ)"
    return make_finding(
        "no-permission-on-device-files",
        case.subject,
        f"This user may not use {file.path}" + (f"; members of the group {group} may." if group else "."),
        fix,
    )
