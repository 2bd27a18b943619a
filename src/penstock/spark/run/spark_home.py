"""Spark's folder, as pip installs it, with its Python compiled.

Spark puts `python/lib/pyspark.zip` of its folder before everything else on the path of each Python
process that it starts. What is in a zip is compiled by each of them anew, which takes two thirds
of a start. So Spark is given a folder of links, where the names of the zips are folders with links
to the very packages that this process runs.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

_PARTS = ("bin", "jars", "sbin", "conf")
_ZIPS = {"pyspark.zip": "pyspark", "py4j-*-src.zip": "py4j"}


@contextmanager
def unpacked_home(cache: Path) -> Iterator[None]:
    """A JVM that is started in the block uses the folder; a SPARK_HOME of the user stays."""
    home = None if os.environ.get("SPARK_HOME") else _linked_home(cache)
    if home is None:
        yield
        return
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        os.environ.pop("SPARK_HOME", None)


def _linked_home(cache: Path) -> Path | None:
    """The folder of links; None where a link cannot be made."""
    links = _links()
    if not links:
        return None
    named = "\n".join(f"{path}={target}" for path, target in sorted(links.items()))
    home = cache / f"spark-home-{sha256(named.encode()).hexdigest()[:12]}"
    try:
        for path, target in links.items():
            _link(home / path, target)
    except OSError:
        return None
    return home


def _links() -> dict[str, Path]:
    packages = {name: _folder(name) for name in _ZIPS.values()}
    spark = packages["pyspark"]
    if spark is None or not (spark / "jars").is_dir():
        return {}
    links = {part: spark / part for part in _PARTS if (spark / part).exists()}
    for pattern, name in _ZIPS.items():
        package = packages[name]
        if package is None:
            continue
        for found in (spark / "python" / "lib").glob(pattern):
            links[f"python/lib/{found.name}/{name}"] = package
    return links


def _folder(package: str) -> Path | None:
    found = find_spec(package)
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent


def _link(path: Path, target: Path) -> None:
    if path.is_symlink():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):  # another process has just made the same
        path.symlink_to(target, target_is_directory=True)
