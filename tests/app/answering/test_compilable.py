"""What torch.compile was measured to gain is told only where it can compile."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from app.advisor import Request
from app.answering import compilable
from app.service import Crosspoint
from probes.compilers import why_not_compile
from probes.workload.description import Workload
from probes.workload.models import parse_model
from tests.app.advisor.build import ONE, a_measurement
from tests.app.advisor.machine import GPU, a_profile
from tests.app.lab.programs import serving
from tests.app.opened import with_crosspoint

COMPILED = replace(ONE, compiled=True)
WORKLOAD = Workload(parse_model("iris-mlp"), 8)
REQUEST = Request(WORKLOAD, devices=("cpu",), precision="fp32")

pytestmark = pytest.mark.usefixtures("own_lock")


@pytest.mark.skipif(why_not_compile() is not None, reason=str(why_not_compile()))
def test_a_kept_gain_of_compiling_is_told_only_while_there_is_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a node without one that shares its store with a node that has one."""
    plain = a_measurement(ONE, 8, 0.1)
    gain = a_measurement(COMPILED, 8, 0.05, control=plain.step, startup_seconds=20.0)

    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        version = survey.software.torch.version if survey.software.torch else None
        await crosspoint.store.keep_trace(WORKLOAD, version or "unknown", a_profile().networks[0].trace)
        await crosspoint.store.keep_measurements(survey.fingerprint, WORKLOAD, [plain, gain])
        assert (await crosspoint.recommend(REQUEST)).recommended == COMPILED
        monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
        found = await crosspoint.recommend(REQUEST)
        assert found.recommended == ONE
        assert "torch.compile" not in str(found.to_json())
        monkeypatch.delenv("CXX")
        assert (await crosspoint.recommend(REQUEST)).recommended == COMPILED

    with_crosspoint(tmp_path, use, serving("os._exit(9)"))


def test_what_compiling_gained_on_another_machine_is_told_wherever_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = a_measurement(ONE, 8, 0.1)
    gain = a_measurement(COMPILED, 8, 0.05, control=plain.step, startup_seconds=20.0)
    monkeypatch.setattr(compilable, "why_not_compile", lambda _device: "There is no compiler here.")

    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        version = survey.software.torch.version if survey.software.torch else None
        await crosspoint.store.keep_profile(a_profile((ONE,), fingerprint="elsewhere"))
        await crosspoint.store.keep_trace(WORKLOAD, version or "unknown", a_profile().networks[0].trace)
        for fingerprint in (survey.fingerprint, "elsewhere"):
            await crosspoint.store.keep_measurements(fingerprint, WORKLOAD, [plain, gain])
        assert (await crosspoint.recommend(REQUEST)).recommended == ONE
        assert (await crosspoint.recommend(replace(REQUEST, profile="made-up"))).recommended == COMPILED

    with_crosspoint(tmp_path, use, serving("os._exit(9)"))


def test_what_lacks_for_a_device_takes_nothing_from_the_cpu_s_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    on_cpu, on_card = (
        a_measurement(replace(plan, compiled=True), 8, 0.05, startup_seconds=20.0) for plan in (ONE, GPU)
    )
    plain = a_measurement(GPU, 8, 0.1)
    for lacking, kept in (("cuda:0", [plain, on_cpu]), ("cpu", [plain, on_card])):
        why = {lacking: "There is no compiler here."}
        monkeypatch.setattr(compilable, "why_not_compile", why.get)
        assert asyncio.run(compilable.without_uncompilable([plain, on_cpu, on_card])) == kept
