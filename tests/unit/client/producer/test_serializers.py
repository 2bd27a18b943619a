"""Serializers of keys and values (P5)."""

from uuid import UUID

import pytest

from penstock.client.errors import ConfigError, SerializationError
from penstock.client.producer import serializers
from penstock.client.producer.serializers import (
    BooleanSerializer,
    BytesSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntegerSerializer,
    LongSerializer,
    Serializer,
    ShortSerializer,
    StringSerializer,
    UUIDSerializer,
    VoidSerializer,
    check_bytes,
    serializer_of,
)

ID = UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize(
    ("serializer", "data", "expected"),
    [
        (BytesSerializer(), b"ab", b"ab"),
        (BytesSerializer(), bytearray(b"ab"), b"ab"),
        (BytesSerializer(), memoryview(b"ab"), b"ab"),
        (StringSerializer(), "é", b"\xc3\xa9"),
        (StringSerializer("latin-1"), "é", b"\xe9"),
        (ShortSerializer(), -2, b"\xff\xfe"),
        (IntegerSerializer(), 258, b"\x00\x00\x01\x02"),
        (LongSerializer(), -1, b"\xff" * 8),
        (FloatSerializer(), 1.5, b"\x3f\xc0\x00\x00"),
        (DoubleSerializer(), 1, b"\x3f\xf0" + bytes(6)),
        (BooleanSerializer(), True, b"\x01"),
        (BooleanSerializer(), False, b"\x00"),
        (UUIDSerializer(), ID, str(ID).encode()),
    ],
)
def test_bytes_of_kafka(serializer: Serializer, data: object, expected: bytes) -> None:
    """P5: the same bytes as the serializers of Kafka; null stays null."""
    assert serializer.serialize("t", data) == expected
    assert serializer.serialize("t", None) is None


@pytest.mark.parametrize(
    ("serializer", "data", "message"),
    [
        (BytesSerializer(), "text", "bytes are needed, not str"),
        (StringSerializer(), b"bytes", "a str is needed, not bytes"),
        (IntegerSerializer(), 2**31, "2147483648 does not fit into 4 bytes"),
        (IntegerSerializer(), 1.0, "int is needed, not float"),
        (IntegerSerializer(), True, "int is needed, not bool"),
        (FloatSerializer(), "1", "float or int is needed, not str"),
        (FloatSerializer(), 1e300, "does not fit into 4 bytes"),
        (BooleanSerializer(), 1, "a bool is needed, not int"),
        (UUIDSerializer(), str(ID), "a UUID is needed, not str"),
        (VoidSerializer(), b"", "None is needed, not bytes"),
    ],
)
def test_data_that_does_not_fit(serializer: Serializer, data: object, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        serializer.serialize("t", data)


def test_void() -> None:
    assert VoidSerializer().serialize("t", None) is None


def test_values_of_the_setting() -> None:
    """P5: an object, its class, or a function."""

    def use(setting: object, data: object) -> bytes | None:
        serializer = serializer_of(setting, "value")
        assert serializer is not None
        return serializer.serialize("t", data)

    assert serializer_of(None, "value") is None
    assert use(StringSerializer(), "a") == b"a"
    assert use(StringSerializer, "a") == b"a"
    assert use(str.encode, "a") == b"a"
    assert use(lambda data: bytearray(data), b"a") == b"a"
    assert use(lambda data: None, b"a") is None
    with pytest.raises(SerializationError, match=r"value_serializer <lambda> returned a int"):
        use(lambda data: 7, b"a")
    with pytest.raises(ConfigError, match="key_serializer is a int"):
        serializer_of(7, "key")


def test_the_error_has_the_topic_and_the_kind_of_data() -> None:
    broken = serializer_of(lambda data: data.missing, "key")
    assert broken is not None
    with pytest.raises(SerializationError, match=r"the key for topic 't' .a str. .* 'missing'"):
        broken.serialize("t", "text")


def test_without_a_serializer() -> None:
    """P5: bytes and None; the error of a str names the setting."""
    assert check_bytes(None, "key") is None
    assert check_bytes(b"a", "key") == b"a"
    assert check_bytes(bytearray(b"a"), "key") == b"a"
    assert check_bytes(memoryview(b"a"), "key") == b"a"
    with pytest.raises(SerializationError, match=r"value_serializer=StringSerializer\(\)"):
        check_bytes("text", "value")


def test_every_serializer_implements_the_protocol() -> None:
    names = [name for name in vars(serializers) if name.endswith("Serializer") and name[0] != "_"]
    assert len(names) == 11
    for name in names:
        assert isinstance(vars(serializers)[name], type)
