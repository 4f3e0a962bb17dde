"""Devices as torch's backends give them; a stand-in for a backend's module where this machine has no such device."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from probes.microtrain.devices import read_devices, read_kind


def backend(*devices: Any, architectures: tuple[str, ...] = ()) -> Any:
    def properties(index: int) -> Any:
        if isinstance(devices[index], Exception):
            raise devices[index]
        return SimpleNamespace(**devices[index])

    return SimpleNamespace(
        device_count=lambda: len(devices),
        get_device_properties=properties,
        get_arch_list=lambda: list(architectures),
    )


NVIDIA = {
    "name": "NVIDIA A100", "major": 8, "minor": 0, "total_memory": 7, "uuid": "8932f937-d72c",
    "pci_bus_id": 0xC1, "pci_device_id": 0, "pci_domain_id": 1,
}  # fmt: skip


def test_a_cuda_device_tells_who_and_where_it_is() -> None:
    [row] = read_kind("cuda", backend(NVIDIA, architectures=("sm_80",)))
    assert (row["device"], row["uuid"], row["pci_address"]) == ("cuda:0", "GPU-8932f937-d72c", "0001:c1:00.0")
    assert (row["capability"], row["architectures"], row["gfx_target"]) == ("8.0", ["sm_80"], None)
    assert row["memory_total_bytes"] == 7


def test_a_rocm_device_tells_its_target_without_its_features() -> None:
    [row] = read_kind("cuda", backend(NVIDIA | {"gcnArchName": "gfx90a:sramecc+:xnack-"}, architectures=("gfx90a",)))
    assert (row["gfx_target"], row["architectures"]) == ("gfx90a", ["gfx90a"])


def test_an_xpu_device_has_a_uuid_and_no_compute_capability() -> None:
    [row] = read_kind(
        "xpu", backend({"name": "Arc", "total_memory": 16, "uuid": bytes.fromhex("8680a056" + "00" * 12)})
    )
    assert (row["device"], row["uuid"]) == ("xpu:0", "GPU-8680a056" + "00" * 12)
    assert (row["capability"], row["architectures"], row["pci_address"]) == (None, None, None)


@pytest.mark.parametrize("kind", [RuntimeError, torch.cuda.DeferredCudaCallError])
def test_one_device_that_answers_no_keeps_its_place(kind: type[Exception]) -> None:
    """torch asks all of them as it starts, and wraps what one of them answers."""
    rows = read_kind("cuda", backend(NVIDIA, kind("CUDA error: unknown error"), NVIDIA))
    assert [row["device"] for row in rows] == ["cuda:0", "cuda:1", "cuda:2"]
    assert "unknown error" in rows[1]["why_not"]
    assert rows[1]["name"] is None


@pytest.mark.parametrize("kind", [RuntimeError, UserWarning])  # where warnings are errors
def test_a_backend_that_cannot_count_has_no_devices(kind: type[Exception]) -> None:
    def fail() -> int:
        raise kind("no driver")

    assert read_kind("cuda", SimpleNamespace(device_count=fail)) == []


def test_this_machines_devices_are_those_that_torch_has() -> None:
    count = torch.cuda.device_count() + torch.xpu.device_count() + torch.backends.mps.is_available()
    assert len(read_devices()) == count
