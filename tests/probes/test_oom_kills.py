from pathlib import Path

import pytest

from probes.oom_kills import read_oom_kills
from probes.reading import Root
from tests.probes.machines import write_machine


@pytest.mark.parametrize(
    ("text", "kills"), [("oom_kill_disable 1\noom_kill 17\nnuma_hit 3\n", 17), ("pgfault 5\n", None), (None, None)]
)
def test_the_kernel_tells_how_many_it_killed_for_want_of_memory(
    tmp_path: Path, text: str | None, kills: int | None
) -> None:
    machine = write_machine(tmp_path, {} if text is None else {"proc/vmstat": text})
    assert read_oom_kills(Root(machine)) == kills
