"""A SPARK_HOME with links instead of zip files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.run.spark_home import unpacked_home


@pytest.fixture(autouse=True)
def _no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)


def test_python_processes_import_the_installed_packages(tmp_path: Path) -> None:
    """Through the path that Spark builds from the names of its release."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    zips = sorted(path.name for path in (installed / "python" / "lib").glob("*.zip"))
    assert len(zips) == 2
    for _ in range(2):
        with unpacked_home(tmp_path):
            home = Path(os.environ["SPARK_HOME"])
        assert "SPARK_HOME" not in os.environ
        assert (home / "bin" / "spark-submit").samefile(installed / "bin" / "spark-submit")
        assert (home / "jars").samefile(installed / "jars")
    assert list(tmp_path.iterdir()) == [home]
    completed = subprocess.run(
        [sys.executable, "-S", "-c", "import py4j, sys; print(py4j.__cached__)"],
        env={"PYTHONPATH": os.pathsep.join(str(home / "python" / "lib" / item) for item in zips)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(completed.stdout.strip()).is_relative_to(home)
    for name, value in zip(("py4j", "pyspark"), zips, strict=True):
        [link] = (home / "python" / "lib" / value).iterdir()
        assert link.name == name
        assert link.samefile(installed.parent / name)


def test_a_spark_home_of_the_user_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with unpacked_home(tmp_path):
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert not list(tmp_path.iterdir())


def test_without_links_spark_uses_its_own_home(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with unpacked_home(file):
        assert "SPARK_HOME" not in os.environ
