"""A record format is one registry entry: the file, `validate` and `decode` need nothing else."""

from typing import TYPE_CHECKING

import pytest

from penstock.spark.check.validate import validate
from penstock.spark.decode.datatypes import STRING, Field
from penstock.spark.decode.fields import typed_fields
from penstock.spark.decode.formats.record_format import (
    TOMBSTONES,
    FormatOption,
    RawRecords,
    RecordFormat,
)
from penstock.spark.decode.formats.registry import FORMATS, format_of
from penstock.spark.decode.options import format_options, source_options
from penstock.spark.errors import OptionError
from penstock.spark.pipeline.model import SourceSpec
from penstock.spark.pipeline.yaml_file import parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def read_fields(spec: SourceSpec) -> tuple[Field, ...]:
    if spec.message is None:
        raise OptionError(f"source {spec.name}: words need message, the name of the only field")
    return (Field(spec.message, STRING),)


def add_columns(records: RawRecords) -> "DataFrame":
    raise NotImplementedError


WORDS = RecordFormat(
    name="words",
    keys=("message",),
    options={
        "tombstones": TOMBSTONES,
        "words.case": FormatOption(("upper", "lower"), "lower"),
        "words.dictionary": FormatOption(is_path=True),
    },
    read_fields=read_fields,
    add_columns=add_columns,
)
FILE = """
name: p
bootstrap_servers: localhost:9092
sources:
  texts:
    topic: texts
    format: words
    message: word
    options: {words.case: UPPER, words.dictionary: words.txt, minPartitions: 3}
steps:
  short: {sql: SELECT word FROM texts WHERE length(word) < 4}
sinks:
  out: {from: short, topic: short-words}
"""


@pytest.fixture(autouse=True)
def words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "words", WORDS)


def problems(text: str) -> list[str]:
    spec, file_problems = parse(text, "/shop/pipeline.yml")
    assert spec is not None
    return [str(problem) for problem in file_problems or validate(spec)]


def test_a_file_may_use_the_format() -> None:
    spec, file_problems = parse(FILE, "/shop/pipeline.yml")
    assert file_problems == []
    assert spec is not None
    (source,) = spec.sources
    assert format_of(source) is WORDS
    assert typed_fields(source) == (Field("word", STRING),)
    assert format_options(source) == {
        "tombstones": "dead-letter",
        "words.case": "upper",
        "words.dictionary": "/shop/words.txt",
    }
    assert source_options(source) == {"minPartitions": "3"}
    assert validate(spec) == []


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("format: words", "format: word", "'word' is not one of json, avro, protobuf, csv, raw, w"),
        ("    message: word\n", "", "line 5: sources.texts.message: words need message"),
        ("UPPER", "title", "option words.case is 'title': it must be one of upper, lower"),
        ("message: word", "message: word\n    schema: a int", "schema does not go with the format"),
        ("SELECT word", "SELECT wrd", "there is no column wrd: did you mean word?"),
    ],
)
def test_problems_are_those_of_the_format(before: str, after: str, problem: str) -> None:
    (message,) = problems(FILE.replace(before, after))
    assert problem in message
