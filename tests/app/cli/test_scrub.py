"""What names a machine or a person is taken out, and nothing else."""

import pytest

from app.cli.scrub import name_secrets, scrub, scrub_text


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6 is lost", "GPU-… is lost"),
        ("CUDA_VISIBLE_DEVICES=GPU-8932f9,1", "CUDA_VISIBLE_DEVICES=GPU-…,1"),
        ("MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0", "MIG-…"),
        ("id 8932f937-d72c-4106-c12f-20bd9faed9f6", "id (UUID)"),
        ("at 192.168.1.17, or 10.0.0.1", "at (address), or (address)"),
        ("aa:bb:cc:dd:ee:ff", "(address)"),
        ("AA-BB-CC-DD-EE-FF", "(address)"),
        ("fe80::1ff:fe23:4567:890a and 2001:db8:0:0:0:0:0:1", "(address) and (address)"),
        ("pod8932f937_d72c_4106_c12f_20bd9faed9f6.slice", "pod(UUID).slice"),
        (f"/sys/fs/cgroup/docker-{'0123abcd' * 8}.scope/cpu.max", "/sys/fs/cgroup/docker-(id).scope/cpu.max"),
        ("/home/ada/model.py and C:\\Users\\ada\\x", "/home/(user)/model.py and C:\\Users\\(user)\\x"),
    ],
)
def test_what_names_a_machine_is_taken_out(text: str, scrubbed: str) -> None:
    assert scrub_text(text, {}) == scrubbed


@pytest.mark.parametrize(
    "text",
    [
        "driver 580.65.06, kernel 5.15.167.4-microsoft-standard-WSL2, torch 2.13.0+cu130",
        "0000:01:00.0",
        "c10::Error in at::native, at 18:25:03",
        "GPU-without-driver",
        "nothing to hide",
        "sm_86",
    ],
)
def test_versions_and_addresses_on_the_bus_stay(text: str) -> None:
    assert scrub_text(text, {}) == text


def test_names_are_taken_out_as_words_anywhere_in_a_document() -> None:
    secrets = {"lovelace": "(host)", "ada": "(user)"}
    document = {"a": ["on lovelace:", {"b": "ada's canada"}], "n": 1, "none": None}
    assert scrub(document, secrets) == {"a": ["on (host):", {"b": "(user)'s canada"}], "n": 1, "none": None}


@pytest.mark.parametrize("text", ["6.8.0-Lovelace", "LOVELACE.local", "lovelace-2", "core_lovelace"])
def test_a_hosts_name_is_found_in_kernels_names_too_however_it_is_written(text: str) -> None:
    assert "lovelace" not in scrub_text(text, {"lovelace": "(host)"}).lower()


def test_a_code_is_never_taken_for_a_name() -> None:
    secrets = {"slow": "(host)"}
    finding = {"code": "slow-governor", "message": "slow is slowed"}
    assert scrub(finding, secrets) == {"code": "slow-governor", "message": "(host) is slowed"}


def test_a_captured_machines_name_is_a_secret_whole_and_short() -> None:
    secrets = name_secrets(("lovelace.example.org",))
    assert secrets["lovelace.example.org"] == secrets["lovelace"] == "(host)"
    assert "root" not in secrets
    assert "gpu" not in name_secrets(("gpu",))


def test_a_user_number_without_a_home_has_nothing_to_take_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a container that is run with a number of its own."""

    def forget(number: int) -> None:
        raise KeyError(number)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", forget)
    assert "~" not in name_secrets(("lovelace",)).values()
