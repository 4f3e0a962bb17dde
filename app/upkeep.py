"""What the service does by itself: the first survey, learning what torch sees, and calibrating."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from app.advisor.crowding import crowd_of
from app.advisor.like_cards import devices_to_calibrate
from app.advisor.plans import must_ask_torch
from app.advisor.time_model.pooled import LOOKED_AT, POOLED
from app.advisor.time_model.predicted import fit_all_plans
from app.answering.survey_at_turn import CheckAtTurn
from app.errors import CrosspointError, LabError
from app.jobs import Jobs
from app.keeping import trouble_with
from app.lab.temporary_folder import remove_left_folders
from app.service import CALIBRATION_SECONDS, Crosspoint
from probes.hardware import Survey
from probes.profile import METHOD, Profile

log = logging.getLogger(__name__)

# How often it is looked whether the machine has changed (another driver, card, torch or limit): a survey takes 30 ms.
WATCH_SECONDS = 60.0
# A store that could not be opened is tried again; until then this is not ready. One that cannot be written (a full
# disk, another process holds its file) is tried again with each look, and what could not be saved then is. Within what
# a refused request is told to wait (app.errors.RETRY_SECONDS); a write tries by itself.
STORE_RETRY_SECONDS = 2.0
TROUBLE_SECONDS = 5.0
# A calibration that failed is tried again later, not at once: most likely it fails again.
RETRY_SECONDS = 600.0
# A shared machine is another one from minute to minute, and from hour to hour. It is calibrated again where nobody
# computes, until as many calibrations count as a profile is made of: so long after the first, the second and so on. A
# calibration that neighbours slowed shows only beside another one.
AGAIN_SECONDS = (300.0, 1800.0, 3600.0)
QUIET_UTILIZATION_PERCENT = 10.0
# The processes that trace take some 1 GB together (docs/estimates.md, Speed). Where less is free than this, they are
# not kept beyond ten minutes without work.
ROOMY_BYTES = 4 * 2**30
SCARCE_REST_SECONDS = 600.0
# How a calibration ends of which a card may be the fault: it hangs, or its driver ends the process. After so many in a
# row the next one is of the CPU alone, whose times would else be lost with each try.
BROKEN = frozenset({"too-slow", "killed", "failed"})
BROKEN_IN_A_ROW = 2
# Where less memory is free the kernel kills a calibration: its processes hold 476 MB before the first network, 743 with
# the largest, page cache apart (torch 2.13 for CPUs, two cores of a Xeon, 2026-11-29). Of networks it can spare some.
CALIBRATION_BYTES = 450 * 10**6


class _Needless(Exception):
    """Of a calibration: what it was to find out is known by now."""


class Upkeep:
    """Use `run` as one task; cancelling it ends what it does.

    jobs: of which it saves how they ended, where that could not be saved at once. calibration: `state` (unknown, off,
    waiting, running, done, failed) and a `reason`.
    """

    def __init__(self, crosspoint: Crosspoint, jobs: Jobs | None = None) -> None:
        self._crosspoint = crosspoint
        self._jobs = jobs
        self._not_before = 0.0
        self._unsaved_until = 0.0
        self._calibrated: list[float] = []  # when this did, in the loop's seconds, of the machine as it is
        self._broken = 0  # calibrations in a row that a card may have ended
        self._noted: tuple[object, ...] | None = None  # the last state that was kept, and after how many losses
        self._unfitted: Profile | None = None  # the last one that could not be fitted
        self.store_opened = False
        self.calibration: dict[str, Any] = {"state": "unknown", "reason": None}

    async def run(self) -> None:
        """For ever; a fault of ours ends it, and nothing else."""
        try:
            await self._run()
        except Exception:
            log.exception("The upkeep failed; nothing is calibrated any more.")
            reason = "crosspoint itself failed; its log says where. Nothing is calibrated before the next start."
            self.calibration = {"state": "failed", "reason": reason}

    async def _run(self) -> None:
        await self._crosspoint.survey()
        fingerprint = None
        while True:
            # Each time: what was killed with a service that was started again at once is too young for the first look.
            await asyncio.to_thread(remove_left_folders)
            self.store_opened = await trouble_with(self._crosspoint.store.open()) is None
            survey = await self._crosspoint.survey()
            is_new = survey.fingerprint not in (fingerprint, "")  # a survey that failed tells of no other machine
            if is_new:
                fingerprint, self._not_before = survey.fingerprint, 0.0
                self._calibrated, self._broken = [], 0
            if is_new or (self.store_opened and self._crosspoint.store.trouble is None):
                await self._note_state(survey)
                await self._save_unsaved()
            is_time = asyncio.get_running_loop().time() >= self._not_before
            if is_time:
                await self._learn_torch()
            await self._fit_known(survey)
            if is_time:
                await self._calibrate_if_due(survey)
            await self._rest(self._seconds_to_look())

    def _seconds_to_look(self) -> float:
        if not self.store_opened:
            return STORE_RETRY_SECONDS
        return WATCH_SECONDS if self._crosspoint.store.trouble is None else TROUBLE_SECONDS

    async def _note_state(self, survey: Survey) -> None:
        """Once in each file: one that took the place of a damaged or a removed one knows nothing of it."""
        state = (survey.fingerprint, self._crosspoint.store.losses)
        if survey.fingerprint and state != self._noted:
            is_noted = await trouble_with(self._crosspoint.note_state(survey)) is None
            self._noted = (survey.fingerprint, self._crosspoint.store.losses) if is_noted else None

    async def _save_unsaved(self) -> None:
        """Where a little can be written and a profile cannot, not with each look: each try is written to a log."""
        now = asyncio.get_running_loop().time()
        if now < self._unsaved_until:
            return
        had_trouble = self._crosspoint.store.trouble is not None
        await self._crosspoint.profiles.save_unsaved()
        if self._jobs is not None:
            await self._jobs.save_unsaved()
        if self._crosspoint.store.trouble is not None and not had_trouble:
            self._unsaved_until = now + WATCH_SECONDS

    async def _rest(self, seconds: float) -> None:
        """Until the next look. A profile that comes is looked at at once: its prices are fitted before anybody asks."""
        came = self._crosspoint.profiles.came
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await came.wait()
        came.clear()

    async def _learn_torch(self) -> None:
        """Ask a measuring process what torch sees, once for the cards and drivers that there are; it stays warm for the
        first trace. Later, where they change, not beside a measurement."""
        surveyor = self._crosspoint.surveyor
        if not self._crosspoint.is_here or not surveyor.doubts_torch:
            return
        if surveyor.has_heard_torch and self._crosspoint.lab.measuring:
            return
        was_known = surveyor.knows_torch
        try:
            is_new = await self._crosspoint.torch.learn()
        except CrosspointError as error:
            log.warning("Torch could not be asked what it sees: %s", error)
            if not surveyor.knows_torch:
                self._retry_later()
            return
        if is_new or not was_known:
            await self._prepare()

    async def _prepare(self) -> None:
        """Make the process that traces ready for the first config; without that the first one takes longer."""
        try:
            await self._crosspoint.lab.prepare(_rest_seconds(await self._crosspoint.survey()))
        except CrosspointError as error:
            log.warning("The first config will take longer to trace: %s", error)

    async def _calibrate_if_due(self, survey: Survey) -> None:
        if not (self._crosspoint.settings.calibrate_on_start and self._crosspoint.is_here):
            self.calibration = {
                "state": "off",
                "reason": "CROSSPOINT_CALIBRATE_ON_START is false, or a sysroot is set.",
            }
            return
        try:
            profile = await self._first_profile(survey)
            if profile is None:  # of whatever the machine is by then, the next look finds out
                self.calibration = {"state": "waiting", "reason": "What this machine is has changed, or is not known."}
                return
            if await self._is_due_again(survey, profile):
                await self._calibrate_again(profile.name)
        except CrosspointError as error:
            log.warning("The calibration failed: %s", error)
            self._retry_later()
            again = datetime.now(UTC) + timedelta(seconds=RETRY_SECONDS)
            reason = f"{error} It is tried again at {again:%Y-%m-%dT%H:%M:%SZ}."
            self.calibration = {"state": "failed", "reason": reason}
            return
        self.calibration = {"state": "done", "reason": None}

    async def _first_profile(self, survey: Survey) -> Profile | None:
        """This machine's, calibrated where there is none; None where the calibration was of another state of it than
        this survey tells of, or this survey knows no fingerprint. Raises LabError."""
        done = False
        while (profile := await self._crosspoint.profile(survey)) is None and survey.fingerprint and not done:
            done = await self._calibrate("quick", check=self._check_first)
            survey = await self._crosspoint.survey()
        if profile is None and done:
            self._retry_later()
        return profile

    async def _is_due_again(self, survey: Survey, profile: Profile) -> bool:
        """A profile from elsewhere is left as it is. Calibrations that do not count, as disturbed ones beside calm, are
        made up for, and those of before an update that changed how they measure; but not without end: neighbours may be
        here at any hour."""
        if self._crosspoint.lab.measuring or not is_quiet(survey) or not self._may_again():
            return False
        return await self._lacks_another(survey, profile)

    async def _lacks_another(self, survey: Survey, profile: Profile) -> bool:
        """Whoever made those that there are; and where they are of some devices alone."""
        profiles, key = self._crosspoint.profiles, (profile.name, profile.fingerprint)
        times, alike = await profiles.calibration_times(*key), await profiles.calibration_times(*key, METHOD)
        told = {point.plan.device for point in profile.points} | profile.like.keys()
        is_short = profile.calibrations < POOLED or profile.method < METHOD
        is_short = is_short or not told.issuperset(devices_to_calibrate(survey))
        is_short = is_short and len(times) > 0 and len(alike) < LOOKED_AT
        # One that was made in the future, by a clock that has been set since, is of no known age.
        return is_short and not any(0 <= time.time() - made < _rest_after(len(alike)) for made in times[:1])

    def _may_again(self) -> bool:
        """Whatever became of those before, which may have been neither saved nor taken into the profile."""
        count = len(self._calibrated)
        since = asyncio.get_running_loop().time() - _rest_after(count)
        return count < LOOKED_AT and all(made < since for made in self._calibrated[-1:])

    async def _calibrate_again(self, name: str) -> None:
        """In full: nobody waits for it, as for the first one. Where it gave way it is not begun anew at once, as where
        measurements come more often than it takes it would never be done. Raises LabError."""
        if not await self._calibrate("full", name, self._check_further):
            self._retry_later()

    async def _check_first(self, survey: Survey) -> None:
        """Whoever this gave way to, or waited for, may have calibrated. Raises _Needless."""
        if await self._crosspoint.profiles.of_machine(survey.fingerprint) is not None:
            raise _Needless

    async def _check_further(self, survey: Survey) -> None:
        """Raises _Needless."""
        profile = await self._crosspoint.profile(survey)
        if profile is not None and not await self._lacks_another(survey, profile):
            raise _Needless

    async def _calibrate(self, effort: str, name: str | None = None, check: CheckAtTurn | None = None) -> bool:
        """Calibrate, or give way to somebody who waits for a measurement: False. check: raises _Needless once its turn
        has come, where it need not be. Raises LabError."""
        self._check_calibratable(await self._crosspoint.survey())
        preempted = asyncio.Event()
        seconds = CALIBRATION_SECONDS[effort]
        ticket = self._crosspoint.lab.reserve(seconds, on_preempt=preempted.set)
        ticket.on_start = self._say_running
        self.calibration = {"state": "waiting", "reason": None}
        devices = ("cpu",) if self._broken >= BROKEN_IN_A_ROW else ()
        work = asyncio.create_task(
            self._crosspoint.calibrate(effort, devices=devices, name=name, ticket=ticket, by_itself=True, check=check)
        )
        waiter = asyncio.create_task(preempted.wait())
        try:
            await asyncio.wait([work, waiter], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()
            if not work.done():
                work.cancel()
                await asyncio.wait([work])
        if work.cancelled():
            return False
        try:
            work.result()
        except _Needless:
            return True
        except LabError as error:
            self._broken = self._broken + 1 if error.code in BROKEN else 0
            raise
        self._broken = 0
        self._calibrated.append(asyncio.get_running_loop().time())
        return True

    def _check_calibratable(self, survey: Survey) -> None:
        """Not while torch's word on a card cannot be had: the profile would be without that card, and be kept. Nor
        where the kernel would kill it for want of memory, and a container's with all that is in it. Raises LabError."""
        trouble, usable = self._crosspoint.torch.trouble, survey.memory.usable_bytes
        if trouble is not None and must_ask_torch(survey):
            raise LabError("failed", f"What torch sees is not known. {trouble}")
        if usable is not None and usable < CALIBRATION_BYTES:
            raise LabError(
                "out-of-memory",
                f"A calibration takes {CALIBRATION_BYTES / 1e6:.0f} MB of memory and more, and {usable / 1e6:.0f} MB "
                "are free here. Steps of your own model may still be measured (effort quick).",
            )

    async def _fit_known(self, survey: Survey) -> None:
        """The profile that answers for this machine, where there is one."""
        try:
            profile = await self._crosspoint.profile(survey)
        except CrosspointError:  # the store's trouble, which others tell
            return
        if profile is not None:
            await self._fit(profile)

    async def _fit(self, profile: Profile) -> None:
        """Before anybody asks, but not beside a measurement, which would take it for others'. Whatever stands in a
        profile from elsewhere, calibrating and the store's retries go on; it is logged once."""
        if self._crosspoint.lab.measuring:
            return
        try:
            await asyncio.to_thread(fit_all_plans, profile)
        except Exception:
            if profile != self._unfitted:
                self._unfitted = profile
                log.exception("This machine's profile could not be fitted.")

    def _say_running(self) -> None:
        self.calibration = {"state": "running", "reason": None}

    def _retry_later(self) -> None:
        self._not_before = asyncio.get_running_loop().time() + RETRY_SECONDS


def is_quiet(survey: Survey) -> bool:
    """Whether a calibration would disturb nobody, and nobody it: all usable cores are free, and no card computes."""
    crowd = crowd_of(survey)
    cores = crowd is not None and crowd.free is not None and crowd.free >= crowd.usable
    return cores and all((card.utilization_percent or 0) < QUIET_UTILIZATION_PERCENT for card in survey.accelerators)


def _rest_after(calibrations: int) -> float:
    """Seconds from the last of so many calibrations to the next."""
    return AGAIN_SECONDS[min(max(calibrations, 1), len(AGAIN_SECONDS)) - 1]


def _rest_seconds(survey: Survey) -> float | None:
    """How long the process that traces may stay without work; None: as long as the settings say."""
    free = survey.memory.usable_bytes
    return None if free is not None and free >= ROOMY_BYTES else SCARCE_REST_SECONDS
