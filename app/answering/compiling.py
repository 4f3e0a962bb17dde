"""What a process that compiles is told: its cache lies in a folder that goes when the process is done with."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.lab.temporary_folder import COMPILE, TemporaryFolder

# torch's own default at most (torch._inductor.config.decide_compile_threads).
MOST_COMPILERS = 32
# What is compiled for a CPU takes threads of the process that asks, each with a compiler of its own. Where Triton is
# installed torch starts processes beside, which compile for GPUs alone, and keeps them.
_NO_OTHER_PROCESSES = {"TORCH_WARM_POOL": "0"}


@contextmanager
def compiling_environment(usable_cores: int, *, on_cpu: bool = True) -> Iterator[dict[str, str]]:
    """Variables for a process; nothing that was compiled before is found, and nothing stays. Raises OSError where no
    folder can be made. torch keeps precompiled headers below TMPDIR, whatever its cache is; Triton's cache is torch's,
    unless the user named another. on_cpu: it compiles for the CPU.

    As many compilers run at once as in a user's process, whose price this is to be: torch has one for each CPU. But it
    does not see a cgroup's quota, beyond which more of them take memory and save no time.
    """
    compilers = {"TORCHINDUCTOR_COMPILE_THREADS": str(min(usable_cores, MOST_COMPILERS))}
    folder = TemporaryFolder.make(COMPILE)
    if folder is None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    try:
        of_triton = _NO_OTHER_PROCESSES if on_cpu else {"TRITON_CACHE_DIR": str(Path(folder.path, "triton"))}
        yield {**of_triton, **compilers, "TORCHINDUCTOR_CACHE_DIR": folder.path, "TMPDIR": folder.path}
    finally:
        folder.remove()
