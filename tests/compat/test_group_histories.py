"""Kafka's coordinator and ours run the same random group histories (C3).

The steps are chosen from a seed: members join, send heartbeats, leave and expire, topics are
created and deleted, the coordinator restarts. Our state machine and Kafka's classes run each step;
responses and records must be equal, except for the order of elements in Java's hash tables.
"""

from base64 import b64decode
from collections.abc import Iterator
from itertools import groupby, islice

import pytest
from msgspec import Struct

from penstock.coordinator.group.record import Record
from penstock.coordinator.group.records import decode_record, encode_record
from penstock.coordinator.machine import Skipped
from penstock.protocol.codec import decode, encode
from penstock.protocol.fields import Message
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from penstock.protocol.messages.heartbeat import HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.leave_group import (
    LeaveGroupResponse,
)
from penstock.protocol.messages.offset_commit import OffsetCommitResponse
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
)
from penstock.protocol.messages.sync_group import SyncGroupResponse
from penstock.protocol.stored.classic_group import GroupMetadataValue
from penstock.protocol.stored.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupTargetAssignmentMemberValue,
)
from penstock.protocol.versioned import decode_versioned, encode_versioned
from tests.support.coordinator.group_histories import GroupHistory
from tests.support.kafka.broker import JAVA_DIRECTORY, KafkaParts

HISTORIES = 20


# --- normalization: independent of the order of Java's hash tables


def _plain_records(written: list[tuple[bytes, bytes | None]]) -> list[str]:
    """Returns the records as text; adjacent records of one type are sorted."""
    plain: list[tuple[type[Message], str]] = []
    for key, value in written:
        record = decode_record(key, value)
        assert not isinstance(record, Skipped), record
        assert encode_record(record)[0] == key
        if value is not None:
            assert sorted(encode_record(record)[1] or b"") == sorted(value)
        plain.append((type(record.key), repr(_sorted_lists(record))))
    runs = groupby(plain, key=lambda record: record[0])
    return [text for _, run in runs for text in sorted(text for _, text in run)]


def _sorted_lists(record: Record) -> Record:
    match record.value:
        case GroupMetadataValue() as group:
            group.members.sort(key=lambda member: member.member_id)
            group.leader = None if len(group.members) > 1 else group.leader
            for member in group.members:
                if member.assignment:
                    result, version = decode_versioned(
                        ConsumerProtocolAssignment, member.assignment
                    )
                    result.assigned_partitions.sort(key=lambda topic: topic.topic)
                    member.assignment = encode_versioned(result, version)
        case ConsumerGroupTargetAssignmentMemberValue() as target:
            for topic in target.topic_partitions:
                topic.partitions.sort()
            target.topic_partitions.sort(key=lambda topic: topic.topic_id)
        case ConsumerGroupCurrentMemberAssignmentValue() as current:
            for topics in (current.assigned_partitions, current.partitions_pending_revocation):
                topics.sort(key=lambda topic: topic.topic_id)
                for item in topics:
                    assert item.assignment_epochs is not None
                    pairs = sorted(zip(item.partitions, item.assignment_epochs, strict=True))
                    item.partitions = [partition for partition, _ in pairs]
                    item.assignment_epochs = [epoch for _, epoch in pairs]
    return record


def _plain(value: object) -> object:
    """Returns a message as plain values, with sorted lists and without error messages."""
    if isinstance(value, list):
        return sorted((_plain(item) for item in value), key=repr)
    if isinstance(value, Struct):
        return {
            name: _plain(getattr(value, name))
            for name in value.__struct_fields__
            if name != "error_message"
        }
    # Assignments are encoded, with topics in any order.
    return bytes(sorted(value)) if isinstance(value, bytes) else value


def _error(response: Message) -> int:
    """Returns the error code of a whole response."""
    match response:
        case OffsetCommitResponse():
            (error,) = {p.error_code for topic in response.topics for p in topic.partitions}
            return error
        case OffsetFetchResponse():
            return response.groups[0].error_code
        case LeaveGroupResponse():
            (error,) = {member.error_code for member in response.members} or {0}
            return error or response.error_code
        case (
            ConsumerGroupHeartbeatResponse()
            | JoinGroupResponse()
            | SyncGroupResponse()
            | HeartbeatResponse()
        ):
            return response.error_code
        case _:
            raise TypeError(f"Kafka refused a request to which we responded with {response}")


def _steps(output: str) -> Iterator[list[list[str]]]:
    step: list[list[str]] = []
    for line in output.splitlines():
        if line == "DONE":
            yield step
            step = []
        else:
            step.append(line.split(" "))


def _compare(history: GroupHistory, steps: list[list[list[str]]]) -> None:
    for line, ours, theirs in zip(history.lines, history.outcomes, steps, strict=True):
        where = f"history {history.seed}: {line}"
        written = [
            (b64decode(words[1]), None if words[2] == "-" else b64decode(words[2]))
            for words in theirs
            if words[0] == "RECORD"
        ]
        assert _plain_records(ours[0]) == _plain_records(written), where
        responded = {int(words[1]) for words in theirs if words[0] != "RECORD"}
        assert responded == set(ours[1]), where
        for words in theirs:
            if words[0] == "ERROR":
                assert _error(ours[1][int(words[1])]) == int(words[2]), where
            elif words[0] == "RESPONSE":
                response, version = history.requests[int(words[1])]
                expected, _ = decode(response, version, b64decode(words[2]))
                actual, _ = decode(response, version, encode(ours[1][int(words[1])], version))
                assert _plain(actual) == _plain(expected), where


@pytest.mark.parametrize("classic", [False, True], ids=["consumers", "mixed"])
def test_histories_have_kafkas_responses_and_records(
    kafka_parts: KafkaParts, *, classic: bool
) -> None:
    histories = [GroupHistory(seed, classic=classic) for seed in range(HISTORIES)]
    for history in histories:
        history.run()
    lines = [line for history in histories for line in history.lines]
    run = kafka_parts.run(JAVA_DIRECTORY / "DriveGroups.java", stdin="\n".join(lines) + "\n")
    steps = _steps(run.stdout)
    for history in histories:
        _compare(history, list(islice(steps, len(history.lines))))
