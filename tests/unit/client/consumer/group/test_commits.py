"""OffsetCommit, OffsetFetch and LeaveGroup for brokers of all ages (C3)."""

import pytest

from penstock.client.consumer.group.actions import Identity
from penstock.client.consumer.group.commits import (
    NEWEST_VERSION,
    commit_errors,
    commit_request,
    fetch_request,
    leave_request,
    read_offset_fetch,
)
from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.errors import IllegalStateError
from penstock.core.errors import ErrorCode, UnsupportedVersionError
from penstock.core.ids import TopicPartition
from penstock.protocol.codec import decode, encode
from penstock.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
OFFSETS = {
    A0: OffsetAndMetadata(5, "note", 3),
    B0: OffsetAndMetadata(7),
    A1: OffsetAndMetadata(0),
}


@pytest.mark.parametrize("version", range(1, NEWEST_VERSION + 1))
def test_a_commit_request_is_encoded_in_every_version(version: int) -> None:
    """Fields that an old version does not have are left out."""
    request = commit_request("g", Identity(4, "m"), OFFSETS)
    decoded, _ = decode(OffsetCommitRequest, version, encode(request, version), 0)
    assert (decoded.group_id, decoded.generation_id_or_member_epoch, decoded.member_id) == (
        "g",
        4,
        "m",
    )
    assert [(t.name, len(t.partitions)) for t in decoded.topics] == [("a", 2), ("b", 1)]
    first = decoded.topics[0].partitions[0]
    assert (first.committed_offset, first.committed_metadata) == (5, "note")
    assert first.committed_leader_epoch == (3 if version >= 6 else -1)


def test_a_static_member_needs_a_broker_with_static_membership() -> None:
    """An old broker would treat it as another member, so no request is sent."""
    request = commit_request("g", Identity(4, "m", "i"), OFFSETS)
    assert encode(request, 7)
    with pytest.raises(UnsupportedVersionError):
        encode(request, 6)


def test_negative_offsets_are_refused() -> None:
    with pytest.raises(IllegalStateError, match="offset -1 of a-0"):
        commit_request("g", Identity(), {A0: OffsetAndMetadata(-1)})


def test_errors_of_a_commit_response() -> None:
    response = OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                "a",
                partitions=[
                    OffsetCommitResponsePartition(0, 0),
                    OffsetCommitResponsePartition(1, ErrorCode.NOT_COORDINATOR),
                    OffsetCommitResponsePartition(2, 9999),
                ],
            )
        ]
    )
    assert commit_errors(response) == {
        A1: ErrorCode.NOT_COORDINATOR,
        TopicPartition("a", 2): ErrorCode.UNKNOWN_SERVER_ERROR,
    }


@pytest.mark.parametrize("version", range(1, NEWEST_VERSION + 1))
def test_a_fetch_request_is_encoded_in_every_version(version: int) -> None:
    make = fetch_request("g", [A0, A1, B0], Identity(4, "m"))
    request, _ = decode(OffsetFetchRequest, version, encode(make(version), version), 0)
    assert request.require_stable == (version >= 7)
    if version < 8:
        assert request.group_id == "g"
        assert request.topics is not None
        requested = [(topic.name, topic.partition_indexes) for topic in request.topics]
    else:
        (group,) = request.groups
        assert group.group_id == "g"
        if version >= 9:
            assert (group.member_id, group.member_epoch) == ("m", 4)
        assert group.topics is not None
        requested = [(topic.name, topic.partition_indexes) for topic in group.topics]
    assert requested == [("a", [0, 1]), ("b", [0])]


def test_classic_members_send_no_epoch() -> None:
    request = fetch_request("g", [A0], None)(9)
    assert isinstance(request, OffsetFetchRequest)
    assert (request.groups[0].member_id, request.groups[0].member_epoch) == (None, -1)


def test_offsets_and_errors_of_a_fetch_response() -> None:
    expected = {A0: OffsetAndMetadata(5, "note", 3), A1: None}
    errors = {B0: ErrorCode.UNSTABLE_OFFSET_COMMIT}
    new = OffsetFetchResponseGroup(
        "g",
        [
            OffsetFetchResponseTopics(
                "a",
                partitions=[
                    OffsetFetchResponsePartitions(0, 5, 3, "note"),
                    OffsetFetchResponsePartitions(1, -1),
                ],
            ),
            OffsetFetchResponseTopics(
                "b",
                partitions=[
                    OffsetFetchResponsePartitions(0, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
                ],
            ),
        ],
    )
    results = read_offset_fetch(OffsetFetchResponse(groups=[new]))
    assert (results.error, results.offsets, results.errors) == (ErrorCode.NONE, expected, errors)
    old = OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                "a",
                [OffsetFetchResponsePartition(0, 5, 3, None), OffsetFetchResponsePartition(1, -1)],
            )
        ],
        error_code=ErrorCode.NOT_COORDINATOR,
    )
    results = read_offset_fetch(old)
    assert results.error is ErrorCode.NOT_COORDINATOR
    assert results.offsets == {A0: OffsetAndMetadata(5, "", 3), A1: None}


@pytest.mark.parametrize("version", range(6))
def test_a_leave_request_is_encoded_in_every_version(version: int) -> None:
    request = LeaveGroupRequest("g", members=[MemberIdentity("m", None, "tired")])
    request_of_version = leave_request(request)(version)
    decoded, _ = decode(LeaveGroupRequest, version, encode(request_of_version, version), 0)
    ids = [decoded.member_id] if version < 3 else [member.member_id for member in decoded.members]
    assert (decoded.group_id, ids) == ("g", ["m"])
