"""What went wrong, in a code and a sentence."""

import pytest
import torch

from probes.microtrain.failures import Failure, explain_failure, explain_step_failure
from probes.microtrain.feeding import NoPinnedMemory
from probes.microtrain.step import UnsupportedWorkload
from probes.workload.description import InvalidModel


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError(), "out-of-memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "out-of-memory"),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory"),
            "out-of-memory",
        ),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), "out-of-memory"),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
            "out-of-memory",
        ),
        (RuntimeError("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"), "out-of-memory"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasSgemm( handle, ...)`"), "failed"),
        (NoPinnedMemory("The host had no 8 MB of pinned memory."), "out-of-memory"),
        (RuntimeError("\"slow_conv2d_cpu\" not implemented for 'Half'"), "unsupported"),
        (RuntimeError("CUDA error: no kernel image is available for execution on the device"), "unsupported"),
        (NotImplementedError("Could not run 'aten::x' with arguments from the 'CPU' backend"), "unsupported"),
        (RuntimeError("could not create a primitive descriptor for a matmul primitive"), "unsupported"),
        (UnsupportedWorkload("Nothing to train."), "unsupported"),
        (InvalidModel("It is wrong."), "invalid-model"),
        (SystemExit(0), "invalid-model"),
        (SystemExit("no data"), "invalid-model"),
        (Failure("too-busy", "Later."), "too-busy"),
        (KeyError("x"), "failed"),
        (RuntimeError(""), "failed"),
    ],
)
def test_every_error_has_a_code_and_words(error: BaseException, code: str) -> None:
    failure = explain_failure(error)
    assert failure.code == code
    assert str(failure)
    assert "\n" not in str(failure)


def test_no_address_in_memory_is_told() -> None:
    """As Python shows an object, and a function."""
    said = str(explain_failure(KeyError(f"no rule for {object()} and {test_no_address_in_memory_is_told}")))
    assert "no rule for <object> and <function test_no_address_in_memory_is_told>" in said


def test_a_kernel_that_this_processor_has_not_is_named() -> None:
    """As torch 2.13 says it of an LSTM in bf16 on a processor with AVX2 alone."""
    said = str(
        explain_failure(
            RuntimeError(
                "could not create a primitive descriptor for the LSTM forward propagation primitive. Run workload with "
                "environment variable ONEDNN_VERBOSE=all to get additional diagnostic information."
            )
        )
    )
    assert "no kernel for LSTM forward propagation in this precision on this processor" in said
    assert "ONEDNN" not in said


def test_pinned_memory_says_its_own_sentence() -> None:
    said = str(explain_failure(NoPinnedMemory("The host had no 8 MB of pinned memory.")))
    assert said == "The host had no 8 MB of pinned memory."


@pytest.mark.parametrize(
    ("error", "is_device_s"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("std::bad_alloc: cudaErrorMemoryAllocation: out of memory"), True),  # as Thrust says it
        (NoPinnedMemory("The host had no 8 MB of pinned memory."), False),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory"), False),
        (RuntimeError("std::bad_alloc"), False),
        (MemoryError(), False),
    ],
)
def test_the_host_s_memory_is_not_the_device_s(error: BaseException, is_device_s: bool) -> None:
    failure = explain_step_failure(error, on_cpu=False)
    assert failure.code == ("out-of-memory" if is_device_s else "failed")
    assert ("host" in str(failure)) is not is_device_s
    assert explain_step_failure(error).code == "out-of-memory"


def test_an_optimizer_that_takes_no_sparse_gradients_is_told_which_do() -> None:
    module = torch.nn.Embedding(10, 4, sparse=True)
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(RuntimeError) as caught:
        optimizer.step()
    failure = explain_failure(caught.value)
    assert failure.code == "unsupported"
    assert "sgd and adagrad take them" in str(failure)


@pytest.mark.parametrize(
    ("code", "said"),
    [(None, "it ended Python (exit code 0)."), (3, "(exit code 3)."), ("no data.", "SystemExit: no data.")],
)
def test_code_that_ends_python_is_told_so(code: int | str | None, said: str) -> None:
    for explain in (explain_failure, explain_step_failure):
        assert said in str(explain(SystemExit(code)))


def test_paths_of_this_machine_stay_here() -> None:
    said = str(explain_failure(OSError(2, "No such file", "/home/somebody/secret.py")))
    assert "No such file" in said
    assert "somebody" not in said


def test_a_long_cause_ends_with_a_word_and_an_ellipsis() -> None:
    said = str(explain_failure(KeyError("long " * 100)))
    assert said.endswith(" long…")
    assert len(said) < 300
    assert str(explain_failure(KeyError("a" * 500))).endswith("aaa…")
    assert f"Unexpected: {'a' * 180}" in str(explain_failure(RuntimeError("Unexpected: " + "a" * 500)))
    assert not str(explain_failure(RuntimeError("short"))).endswith("…")
