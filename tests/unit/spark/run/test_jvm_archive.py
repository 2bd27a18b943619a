"""The class archive of Spark for a Java runtime."""

import os
from pathlib import Path

from penstock.spark.run.java import Java
from penstock.spark.run.jvm_archive import archive_of, make_archive, options_for


def java_at(directory: Path, name: str) -> Java:
    program = directory / name
    program.write_text("")
    return Java(directory, program, 17, "PATH")


def test_each_java_has_its_own_archive(tmp_path: Path) -> None:
    first_java, second_java = java_at(tmp_path, "one"), java_at(tmp_path, "two")
    first = archive_of(first_java, tmp_path)
    assert first == archive_of(first_java, tmp_path)
    assert first != archive_of(second_java, tmp_path)
    os.utime(first_java.program, ns=(1, 1))
    assert first != archive_of(first_java, tmp_path), "the runtime was replaced by another version"


def test_an_existing_archive_is_not_created_again(tmp_path: Path) -> None:
    from penstock.spark.run.java import find_java

    archive = archive_of(find_java(os.environ, tmp_path), tmp_path)
    archive.write_text("classes")
    assert make_archive(tmp_path) == archive
    assert archive.read_text() == "classes"
    assert f'"-XX:SharedArchiveFile={archive}"' in options_for(archive)
