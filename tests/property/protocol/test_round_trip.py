"""Every version of every message round-trips through the codec."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.codec import decode, encode, encode_parts
from penstock.protocol.fields import Message
from penstock.protocol.primitives import size_of
from tests.support.protocol.message_samples import (
    full_message,
    message_classes,
    versions_of,
)
from tests.support.protocol.message_strategies import messages_of

CLASSES = [pytest.param(cls, id=cls.__name__) for cls in message_classes()]


@pytest.mark.parametrize("cls", CLASSES)
@settings(max_examples=4)
@given(data=st.data())
def test_a_message_round_trips(cls: type[Message], data: st.DataObject) -> None:
    for version in versions_of(cls):
        message = data.draw(messages_of(cls, version), f"version {version}")
        encoded = encode(message, version)
        decoded, end = decode(cls, version, encoded)
        assert decoded == message
        assert end == len(encoded)


@pytest.mark.parametrize("cls", CLASSES)
def test_a_message_with_all_fields_round_trips(cls: type[Message]) -> None:
    """Also with bytes before and after it, and in parts."""
    for version in versions_of(cls):
        _survives_with_everything(cls, version)


def _survives_with_everything(cls: type[Message], version: int) -> None:
    message = full_message(cls, version, elements=2)
    encoded = encode(message, version)
    decoded, end = decode(cls, version, b"head" + encoded + b"tail", 4)
    assert decoded == message
    assert end == 4 + len(encoded)
    assert sum(map(size_of, encode_parts(message, version))) == len(encoded)


@pytest.mark.parametrize("cls", CLASSES)
def test_defaults_round_trip(cls: type[Message]) -> None:
    """A message without set fields decodes to the defaults in every version."""
    for version in versions_of(cls):
        assert decode(cls, version, encode(cls(), version))[0] == cls(), f"version {version}"
