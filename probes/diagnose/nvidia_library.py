"""The middle links of an NVIDIA card's chain: the driver's library, and CUDA's initialisation."""

from __future__ import annotations

from probes.diagnose.codes import make_finding
from probes.diagnose.links import Case, Checked, broken, fine, unknown
from probes.diagnose.nvidia_kernel import access_lost, count_told, is_told, no_permission, not_given
from probes.diagnose.passing_in import explain_passing_in
from probes.diagnose.visibility import may_be_hidden
from probes.gpu.nvml.processes import is_closed_by_mode
from probes.hardware import DeviceFile, Finding, Outcome

_FAILED_TO_ANSWER = (Outcome.TIMEOUT, Outcome.FAILED)
_RELOAD = (
    "sudo reboot, or with no program on the GPU: sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia "
    "&& sudo modprobe nvidia"
)
# What to do about each of CUDA's errors at initialisation (CUDA Driver API, CUresult); others get the general advice.
_CUDA_ADVICE = {
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": (
        "a compatibility package (cuda-compat) is loaded that only data-centre cards support",
        "Take /usr/local/cuda/compat out of LD_LIBRARY_PATH: export LD_LIBRARY_PATH=$(echo $LD_LIBRARY_PATH | "
        "tr ':' '\\n' | grep -v compat | paste -sd:)",
    ),
    "CUDA_ERROR_UNKNOWN": (
        "most often the module nvidia_uvm lost its state when the machine slept, or may not be loaded",
        "sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm",
    ),
    "CUDA_ERROR_STUB_LIBRARY": (
        "a stub of libcuda.so, made for linking only, is found before the driver's",
        "Take the folder that ends in /stubs out of LD_LIBRARY_PATH, then try again.",
    ),
    "CUDA_ERROR_DEVICE_UNAVAILABLE": (
        "another program holds the card for itself alone, or it is in compute mode prohibited",
        "nvidia-smi -q -d COMPUTE; then sudo nvidia-smi -c DEFAULT",
    ),
    "CUDA_ERROR_OPERATING_SYSTEM": (
        "the operating system refused the driver a call, as when memory may not be locked or a device file is missing",
        "sudo nvidia-modprobe -u -c 0; in a container: docker run --gpus all --ulimit memlock=-1 …",
    ),
}
_NOT_READY = "CUDA_ERROR_SYSTEM_NOT_READY"
_CUDA_GENERALLY = ("", "nvidia-smi; sudo dmesg | grep -i -e nvrm -e xid | tail; then restart the machine")


def check_library(case: Case) -> Checked:
    driver = case.driver
    error = driver.library_error if driver else None
    if error is not None and not is_told(case):
        return broken(_library_failed(case, error))
    if driver and _versions_differ(case):
        return broken(_versions(case, driver.kernel_module_version, driver.library_version))
    if is_told(case):
        return fine(
            f"NVML {driver.library_version if driver and driver.library_version else ''} answers".replace("  ", " ")
        )
    return _check_untold(case)


def _versions_differ(case: Case) -> bool:
    driver = case.driver
    if driver is None or is_told(case):
        return False
    kernel, library = driver.kernel_module_version, driver.library_version
    return kernel is not None and library is not None and kernel != library


def _check_untold(case: Case) -> Checked:
    """The library is no reason, and still the card is not told of."""
    report = case.facts.probes.get("nvidia")
    if not case.facts.is_live or report is None:
        library = case.driver.library if case.driver else None
        return fine(f"{library} is there") if library else unknown("nothing tells whether the driver's library works")
    if report.outcome in _FAILED_TO_ANSWER:
        return broken(_silent(case, report.reason))
    if report.outcome is Outcome.OK:
        return _left_out(case)
    if report.outcome is Outcome.ABSENT:
        return broken(_library_missing(case))
    return unknown(report.reason or "the driver's library was not asked")


def _left_out(case: Case) -> Checked:
    told = count_told(case.facts)
    if case.facts.container is not None and not told:
        message = f"NVIDIA's driver answers in this container ({case.facts.container}) and has no card for it."
        fix = explain_passing_in("NVIDIA", case.facts.container)
        return broken(make_finding("container-without-gpu", case.subject, message, fix))
    if case.facts.container is not None:
        return broken(not_given(case, told))
    message = (
        f"NVIDIA's driver works and does not tell of the card at {case.card.pci_address}: this driver does not support "
        "it (too old or too new a card, or one that needs the other kind of kernel module), or the card "
        "failed to start."
    )
    fix = "sudo dmesg | grep -i nvrm | tail: it names the driver branch that the card needs; install that one."
    return broken(make_finding("gpu-ignored-by-driver", case.subject, message, fix))


def _library_failed(case: Case, error: str) -> Finding:
    in_container = case.facts.container is not None
    driver = case.driver
    if error.endswith("LIB_RM_VERSION_MISMATCH") and driver:
        return _versions(case, driver.kernel_module_version, driver.library_version)
    if error.endswith("LIBRARY_NOT_FOUND"):
        return _library_missing(case)
    if error.endswith("NO_PERMISSION"):
        return no_permission(case, DeviceFile("/dev/nvidiactl"), "")
    if error.endswith("_UNKNOWN") and in_container:
        return access_lost(case, "NVML says “Unknown Error” though the device files are here")
    if error.endswith("DRIVER_NOT_LOADED"):
        message = "NVIDIA's library is here and does not reach the kernel module (NVML_ERROR_DRIVER_NOT_LOADED)."
        return make_finding(
            "gpu-without-driver",
            case.subject,
            message,
            explain_passing_in("NVIDIA", case.facts.container)
            if in_container
            else "sudo modprobe nvidia && nvidia-smi",
        )
    message = f"NVIDIA's management library does not start: it says {error}."
    return make_finding("driver-library-fails", case.subject, message, _CUDA_GENERALLY[1])


def _versions(case: Case, kernel: str | None, library: str | None) -> Finding:
    message = (
        f"NVIDIA's kernel module is version {kernel or 'unknown'} and its library is version {library or 'another'}: "
        "the driver was updated and the old module is still loaded, so nothing can use the GPU."
    )
    fix = _RELOAD
    if case.facts.container is not None:
        fix = "Take the libnvidia-* files out of the image, so that the host's are used; else restart the host."
    return make_finding("driver-versions-differ", case.subject, message, fix)


def _library_missing(case: Case) -> Finding:
    if case.facts.container is not None:
        message = "The device files are in this container, and NVIDIA's libraries (libnvidia-ml.so.1) are not."
        return make_finding(
            "container-without-gpu", case.subject, message, explain_passing_in("NVIDIA", case.facts.container)
        )
    message = "NVIDIA's kernel module is loaded, and its library libnvidia-ml.so.1 is not found."
    fix = (
        "Install the libraries of the same version: sudo apt install nvidia-utils-$(cut -d. -f1 "
        "/sys/module/nvidia/version)"
    )
    return make_finding("driver-library-missing", case.subject, message, fix)


def _silent(case: Case, reason: str | None) -> Finding:
    message = f"NVIDIA's driver does not answer: {reason or 'it said nothing'}."
    fix = "sudo dmesg | grep -i -e nvrm -e xid | tail; if nvidia-smi hangs too, restart the machine."
    return make_finding("driver-does-not-answer", case.subject, message, fix)


def check_cuda(case: Case) -> Checked:
    driver, card = case.driver, case.card
    if card.mig_mode and not any(part.parent_id == card.id for part in case.facts.accelerators):
        return broken(_no_instances(case))
    if card.usable is False and (card.why_not or "").startswith("CUDA could not be started"):
        message = f"torch finds this card, and {card.why_not}."
        return broken(make_finding("cuda-does-not-initialise", case.subject, message, _CUDA_GENERALLY[1]))
    if is_closed_by_mode(card):
        fix = _CUDA_ADVICE["CUDA_ERROR_DEVICE_UNAVAILABLE"][1]
        message = f"CUDA shows this card, and nobody may begin to compute on it: {card.why_not}."
        return broken(make_finding("cuda-does-not-initialise", case.subject, message, fix))
    if driver and driver.compute_error is None and driver.compute_devices:
        return fine(f"CUDA shows {driver.compute_devices} device{'' if driver.compute_devices == 1 else 's'}")
    if card.torch_device and card.usable:
        return fine(f"torch started CUDA on it as {card.torch_device}")
    if driver and driver.compute_error:
        return _check_error(case, driver.compute_error)
    if driver and driver.fabric_manager in ("stopped", "absent"):
        return broken(_no_fabric_manager(case, driver.fabric_manager))
    return _check_report(case)


def _check_report(case: Case) -> Checked:
    """CUDA named no error: was it asked, and did it answer?"""
    report, driver = case.facts.probes.get("cuda"), case.driver
    if report is not None and report.outcome in _FAILED_TO_ANSWER:
        message = f"CUDA does not start: {report.reason or 'it said nothing'}."
        return broken(make_finding("cuda-does-not-initialise", case.subject, message, _CUDA_GENERALLY[1]))
    if report is not None and report.outcome is Outcome.ABSENT and driver and driver.kernel_module_version:
        return broken(_no_libcuda(case))
    return unknown("CUDA was not asked")


def _no_libcuda(case: Case) -> Finding:
    if case.facts.container is not None:
        message = "This container was given NVIDIA's management library and not CUDA's own (libcuda.so.1)."
        fix = "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility …"
    else:
        message = "NVIDIA's kernel module is loaded, and CUDA's part of the driver, libcuda.so.1, is not found."
        fix = "sudo apt install libnvidia-compute-$(cut -d. -f1 /sys/module/nvidia/version) (Debian: libcuda1)"
    return make_finding("driver-library-missing", case.subject, message, fix)


def _check_error(case: Case, error: str) -> Checked:
    driver = case.driver
    if error == "CUDA_ERROR_NO_DEVICE" and may_be_hidden(case):
        return unknown("CUDA shows no device, as the environment tells it to; see below")
    if error == "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH":
        return broken(_versions(case, driver.kernel_module_version if driver else None, None))
    state = driver.fabric_manager if driver else None
    if error == _NOT_READY or (error not in _CUDA_ADVICE and state in ("stopped", "absent")):
        return broken(_no_fabric_manager(case, state, error))
    meaning, fix = _CUDA_ADVICE.get(error, _CUDA_GENERALLY)
    message = f"CUDA does not start: cuInit says {error}" + (f"; {meaning}." if meaning else ".")
    return broken(make_finding("cuda-does-not-initialise", case.subject, message, fix))


def _no_fabric_manager(case: Case, state: str | None, error: str | None = None) -> Finding:
    """error: of CUDA, where it was asked."""
    runs = state == "running"
    what = "runs and has not set them up, as where its version is not the driver's" if runs else state or "not ready"
    message = (
        "The cards of this machine are joined by NVSwitch, and the service that sets the switches up "
        f"{what if runs else f'is {what}'}: until it has, CUDA starts on none of them{f' ({error})' if error else ''}."
    )
    fix = "sudo systemctl enable --now nvidia-fabricmanager"
    if runs:
        fix = (
            "journalctl -u nvidia-fabricmanager says why; it has to be of exactly the driver's version (nvidia-smi "
            "shows it)"
        )
    elif state == "absent":
        fix = "Install nvidia-fabricmanager in exactly the driver's version (nvidia-smi shows it), then: " + fix
    return make_finding("fabric-manager-missing", case.subject, message, fix)


def _no_instances(case: Case) -> Finding:
    message = "MIG is on and the card is split into no instance: CUDA has no device to show."
    fix = (
        f"sudo nvidia-smi mig -i {case.card.pci_address or 0} -cgi 0 -C, or switch MIG off: sudo "
        f"nvidia-smi -i {case.card.pci_address or 0} -mig 0"
    )
    return make_finding("mig-without-instances", case.subject, message, fix)
