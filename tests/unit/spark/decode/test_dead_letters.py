"""Dead letters are converted to records of a topic and back (D5)."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.consumer.record import ConsumerRecord
from penstock.spark.decode.dead_letters import (
    SCHEMA,
    DeadLetter,
    Headers,
    from_record,
    from_table,
    to_records,
)
from penstock.spark.decode.options import format_options, source_options
from penstock.spark.errors import OptionError
from penstock.spark.pipeline.model import SourceSpec

TIME = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
own_headers = st.lists(
    st.tuples(
        texts.filter(lambda name: not name.startswith("penstock.dlq.")), st.none() | st.binary()
    )
)
dead_letters = st.builds(
    DeadLetter,
    source=texts,
    topic=texts,
    topic_id=st.just("") | texts,
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    timestamp=st.none() | st.just(TIME),
    key=st.none() | st.binary(),
    value=st.none() | st.binary(),
    headers=own_headers,
    reason=texts,
    pipeline=st.just("shop"),
)


def as_table(letters: list[DeadLetter]) -> pa.Table:
    rows = []
    for letter in letters:
        row = {name: getattr(letter, name) for name in SCHEMA.names}
        row["headers"] = [{"key": name, "value": value} for name, value in letter.headers]
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def record(key: bytes | None, value: bytes | None, headers: Headers) -> ConsumerRecord:
    return ConsumerRecord("dead", 0, 17, 5, 0, key, value, tuple(headers))


@given(st.lists(dead_letters, max_size=2))
def test_a_dead_letter_survives_the_conversion(expected: list[DeadLetter]) -> None:
    table = as_table(expected)
    assert list(from_table(table, "shop")) == expected
    assert [from_record(record(*parts)) for parts in to_records(table, "shop")] == expected


def test_the_headers_contain_origin_and_reason() -> None:
    letter = DeadLetter(
        "clicks", "web", "abc", 3, 17, TIME, b"k", b"v", [("trace", b"1")], "no JSON: ü"
    )
    [(key, value, headers)] = to_records(as_table([letter]), "shop")
    assert (key, value) == (b"k", b"v")
    assert list(headers) == [
        ("trace", b"1"),
        ("penstock.dlq.pipeline", b"shop"),
        ("penstock.dlq.source", b"clicks"),
        ("penstock.dlq.topic", b"web"),
        ("penstock.dlq.topic-id", b"abc"),
        ("penstock.dlq.partition", b"3"),
        ("penstock.dlq.offset", b"17"),
        ("penstock.dlq.timestamp", b"2026-01-02T03:04:05.678Z"),
        ("penstock.dlq.reason", "no JSON: ü".encode()),
    ]


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("penstock.dlq.pipeline", b"shop")],
        [
            ("penstock.dlq.pipeline", b"shop"),
            ("penstock.dlq.source", b"a"),
            ("penstock.dlq.topic", b"a"),
            ("penstock.dlq.partition", b"one"),
            ("penstock.dlq.offset", None),
        ],
    ],
)
def test_other_records_are_no_dead_letters(headers: Headers) -> None:
    assert from_record(record(b"k", b"v", headers)) is None


def test_options_of_the_format_are_separated_from_those_of_the_source(tmp_path: Path) -> None:
    spec = SourceSpec(
        name="a",
        format="csv",
        schema="id int",
        options={"sep": ";", "header": "TRUE", "minPartitions": "3", "avro.wire": "x"},
    )
    options = format_options(spec)
    assert options == {
        "tombstones": "dead-letter",
        "epoch": "millis",
        "header": "true",
        "sep": ";",
    }
    assert source_options(spec) == {"minPartitions": "3", "avro.wire": "x"}
    wrong = SourceSpec(name="a", schema="id int", options={"tombstones": "drop"})
    with pytest.raises(OptionError, match="tombstones is 'drop': it must be one of dead-letter"):
        format_options(wrong)
