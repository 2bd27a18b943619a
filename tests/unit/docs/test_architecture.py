"""docs/ARCHITECTURE.md describes the tree as it is."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "src" / "penstock"
PAGE = (ROOT / "docs" / "ARCHITECTURE.md").read_text()


def mapped_paths() -> Iterator[str]:
    """Yields the paths and patterns of the file map, relative to src/penstock.

    A name without a directory is in the directory of the one before it in its row.
    """
    section = PAGE.split("\n## File map\n")[1].split("\n## ")[0]
    for row in re.findall(r"^\| (`.+?) \| ", section, re.MULTILINE):
        directory = ""
        for name in re.findall(r"`([^`]+)`", row):
            path = name if "/" in name else f"{directory}/{name}"
            directory = path.rpartition("/")[0]
            yield path


def test_every_path_of_the_file_map_exists() -> None:
    missing = [path for path in mapped_paths() if not list(SOURCE.glob(path))]
    assert not missing


def test_the_file_map_has_every_module() -> None:
    covered: set[Path] = set()
    for path in mapped_paths():
        for match in SOURCE.glob(path):
            covered |= set(match.rglob("*.py")) if match.is_dir() else {match}
    modules = {path for path in SOURCE.glob("*/**/*.py") if path.name != "__init__.py"}
    assert sorted(str(path.relative_to(SOURCE)) for path in modules - covered) == []


def test_every_home_that_the_page_names_exists() -> None:
    """The table of where new code belongs."""
    section = PAGE.split("\n## Where things go\n")[1].split("\n## ")[0]
    names = re.findall(r"`([a-z_]+/[a-z_/]+(?:\.py)?)`", section)
    assert names
    # A path in bold is the home that a coming feature will get.
    coming = set(re.findall(r"\*\*`([a-z_/.]+)`\*\*", section))
    existing = [name for name in names if (SOURCE / name).exists() or (ROOT / name).exists()]
    missing = set(names) - set(existing) - coming
    assert not missing
