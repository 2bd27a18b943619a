"""A SPARK_HOME whose Python packages are not zipped, so that Python workers start faster.

Spark puts `python/lib/pyspark.zip` of its directory first on the path of each Python process that
it starts. Each process compiles the modules of a zip again, which takes two thirds of its start. So
Spark gets a directory of links, in which the names of the zip files are directories with links to
the packages of this process.
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
    """Sets SPARK_HOME for a JVM that is started in the block, unless the user has set it."""
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
    """Returns the directory of links; None if links cannot be created."""
    links = _links()
    if not links:
        return None
    listing = "\n".join(f"{path}={target}" for path, target in sorted(links.items()))
    home = cache / f"spark-home-{sha256(listing.encode()).hexdigest()[:12]}"
    try:
        for path, target in links.items():
            _link(home / path, target)
    except OSError:
        return None
    return home


def _links() -> dict[str, Path]:
    packages = {name: _package_directory(name) for name in _ZIPS.values()}
    spark = packages["pyspark"]
    if spark is None or not (spark / "jars").is_dir():
        return {}
    links = {part: spark / part for part in _PARTS if (spark / part).exists()}
    for pattern, name in _ZIPS.items():
        package = packages[name]
        if package is None:
            continue
        for path in (spark / "python" / "lib").glob(pattern):
            links[f"python/lib/{path.name}/{name}"] = package
    return links


def _package_directory(package: str) -> Path | None:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).resolve().parent


def _link(path: Path, target: Path) -> None:
    if path.is_symlink():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):  # another process has created it concurrently
        path.symlink_to(target, target_is_directory=True)
