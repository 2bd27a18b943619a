"""Writes constraints.txt: the exact version of every package that the project and its tools need.

The versions are those installed in the environment that runs this; a package that is installed but
that nothing of ours needs is left out. No package source is named: that is the machine's business.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
HEADER = """\
# Exact versions for .venv (written by `make lock`). Only versions: no package source is named here.
"""


def requirements(pyproject: Path) -> Iterator[Requirement]:
    """Everything the project names itself: its dependencies, extras, tools and build system."""
    table = tomllib.loads(pyproject.read_text())
    project = table["project"]
    named: list[str] = [
        *project["dependencies"],
        *(name for extra in project.get("optional-dependencies", {}).values() for name in extra),
        *(name for group in table.get("dependency-groups", {}).values() for name in group),
        *table["build-system"]["requires"],
        "pip",  # the installer: an old one knows no dependency groups
    ]
    return map(Requirement, named)


def closure(roots: Iterable[Requirement]) -> dict[str, str]:
    """Name and installed version of every package reachable from `roots` on this machine."""
    versions: dict[str, str] = {}
    listed: set[tuple[str, str]] = set()
    queue = list(roots)
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        installed = distribution(name)
        exact = re.fullmatch(r"==([^*,]+)", str(requirement.specifier))
        versions.setdefault(name, installed.version)
        if exact:
            versions[name] = exact[1]
        for extra in {"", *requirement.extras}:
            if (name, extra) in listed:
                continue
            listed.add((name, extra))
            for line in installed.requires or ():
                needed = Requirement(line)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    queue.append(needed)
    return versions


def main() -> int:
    try:
        versions = closure(requirements(ROOT / "pyproject.toml"))
    except PackageNotFoundError as missing:
        sys.stderr.write(f"lock: {missing.name} is not installed here: run make setup first\n")
        return 1
    lines = [f"{name}=={version}\n" for name, version in sorted(versions.items())]
    (ROOT / "constraints.txt").write_text(HEADER + "".join(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
