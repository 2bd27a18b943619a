"""How messages are declared, and what a declaration may not say."""

import re
from typing import Annotated

import pytest

from penstock.protocol.codec import decode, encode
from penstock.protocol.decoder import decoder_source
from penstock.protocol.encoder import encoder_source
from penstock.protocol.fields import (
    Int16,
    Int32,
    Message,
    Scalar,
    Struct,
    UInt16,
    UInt32,
    data,
    wire,
)
from penstock.protocol.schema import (
    Array,
    Field,
    fields_of,
    smallest_size,
)
from penstock.protocol.versions import ALL_VERSIONS, NO_VERSIONS, VersionRange
from tests.support.protocol.message_samples import message_classes, message_versions, structs_in

FROM_ONE = VersionRange.parse("1+")


class Part(Struct):
    number: UInt32 = 0
    late: Annotated[list[UInt16], wire("1+")] = []


class Sample(Message):
    INFO = data(versions="0-2", flexible="2+")

    part: Part | None = None
    name: Annotated[str | None, wire("0-1", nullable="1", ignorable=True)] = ""
    more: Annotated[list[Part], wire("2+", tag=3)] = []
    always: Int16 = 7


class Bare(Struct):
    """Nothing before version 1."""

    late: Annotated[Int32, wire("1+")] = 0


class OfBare(Message):
    INFO = data(versions="0-1")

    elements: list[Bare] = []


class Required(Message):
    INFO = data(versions="0")

    field: Int32


class Twofold(Message):
    INFO = data(versions="0")

    field: str | bytes = ""


class Deep(Message):
    INFO = data(versions="0")

    field: list[list[Int32]] = []


class Unsized(Message):
    INFO = data(versions="0")

    field: int = 0


class NullByDefault(Message):
    INFO = data(versions="0")

    field: str = None  # type: ignore[assignment]


def test_fields_as_declared() -> None:
    assert fields_of(Part) == (
        Field("number", Scalar.UINT32, ALL_VERSIONS, NO_VERSIONS, None, False, True, 0),
        Field(
            "late",
            Array(Scalar.UINT16),
            VersionRange(1, 0x7FFF),
            NO_VERSIONS,
            None,
            False,
            True,
            [],
        ),
    )
    part, name, more, _ = fields_of(Sample)
    assert (part.type, part.nullable, part.default) == (Part, ALL_VERSIONS, None)
    assert (str(name.versions), str(name.nullable), name.ignorable) == ("0-1", "1", True)
    assert (more.type, more.tag) == (Array(Part), 3)


@pytest.mark.parametrize(
    ("message", "version", "encoded"),
    [
        (Sample(), 0, "ff 0000 0007"),
        (Sample(part=Part(2**32 - 1)), 0, "01 ffffffff 0000 0007"),
        (
            Sample(part=Part(1, [2, 0xFFFF]), name=None),
            1,
            "01 00000001 00000002 0002 ffff ffff 0007",
        ),
        (Sample(part=Part(1, [2])), 2, "01 00000001 02 0002 00 0007 00"),
        (Sample(more=[Part(1)]), 2, "ff 0007 01 03 07 02 00000001 01 00"),
    ],
)
def test_small_messages(message: Sample, version: int, encoded: str) -> None:
    assert encode(message, version) == bytes.fromhex(encoded)
    assert decode(Sample, version, bytes.fromhex(encoded))[0] == message


@pytest.mark.parametrize(
    ("cls", "complaint"),
    [
        (Required, "Required.field: every field needs a default"),
        (Twofold, "Twofold.field: no wire type for str | bytes"),
        (Deep, "Deep.field: an array of arrays needs a struct in between"),
        (Unsized, "Unsized.field: no wire type for <class 'int'>"),
        (
            NullByDefault,
            "NullByDefault.field: the default is None, but the type does not allow None",
        ),
    ],
)
def test_invalid_declarations_are_refused(cls: type[Message], complaint: str) -> None:
    with pytest.raises(TypeError, match=re.escape(complaint)):
        fields_of(cls)


def test_elements_without_bytes_are_refused() -> None:
    """A count of them could be anything, and nothing on the wire would contradict it."""
    assert decode(OfBare, 1, bytes(4)) == (OfBare(), 4)
    with pytest.raises(TypeError, match="empty elements"):
        decode(OfBare, 0, bytes(4))


def test_no_message_is_smaller_than_the_computed_minimum() -> None:
    """Counts are multiplied by it: a default message is never smaller."""
    for cls, version in message_versions():
        flexible = version in cls.INFO.flexible
        assert smallest_size(cls, version, flexible) <= len(encode(cls(), version))


def test_names_of_structs_are_unambiguous() -> None:
    by_name: dict[str, set[type[Struct]]] = {}
    for cls in message_classes():
        for part in structs_in(cls):
            by_name.setdefault(part.__name__, set()).add(part)
    assert [name for name, parts in by_name.items() if len(parts) > 1] == []


def test_tags_are_unique_and_of_flexible_versions() -> None:
    tags = 0
    for cls in message_classes():
        for part in structs_in(cls):
            tagged = [field for field in fields_of(part) if field.tag is not None]
            assert len({field.tag for field in tagged}) == len(tagged)
            assert all(field.versions.low >= cls.INFO.flexible.low for field in tagged)
            # Records end a part of the message, which the length before a tagged field forbids.
            assert all(field.type is not Scalar.RECORDS for field in tagged)
            tags += len(tagged)
    assert tags > 40


def test_generated_source_can_be_read() -> None:
    assert "def decode(view, p, room=" in decoder_source(Sample, 2).text()
    assert "def encode(m, room=" in encoder_source(Sample, 2).text()


@pytest.mark.parametrize(
    ("text", "low", "high"), [("0+", 0, 0x7FFF), ("2-5", 2, 5), ("7", 7, 7), ("none", 0, -1)]
)
def test_version_ranges(text: str, low: int, high: int) -> None:
    versions = VersionRange.parse(text)
    assert (versions.low, versions.high) == (low, high)
    assert str(versions) == text
    assert (low in versions) == (low <= high)
    assert high + 1 not in versions
