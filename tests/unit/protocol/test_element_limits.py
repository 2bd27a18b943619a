"""A codec stops at a number of array elements that its caller chooses (X5)."""

import pytest

from penstock.core.errors import ProtocolError
from penstock.protocol.codec import decode, encode, encode_parts
from penstock.protocol.frames import MAX_HEADER_TAGS, decode_request_header
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
)
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.protocol.primitives import TooManyElementsError

NESTED = DescribeConfigsRequest(
    [DescribeConfigsResource(2, f"topic-{n}", ["a", "b", "c"]) for n in range(4)]
)
"""Four resources with three keys each: sixteen elements."""


@pytest.mark.parametrize("version", [1, 4])
def test_elements_of_all_arrays_are_counted_together(version: int) -> None:
    data = encode(NESTED, version)
    assert decode(DescribeConfigsRequest, version, data, 0, 16)[0] == NESTED
    with pytest.raises(TooManyElementsError, match="configuration_keys has 3 elements, but"):
        decode(DescribeConfigsRequest, version, data, 0, 15)


def test_numbers_and_strings_are_elements() -> None:
    elections = ElectLeadersRequest(0, [ElectLeadersTopicPartitions("t", list(range(10)))])
    data = encode(elections, 2)
    assert decode(ElectLeadersRequest, 2, data, 0, 11)[0] == elections
    with pytest.raises(TooManyElementsError):
        decode(ElectLeadersRequest, 2, data, 0, 10)
    keys = encode(FindCoordinatorRequest(coordinator_keys=["k"] * 3), 4)
    with pytest.raises(TooManyElementsError):
        decode(FindCoordinatorRequest, 4, keys, 0, 2)


def test_the_count_is_refused_before_an_element_is_created() -> None:
    """The bytes end after the count, which fits the rest of the buffer."""
    data = b"\0\0\x03\xe8" + bytes(1000 * 2)
    with pytest.raises(TooManyElementsError):
        decode(MetadataRequest, 0, data, 0, 999)


def test_an_impossible_count_is_reported_as_such() -> None:
    with pytest.raises(ProtocolError, match="claims 1000 elements in the remaining 1 bytes"):
        decode(MetadataRequest, 0, b"\0\0\x03\xe8\0", 0, 10)


def test_unknown_tagged_fields_are_counted() -> None:
    """A frame of 100 MB has room for fifty million of them."""
    tags = b"".join(bytes([number, 0]) for number in range(10, 20))
    data = encode(FindCoordinatorRequest(), 3)[:-1] + b"\x0a" + tags
    assert decode(FindCoordinatorRequest, 3, data, 0, 10)[1] == len(data)
    with pytest.raises(TooManyElementsError, match="tag"):
        decode(FindCoordinatorRequest, 3, data, 0, 9)


def test_tagged_fields_of_a_request_header_are_limited() -> None:
    def header(tags: int) -> bytes:
        return b"\0\x03\0\x09\0\0\0\x01\xff\xff" + bytes([tags]) + b"\x20\0" * tags

    assert decode_request_header(header(MAX_HEADER_TAGS))[1] == len(header(MAX_HEADER_TAGS))
    with pytest.raises(TooManyElementsError):
        decode_request_header(header(MAX_HEADER_TAGS + 1))


def test_encoders_count_too() -> None:
    assert encode_parts(NESTED, 4, 16) == encode_parts(NESTED, 4)
    with pytest.raises(TooManyElementsError):
        encode_parts(NESTED, 4, 15)
