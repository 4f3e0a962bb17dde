"""How each kind of container is given its cards."""

from __future__ import annotations

_NVIDIA = {
    "docker": "docker run --gpus all … (the host needs nvidia-container-toolkit)",
    "podman": "podman run --device nvidia.com/gpu=all … (once on the host: sudo nvidia-ctk cdi generate "
    "--output=/etc/cdi/nvidia.yaml)",
    "kubernetes": "Ask for it in the pod: resources: {limits: {nvidia.com/gpu: 1}} (the cluster needs "
    "NVIDIA's device plugin)",
    "lxc": "lxc config device add NAME gpu gpu && lxc config set NAME nvidia.runtime=true, on the host",
    "apptainer": "apptainer exec --nv …",
    "systemd-nspawn": "systemd-nspawn --bind=/dev/nvidia0 --bind=/dev/nvidiactl --bind=/dev/nvidia-uvm …, with the "
    "driver's libraries bound too",
}
_AMD = {
    "docker": "docker run --device=/dev/kfd --device=/dev/dri --group-add video --group-add render …",
    "podman": "podman run --device=/dev/kfd --device=/dev/dri --group-add keep-groups …",
    "kubernetes": "Ask for it in the pod: resources: {limits: {amd.com/gpu: 1}} (the cluster needs AMD's "
    "device plugin)",
    "lxc": "lxc config device add NAME gpu gpu, on the host",
    "apptainer": "apptainer exec --rocm …",
}
_INTEL = {
    "docker": "docker run --device=/dev/dri --group-add render …",
    "podman": "podman run --device=/dev/dri --group-add keep-groups …",
    "kubernetes": "Ask for it in the pod: resources: {limits: {gpu.intel.com/xe: 1}} (the cluster needs "
    "Intel's device plugin)",
    "lxc": "lxc config device add NAME gpu gpu, on the host",
    "apptainer": "apptainer exec --bind /dev/dri …",
}
_BY_VENDOR = {"NVIDIA": _NVIDIA, "AMD": _AMD, "Intel": _INTEL}


def explain_passing_in(vendor: str | None, container: str | None) -> str:
    """For a kind that has no way of its own here, Docker's."""
    ways = _BY_VENDOR.get(vendor or "", _NVIDIA)
    return ways.get(container or "docker", ways["docker"])
