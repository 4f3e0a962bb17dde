"""What went wrong in a job, as a code of docs/protocol.md and a sentence for people."""

from __future__ import annotations

import re

import torch

from probes.microtrain.feeding import NoPinnedMemory
from probes.microtrain.step import UnsupportedWorkload
from probes.workload.description import InvalidModel

MAX_CAUSE_CHARACTERS = 200
_MOST_CUT = 40  # so that a word is not cut in two; of a longer one, as a mangled name, a part says more than nothing
_PATHS = re.compile(r"\S*[/\\]\S*")
_ADDRESSES = re.compile(r"(?: object)? at 0x[0-9a-fA-F]+")  # as Python shows an object; it is another in each run

# torch says these in plain RuntimeErrors. c10/core/impl/alloc_cpu.cpp; the C++ library; oneDNN through ideep, and CUDA;
# cuBLAS; cuDNN. The last two are of a card without room for a library's handle, at the first product or convolution;
# torch names no call of cuDNN's.
_HOST_MEMORY_WORDS = ("can't allocate memory", "not enough memory", "bad_alloc")
_MEMORY_WORDS = (
    *_HOST_MEMORY_WORDS,
    "out of memory",
    "alloc_failed",
    "cublas_status_not_initialized when calling `cublascreate",
    "cudnn_status_not_initialized",
)
_UNSUPPORTED_WORDS = (
    "not implemented for",
    "not supported",
    "unsupported",
    "no kernel image is available",
    "could not run",
    "not_supported",
)
HOST_RAN_OUT = (
    "The host's memory ran out, not the device's. A smaller batch may run, and so may this one with more of it free."
)

# torch.optim, of Adam, AdamW and RMSprop, and what to say of it.
_SPARSE = "support sparse gradients"
NO_SPARSE_GRADIENTS = (
    "This model has sparse gradients (embeddings with sparse=True), which this optimizer does not take. "
    "sgd and adagrad take them; with sparse=False every optimizer does."
)

# A primitive descriptor is oneDNN's choice of a kernel; where it has none for a data type on this processor, there is
# none to be had.
_NO_DESCRIPTOR = re.compile(
    r"could not create a primitive descriptor(?: for (?:the |an? )?(.+?) primitive)?", re.IGNORECASE
)

# What real numbers that meet a trace's tensors are refused with (torch._subclasses.fake_tensor).
_FAKE_WORDS = ("faketensor", "fake mode")
KEPT_FROM_A_TRACE = (
    "This model's code keeps tensors from one call for the next, as in a global or a dict, and has some from when it "
    "was traced, which have no numbers. Make them anew whenever the function is called, or keep them by "
    "functools.lru_cache, which is emptied between."
)


class Untraceable(RuntimeError):
    """This model's step cannot be traced; the message says why and what to do."""


class Failure(Exception):
    """A job ended without a result. The message is a sentence; code is one of docs/protocol.md."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def explain_failure(error: BaseException) -> Failure:
    """The same failure in words. A Failure is returned as it is."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, InvalidModel):
        return Failure("invalid-model", str(error))
    if isinstance(error, SystemExit):
        return Failure(
            "invalid-model",
            f"This model's code did not run to its end: {explain_exit(error)}. Its forward, its loss and its "
            "make_batch have to return.",
        )
    if isinstance(error, UnsupportedWorkload | Untraceable):
        return Failure("unsupported", str(error))
    if isinstance(error, NoPinnedMemory):
        return Failure("out-of-memory", str(error))
    if is_out_of_memory(error):
        return Failure(
            "out-of-memory", "Memory ran out. A smaller batch or a smaller model would fit; so would a larger device."
        )
    if isinstance(error, RuntimeError) and (without := _NO_DESCRIPTOR.search(str(error))):
        what = without[1] or "an operation of this model"
        return Failure(
            "unsupported",
            f"oneDNN, which computes for torch on CPUs, has no kernel for {what} in this precision on this processor. "
            "Another precision may run.",
        )
    if isinstance(error, RuntimeError) and _SPARSE in str(error):
        return Failure("unsupported", NO_SPARSE_GRADIENTS)
    if is_unsupported(error):
        return Failure("unsupported", f"torch cannot do this here: {first_line(error)}")
    return Failure("failed", f"The job failed unexpectedly ({type(error).__name__}): {first_line(error)}")


def explain_step_failure(error: BaseException, *, on_cpu: bool = True) -> Failure:
    """The same of a plan's step, which others outlive. on_cpu: what computes it. Where a device's step lacked memory of
    the host, that is no `out-of-memory`: it says nothing of what the step takes of the device's."""
    if not on_cpu and is_out_of_host_memory(error):
        return Failure("failed", str(error) if isinstance(error, NoPinnedMemory) else HOST_RAN_OUT)
    if is_kept_from_a_trace(error):
        return Failure("failed", KEPT_FROM_A_TRACE)
    failure = explain_failure(error)
    if failure.code in ("out-of-memory", "unsupported", "invalid-model") or error is failure:
        return failure
    return Failure("failed", f"The step failed ({type(error).__name__}): {first_line(error)}")


def explain_exit(error: SystemExit) -> str:
    """In words for a bracket, or after a colon: only a user's own code calls sys.exit."""
    if isinstance(error.code, str):
        return f"SystemExit: {first_line(error)}".rstrip(".")
    as_argparse = ", as argparse does where an argument is missing: it is called without any"
    return f"it ended Python (exit code {error.code or 0}){as_argparse if error.code == 2 else ''}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the host or on a device."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and _holds(error, _MEMORY_WORDS)


def is_out_of_host_memory(error: BaseException) -> bool:
    """Whether it was the host's memory, whatever computes. A device's is "out of memory", also where Thrust says it:
    "std::bad_alloc: cudaErrorMemoryAllocation: out of memory"."""
    if isinstance(error, MemoryError | NoPinnedMemory):
        return True
    of_host = isinstance(error, RuntimeError) and _holds(error, _HOST_MEMORY_WORDS)
    return of_host and not _holds(error, ("out of memory",))


def is_kept_from_a_trace(error: BaseException) -> bool:
    """Of a real step: whether it met tensors without numbers, which only a trace makes."""
    return isinstance(error, AssertionError) and _holds(error, _FAKE_WORDS)


def is_unsupported(error: BaseException) -> bool:
    """Whether torch has no kernel for this operation, data type or device."""
    return isinstance(error, NotImplementedError) or (
        isinstance(error, RuntimeError) and _holds(error, _UNSUPPORTED_WORDS)
    )


def first_line(error: BaseException) -> str:
    """The cause in one line of bounded length, without the paths of this machine and addresses in its memory."""
    lines = str(error).strip().splitlines()
    return _cut(_ADDRESSES.sub("", _PATHS.sub("…", lines[0]))) if lines else type(error).__name__


def _cut(text: str) -> str:
    """Within the bound, at a blank where one is near, and with an ellipsis where there was more."""
    if len(text) <= MAX_CAUSE_CHARACTERS:
        return text
    head, _, word = text[:MAX_CAUSE_CHARACTERS].rpartition(" ")
    return f"{head if head and len(word) < _MOST_CUT else text[: MAX_CAUSE_CHARACTERS - 1]}…"


def _holds(error: BaseException, words: tuple[str, ...]) -> bool:
    text = str(error).lower()
    return any(word in text for word in words)
