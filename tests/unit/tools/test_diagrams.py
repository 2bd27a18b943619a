"""The diagrams of docs/ARCHITECTURE.md are drawn from their texts, and tell the truth."""

import tomllib
from pathlib import Path

import pytest

from tools.diagrams import DIAGRAMS, Box, parse, render

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "src" / "penstock"


@pytest.mark.parametrize("source", sorted(DIAGRAMS.glob("*.txt")), ids=lambda path: path.stem)
def test_the_committed_drawing_is_that_of_the_text(source: Path) -> None:
    drawing = source.with_suffix(".svg").read_text()
    assert drawing == render(parse(source.read_text())), "run `make generate`"


def test_the_layers_are_those_that_import_linter_enforces() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    enforced = [
        sorted(name.strip() for name in layer.split("|"))
        for layer in contracts["contracts"][0]["layers"]
    ]
    rows = parse((DIAGRAMS / "layers.txt").read_text()).rows
    assert [sorted(box.name for box in row if isinstance(box, Box)) for row in rows] == enforced


def test_every_part_of_the_request_path_exists() -> None:
    rows = parse((DIAGRAMS / "request.txt").read_text()).rows
    names = [box.name for row in rows for box in row if isinstance(box, Box)]
    for name in names:
        assert (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").is_file(), name


def test_a_line_that_is_no_part_of_a_diagram_is_refused() -> None:
    with pytest.raises(ValueError, match="line 2"):
        parse("= A title\nno box at all")
