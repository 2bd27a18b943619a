"""The archive of Spark's classes, for one Java and one Spark."""

import os
from pathlib import Path

from penstock.spark.run.java import Java
from penstock.spark.run.jvm_archive import archive_of, make_archive, options_for


def a_java(directory: Path, name: str) -> Java:
    program = directory / name
    program.write_text("")
    return Java(directory, program, 17, "PATH")


def test_each_java_has_a_file_of_its_own(tmp_path: Path) -> None:
    one, two = a_java(tmp_path, "one"), a_java(tmp_path, "two")
    first = archive_of(one, tmp_path)
    assert first == archive_of(one, tmp_path)
    assert first != archive_of(two, tmp_path)
    os.utime(one.program, ns=(1, 1))
    assert first != archive_of(one, tmp_path), "another version came in its place"


def test_an_existing_archive_is_not_created_again(tmp_path: Path) -> None:
    from penstock.spark.run.java import find_java

    made = archive_of(find_java(os.environ, tmp_path), tmp_path)
    made.write_text("classes")
    assert make_archive(tmp_path) == made
    assert made.read_text() == "classes"
    assert f'"-XX:SharedArchiveFile={made}"' in options_for(made)
