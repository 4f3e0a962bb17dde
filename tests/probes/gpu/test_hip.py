"""HIP's own word, from a real child that loads a library with HIP's names, compiled here."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from probes.gpu.cuda import CudaDevice, CudaReading
from probes.gpu.driver import join_answers
from probes.gpu.hip import ask_hip, find_hip_library
from probes.gpu.nvml_process import NvidiaReading
from probes.gpu.torch_names import with_hip_facts
from probes.hardware import Accelerator, Driver, Outcome, Torch

PLENTY = 30.0
COMPILER = shutil.which("cc")
with_compiler = pytest.mark.skipif(
    COMPILER is None or find_hip_library({}) is not None, reason="no C compiler here, or a HIP of its own"
)
ROCM = Torch("2.13.0+rocm6.4", hip_version="6.4")
FIRST, SECOND = (Accelerator(f"GPU-{n}", vendor="AMD", pci_address=f"0000:c{n}:00.0") for n in (3, 4))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hip")
    source = Path(__file__).with_name("fake_libamdhip64.c")
    subprocess.run([COMPILER or "cc", "-shared", "-fPIC", "-o", folder / "libamdhip64.so", source], check=True)
    return folder


def ask(library: Path, **environment: str) -> CudaReading:
    return ask_hip(PLENTY, {**os.environ, "LD_LIBRARY_PATH": str(library), **environment})


@with_compiler
def test_hips_order_counts_and_not_the_buss(library: Path) -> None:
    reading = ask(library)
    assert (reading.outcome, reading.compute_devices) == (Outcome.OK, 2)
    assert [card.torch_device for card in with_hip_facts((FIRST, SECOND), reading, ROCM)] == ["cuda:1", "cuda:0"]


@with_compiler
@pytest.mark.parametrize(
    ("code", "outcome", "name"),
    [("100", Outcome.ABSENT, "hipErrorNoDevice"), ("999", Outcome.FAILED, "hipErrorUnknown")],
)
def test_an_error_is_told_by_its_name_and_is_every_cards_reason(
    library: Path, code: str, outcome: Outcome, name: str
) -> None:
    reading = ask(library, FAKE_HIP=code)
    assert (reading.outcome, reading.compute_error, reading.compute_devices) == (outcome, name, 0)
    [card] = with_hip_facts((FIRST,), reading, ROCM)
    assert card.usable is False
    assert name in (card.why_not or "")


def test_a_hidden_card_says_what_may_hide_it() -> None:
    reading = CudaReading(Outcome.OK, devices=(CudaDevice(pci_address=FIRST.pci_address),))
    cards = with_hip_facts((FIRST, SECOND), reading, ROCM)
    assert [card.torch_device for card in cards] == ["cuda:0", None]
    assert "HIP_VISIBLE_DEVICES" in (cards[1].why_not or "")


def test_a_torch_without_rocm_has_no_name_for_it() -> None:
    reading = CudaReading(Outcome.OK, devices=(CudaDevice(pci_address=FIRST.pci_address),))
    assert with_hip_facts((FIRST,), reading, Torch("2.13.0+cu130", "13.0")) == (FIRST,)
    assert with_hip_facts((FIRST,), CudaReading(Outcome.TIMEOUT), ROCM) == (FIRST,)


def test_what_hip_says_stands_in_the_drivers_row() -> None:
    reading = CudaReading(Outcome.ABSENT, compute_error="hipErrorNoDevice")
    [row] = join_answers((Driver("AMD"),), NvidiaReading(Outcome.ABSENT), None, (FIRST,), reading)
    assert (row.compute_error, row.compute_devices) == ("hipErrorNoDevice", 0)


def test_a_library_that_cannot_be_loaded_is_a_failure(tmp_path: Path) -> None:
    if find_hip_library({}) is not None:
        pytest.skip("this machine has a HIP of its own")
    (tmp_path / "libamdhip64.so").write_text("no library at all")
    reading = ask(tmp_path)
    assert reading.outcome is Outcome.FAILED
    assert "cannot load it" in (reading.reason or "")
