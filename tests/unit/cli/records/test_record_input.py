"""Records from lines, sizes, JSON and files (C2)."""

import json
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.records.record_input import (
    Bulk,
    Encoding,
    InputError,
    InputKind,
    Reading,
    json_bytes,
    read_bulks,
    split,
)


def read(kind: InputKind, data: bytes, reading: Reading = Reading()) -> list[Bulk]:  # noqa: B008
    return list(read_bulks(kind, "it", [data] if data else [], reading))


def one(kind: InputKind, data: bytes, reading: Reading = Reading()) -> Bulk:  # noqa: B008
    [bulk] = read(kind, data, reading)
    return bulk


def chunked(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(places)]


# --- Lines


@given(
    parts=st.lists(st.binary().filter(lambda part: b"\n" not in part), max_size=5),
    ends=st.booleans(),
    cuts=st.lists(st.integers(0, 60)),
)
def test_lines_are_the_same_however_they_come(
    parts: list[bytes], ends: bool, cuts: list[int]
) -> None:
    data = b"\n".join(parts) + (b"\n" if ends and parts else b"")
    expected = data.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert [line for lines in split(chunked(data, cuts), b"\n") for line in lines] == expected


@given(data=st.text("ab;|", max_size=40), cuts=st.lists(st.integers(0, 40)))
def test_a_long_delimiter_across_chunks(data: str, cuts: list[int]) -> None:
    expected = data.encode().split(b";|;")
    if expected[-1] == b"":
        expected.pop()
    result = [line for lines in split(chunked(data.encode(), cuts), b";|;") for line in lines]
    assert result == expected


def test_empty_lines_are_records() -> None:
    assert one(InputKind.LINES, b"a\n\nb\n").values == [b"a", b"", b"b"]
    assert read(InputKind.LINES, b"") == []


def test_keys() -> None:
    reading = Reading(key_separator=b":")
    bulk = one(InputKind.LINES, b"k:v:w\n:v\nk:\n", reading)
    assert (bulk.keys, bulk.values) == ([b"k", b"", b"k"], [b"v:w", b"v", b""])


def test_tombstones() -> None:
    bulk = one(InputKind.LINES, b"k:\n:v\n", Reading(key_separator=b":", null=True))
    assert (bulk.keys, bulk.values) == ([b"k", None], [None, b"v"])


def test_a_line_without_a_key_is_said_to_be_one() -> None:
    with pytest.raises(InputError, match=r"it, line 2 has no key separator b':': .*--key-optional"):
        read(InputKind.LINES, b"k:v\nkv\n", Reading(key_separator=b":"))


@pytest.mark.parametrize(
    ("reading", "keys"),
    [
        (Reading(key_separator=b":", key_optional=True), [b"k", None]),
        (Reading(key_separator=b":", key=b"all"), [b"k", b"all"]),
        (Reading(key=b"all"), [b"all", b"all"]),
    ],
)
def test_lines_without_a_key_where_that_is_meant(
    reading: Reading, keys: list[bytes | None]
) -> None:
    assert one(InputKind.LINES, b"k:v\nkv\n", reading).keys == keys


def test_encodings() -> None:
    reading = Reading(key_separator=b" ", key_encoding=Encoding.HEX, value_encoding=Encoding.BASE64)
    bulk = one(InputKind.LINES, b"00ff AP8=\n", reading)
    assert (bulk.keys, bulk.values) == ([b"\0\xff"], [b"\0\xff"])


@pytest.mark.parametrize(
    ("encoding", "line"),
    [
        (Encoding.HEX, b"0g"),
        (Encoding.HEX, b"\xff"),
        (Encoding.BASE64, b"a*"),
        (Encoding.BASE64, b"abc"),
    ],
)
def test_an_encoding_that_is_another(encoding: Encoding, line: bytes) -> None:
    with pytest.raises(InputError, match=f"it, line 2: the value is not {encoding}"):
        read(InputKind.LINES, b"\n" + line + b"\n", Reading(value_encoding=encoding))


def test_numbers_go_on_over_chunks() -> None:
    bulks = list(read_bulks(InputKind.LINES, "it", [b"a\nb\n", b"c\n"], Reading()))
    assert [bulk.first for bulk in bulks] == [1, 3]
    assert bulks[1].place(0) == "it, line 3"


# --- Sizes


def sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


FIELDS = st.lists(st.none() | st.binary(max_size=9), max_size=6)


@given(fields=FIELDS, cuts=st.lists(st.integers(0, 80)))
def test_sized_values(fields: list[bytes | None], cuts: list[int]) -> None:
    data = b"".join(map(sized, fields))
    bulks = list(read_bulks(InputKind.SIZED, "it", chunked(data, cuts), Reading()))
    assert [value for bulk in bulks for value in bulk.values] == fields


@given(
    fields=st.lists(
        st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9))
    ),
    cuts=st.lists(st.integers(0, 80)),
)
def test_sized_keys_and_values(
    fields: list[tuple[bytes | None, bytes | None]], cuts: list[int]
) -> None:
    data = b"".join(sized(key) + sized(value) for key, value in fields)
    bulks = list(read_bulks(InputKind.SIZED_KEYS, "it", chunked(data, cuts), Reading()))
    result = [pair for bulk in bulks for pair in zip(bulk.keys or [], bulk.values, strict=True)]
    assert result == fields


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (sized(b"ok") + b"\0\0\0\x05abc", "it, record 2 is cut short"),
        (sized(b"ok") + b"\0\0", "it, record 2 is cut short"),
        (sized(b"ok") + b"\xff\0\0\0", "it, record 2 has the length"),
    ],
)
def test_sizes_that_are_wrong(data: bytes, error: str) -> None:
    with pytest.raises(InputError, match=error):
        read(InputKind.SIZED, data)


# --- JSON


def test_json_lines() -> None:
    lines = [
        {"key": "k", "value": "v", "headers": {"a": "1"}, "partition": 1, "timestamp": 5},
        {"key": "l", "value": None, "headers": [["a", "1"]], "partition": 1, "timestamp": 6},
        {"value": {"deep": [1, 2.5]}, "topic": "other"},
    ]
    first, second = read(InputKind.JSON, "\n".join(map(json.dumps, lines)).encode())
    assert first == Bulk("it", 1, [b"v", None], [b"k", b"l"], (("a", b"1"),), [5, 6], None, 1)
    assert second == Bulk("it", 3, [b'{"deep":[1,2.5]}'], None, (), None, "other")


def test_what_kcat_prints() -> None:
    line = (
        b'{"topic":"t","partition":0,"offset":7,"tstype":"create","ts":9,"broker":1,'
        b'"headers":["a","1","b",null],"key":null,"payload":"v"}'
    )
    bulk = one(InputKind.JSON, line)
    assert (bulk.values, bulk.timestamps) == ([b"v"], [9])
    assert bulk.headers == (("a", b"1"), ("b", None))


def test_blank_lines_of_json_are_passed_over() -> None:
    first, second = read(InputKind.JSON, b'{"value":1}\n\n{"value":2}\n')
    assert (first.first, second.first, second.place(0)) == (1, 3, "it, line 3")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("{", "it, line 2: "),
        ('{"key": "k"}', 'there is no "value"; null is a tombstone'),
        ('{"value": "v", "vlaue": 1}', "vlaue"),
        ('{"value": "v", "partition": "x"}', "partition"),
        ('{"value": "v", "headers": "x"}', "pairs"),
        ('{"value": "v", "headers": [[1, "x"]]}', "a header's name is text"),
        ('{"value": {"base64": "*"}}', "no base64"),
        ("[1]", "object"),
    ],
)
def test_json_that_is_no_record(line: str, error: str) -> None:
    with pytest.raises(InputError, match=error):
        read(InputKind.JSON, b'{"value": "v"}\n' + line.encode())


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ("é", "é".encode()),
        (None, None),
        ({"base64": "AP8="}, b"\0\xff"),
        ({"hex": "00ff"}, b"\0\xff"),
        ({"base64": 1}, b'{"base64":1}'),
        ({"hex": "00", "more": 1}, b'{"hex":"00","more":1}'),
        (True, b"true"),
        (5, b"5"),
    ],
)
def test_bytes_in_json(value: object, data: bytes | None) -> None:
    assert json_bytes(value) == data


# --- Files


def test_a_whole_file() -> None:
    bulk = one(InputKind.FILES, b"a\nb", Reading(key=b"k", headers=(("h", None),)))
    assert (bulk.values, bulk.keys, bulk.headers) == ([b"a\nb"], [b"k"], (("h", None),))
    assert bulk.place(0) == "it"
