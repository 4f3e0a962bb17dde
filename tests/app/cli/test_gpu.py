import json

import pytest

from app.cli.endings import ExitCode
from app.cli.main import main


def test_a_name_needs_no_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpu", "RX", "7900", "XTX", "--json"]) == ExitCode.DONE
    card = json.loads(capsys.readouterr().out)
    assert (card["tier"], card["suffix"]) == ("900", "XTX")


def test_a_card_is_shown_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpu", "GeForce RTX 4090 Laptop GPU"]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert "laptop" in out
    assert "16 GiB" in out


def test_an_unknown_card_is_wrong_usage_with_near_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpu", "RTX", "4095"]) == ExitCode.USAGE
    assert "Did you mean" in capsys.readouterr().err
