"""Format strings like kcat's, decoders, and JSON that goes both ways (C2)."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.output import UsageError
from penstock.cli.records.record_formats import (
    compile_format,
    decoder_of,
    json_printer,
    print_values,
    unescaped,
)
from penstock.cli.records.record_input import InputKind, Reading, read_bulks
from penstock.client.consumer.record import ConsumerRecord

RECORD = ConsumerRecord(
    "orders", 3, 42, 1700000000123, 0, b"key", b"value", (("a", b"1"), ("b", None), ("a", b""))
)
EMPTY = ConsumerRecord("orders", 0, 1, -1, -1, None, None)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (r"\n\t\r", b"\n\t\r"),
        (r"\0", b"\0"),
        (r"\x41\xff", b"A\xff"),
        (r"\x4g", b"\x04g"),
        (r"\012\10", b"\n\n"),
        (r"\\\q", b"\\q"),
        ("é", "é".encode()),
        ("end\\", b"end\\"),
    ],
)
def test_escapes(text: str, printed: bytes) -> None:
    assert unescaped(text) == printed


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("%s", b"value"),
        ("%k=%s\\n", b"key=value\n"),
        ("%t [%p] at %o", b"orders [3] at 42"),
        ("%S %K %T", b"5 3 1700000000123"),
        ("%R%s", b"\0\0\0\x05value"),
        ("%h", b"a=1,b=NULL,a="),
        ("100%%", b"100%"),
        ("%s%s", b"valuevalue"),
        ("nothing", b"nothing"),
        ("", b""),
    ],
)
def test_formats(text: str, printed: bytes) -> None:
    assert compile_format(text)(RECORD) == printed


def test_null() -> None:
    """As kcat: nothing is printed for null, and -1 is its length."""
    assert compile_format("%k|%s|%K|%S|%R|%T|%h")(EMPTY) == b"||-1|-1|\xff\xff\xff\xff|-1|"
    assert compile_format("%k|%s", null=b"NULL")(EMPTY) == b"NULL|NULL"


@pytest.mark.parametrize("text", ["%", "%x", "%s %"])
def test_a_format_that_says_nothing(text: str) -> None:
    with pytest.raises(UsageError, match="%"):
        compile_format(text)


@pytest.mark.parametrize("end", [b"\n", b"", b"\r\n"])
def test_the_quick_way_prints_the_same(end: bytes) -> None:
    records = [RECORD, EMPTY, RECORD._replace(value=b"")]
    slow = b"".join(compile_format("%s", null=b"-")(record) + end for record in records)
    assert print_values(records, end, b"-") == slow


@pytest.mark.parametrize(
    ("name", "data", "printed"),
    [
        ("hex", b"\x00\xff", b"00ff"),
        ("base64", b"\x00\xff", b"AP8="),
        ("utf-8", b"a\xff", b"a\\xff"),
        ("json", b'{ "a" : [1, 2] }', b'{"a":[1,2]}'),
        ("short", b"\xff\xfe", b"-2"),
        ("int", struct.pack(">i", -5), b"-5"),
        ("long", struct.pack(">q", 2**40), b"1099511627776"),
        ("double", struct.pack(">d", 1.5), b"1.5"),
        ("uuid", bytes(range(16)), b"00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (">i s", struct.pack(">i", 7) + b"rest", b"7 rest"),
        ("<hB$", b"\x01\x00\x02", b"12"),
        ("c", b"xyz", b"x"),
        ("b", b"\xff", b"-1"),
    ],
)
def test_decoders(name: str, data: bytes, printed: bytes) -> None:
    decode = decoder_of(name)
    assert decode is not None
    assert decode(data) == printed


@pytest.mark.parametrize(
    ("name", "data"),
    [("int", b"123"), ("json", b"{"), ("uuid", b"short"), ("i", b"123"), ("b$", b"12")],
)
def test_bytes_that_a_decoder_does_not_expect(name: str, data: bytes) -> None:
    decode = decoder_of(name)
    assert decode is not None
    with pytest.raises(ValueError):
        decode(data)


@pytest.mark.parametrize("name", ["avro", "", "i,s"])
def test_decoders_that_do_not_exist(name: str) -> None:
    with pytest.raises(UsageError, match="base64"):
        decoder_of(name)


def test_json() -> None:
    assert json.loads(json_printer()(RECORD)) == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp": 1700000000123,
        "timestamp_type": "create",
        "headers": [["a", "1"], ["b", None], ["a", ""]],
        "key": "key",
        "value": "value",
    }
    record = RECORD._replace(value=b'{"a": 1}', key=b"\xff")
    printed = json.loads(json_printer("hex", "json")(record))
    assert (printed["key"], printed["value"]) == ("ff", {"a": 1})


@given(
    key=st.none() | st.binary(),
    value=st.none() | st.binary(),
    headers=st.lists(st.tuples(st.text(), st.none() | st.binary()), max_size=3),
)
def test_what_json_prints_can_be_sent_again(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    record = ConsumerRecord("t", 1, 2, 3, 0, key, value, tuple(headers))
    [bulk] = read_bulks(InputKind.JSON, "it", [json_printer()(record)], Reading())
    assert list(bulk.values) == [value]
    assert (None if bulk.keys is None else bulk.keys[0]) == key
    assert bulk.headers == tuple(headers)
    assert (bulk.topic, bulk.partition, bulk.timestamps) == ("t", 1, [3])
