"""Import contracts hold for every module: those that name modules one by one name all."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_contract_about_torch_names_every_part_of_probes_but_the_micro_training() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (about_torch,) = (each for each in contracts if each["name"] == "only the micro-training imports torch")
    parts = [path for path in (ROOT / "probes").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    names = {f"probes.{path.stem}" for path in parts if path.stem not in ("__init__", "microtrain")}
    assert {name for name in about_torch["source_modules"] if name != "app"} == names
