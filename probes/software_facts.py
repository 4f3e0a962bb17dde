"""The facts of the software that training rests on: Python, torch, and each vendor's driver.

Of the vocabulary of facts (probes.hardware), which is where to import them from.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Torch:
    """The installed torch, read without importing it into this process."""

    version: str | None = None
    """As torch writes it, as 2.9.0+cu128."""
    cuda_version: str | None = None
    """Of CUDA that it was built with; None: it is a build without."""
    cudnn_version: str | None = None
    """Of cuDNN that it uses; None: it has none, or only torch could tell."""
    cuda_available: bool | None = None
    """It can use a card by its CUDA interface, which ROCm's builds have, too; None: not asked yet."""
    device_count: int | None = None
    """How many such cards it lists; None: not asked yet."""
    current_device: int | None = None
    """The number of the one that it takes unless told otherwise; None: none, or not asked yet."""
    architectures: tuple[str, ...] = ()
    """Of cards that it has kernels for, as sm_90 or gfx1100; []: none, or not asked yet."""
    hip_version: str | None = None
    """Of a build for AMD's ROCm; None: it is none."""
    xpu_version: str | None = None
    """Of a build for Intel's GPUs; None: it is none."""


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """A file through which a driver is reached, and whether this process may."""

    path: str
    """As /dev/nvidia0."""
    readable: bool | None = None
    """This process may read it; None: a captured machine."""
    writable: bool | None = None
    """This process may write it; None: a captured machine."""
    error: str | None = None
    """EACCES: its permissions refuse this user; EPERM: a container's device rules do; None: nothing refuses, or nobody
    can tell what."""
    group: str | None = None
    """Whose members may open it, by name or number; None: no group may."""


@dataclass(frozen=True, slots=True)
class Driver:
    """A vendor's driver from the kernel upwards: what was found of each part, whether or not it works."""

    vendor: str
    """NVIDIA, AMD or Intel."""
    kernel_modules: tuple[str, ...] | None = None
    """Of this vendor's, those that are loaded: nvidia, nvidia_uvm, nouveau, amdgpu, i915, xe, …; None: a capture that
    does not tell."""
    kernel_module_version: str | None = None
    """Of the loaded module; None: it tells none."""
    library: str | None = None
    """The library that was found: libnvidia-ml.so.1, libamdhip64.so, …; None: none was."""
    library_version: str | None = None
    """Its own word, else what its file's name says."""
    device_files: tuple[DeviceFile, ...] | None = None
    """Through which the driver is reached; None: a capture without /dev."""
    library_error: str | None = None
    """Why NVIDIA's library (NVML) did not start, by its own name, as NVML_ERROR_LIB_RM_VERSION_MISMATCH; None: it did,
    or was not asked."""
    compute_error: str | None = None
    """Why CUDA (HIP) did not initialise, by its own name, as CUDA_ERROR_NO_DEVICE; None: it did, or was not asked."""
    compute_devices: int | None = None
    """How many devices CUDA (HIP) shows to this process; None: it was not asked, or did not answer."""
    fabric_manager: str | None = None
    """The service that NVSwitch machines need: running, stopped or absent; None: no NVSwitch, or it may be hidden."""


@dataclass(frozen=True, slots=True)
class Software:
    """What training rests on; None: not known."""

    python: str | None = None
    """Version of the Python that runs this; None: a captured machine."""
    torch: Torch | None = None
    """None: it is not installed."""
    nvidia_driver: str | None = None
    """Version of NVIDIA's kernel driver; None: it is not loaded."""
    cuda_driver_version: str | None = None
    """The newest CUDA that NVIDIA's driver supports, as 13.0."""
    drivers: tuple[Driver, ...] = ()
    """A row a vendor that has a card or a driver here."""
