"""The records of consumer groups, their replay, and the metadata hash of topics (C3)."""

from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinator.group.config import GroupConfig
from penstock.coordinator.group.consumer.metadata_hash import metadata_hash
from penstock.coordinator.group.consumer.model import (
    ConsumerGroup,
    ConsumerGroupMember,
    MemberState,
    ResolvedRegex,
)
from penstock.coordinator.group.consumer.records import (
    ConsumerGroupRecord,
    current_record,
    epoch_record,
    group_tombstones,
    member_record,
    member_tombstones,
    regex_record,
    target_epoch_record,
    target_record,
)
from penstock.coordinator.group.records import decode_record, encode_record
from penstock.coordinator.group.shard import GroupShard
from penstock.protocol.stored.consumer_group import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentTopicPartitions,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
)
from tests.support.coordinator.consumer_groups import Consumer, consumer_host, kinds, reconcile
from tests.support.coordinator.groups import FakeTopics, GroupHost

TOPIC = UUID("0f0e0d0c-0b0a-4908-8706-050403020100")
names = st.text(max_size=5)
epochs = st.dictionaries(
    st.uuids(), st.dictionaries(st.integers(0, 99), st.integers(0, 9), min_size=1), max_size=3
)
members = st.builds(
    ConsumerGroupMember,
    member_id=names,
    member_epoch=st.integers(-2, 99),
    previous_member_epoch=st.integers(-1, 99),
    state=st.sampled_from(list(MemberState)[:3]),
    instance_id=st.none() | names,
    rack_id=st.none() | names,
    rebalance_timeout_ms=st.integers(0, 99),
    client_id=names,
    client_host=names,
    subscribed_topic_names=st.frozensets(names, max_size=3),
    subscribed_topic_regex=st.none() | names,
    server_assignor=st.none() | names,
    assigned=epochs,
    pending_revocation=epochs,
    classic=st.none()
    | st.builds(
        ClassicMemberMetadata,
        st.integers(0, 99),
        st.lists(st.builds(ClassicProtocol, names, st.binary()), max_size=2),
    ),
)


@given(members)
def test_a_member_round_trips(member: ConsumerGroupMember) -> None:
    shard = GroupShard(GroupConfig(), FakeTopics({}))
    for record in (member_record("g", member), current_record("g", member)):
        decoded = decode_record(*encode_record(record))
        assert decoded == record
        assert isinstance(decoded, ConsumerGroupRecord)
        shard.apply(decoded)
    group = shard.groups["g"]
    assert group.members == {member.member_id: member}


@pytest.mark.parametrize(
    "record",
    [
        epoch_record("g", 7, -5),
        target_epoch_record("g", 7, 99),
        target_record("g", "m", {TOPIC: frozenset([2, 1])}),
        regex_record("g", "x.*", ResolvedRegex(frozenset(["b", "a"]), 3, 99)),
        *member_tombstones("g", "m"),
        *group_tombstones(ConsumerGroup("g")),
    ],
)
def test_records_round_trip(record: ConsumerGroupRecord) -> None:
    assert decode_record(*encode_record(record)) == record


def test_an_epoch_record_is_encoded_as_in_kafka() -> None:
    """Type 3; version 0, the epoch, and the hash as a tagged field."""
    key, value = encode_record(epoch_record("g", 7, -1))
    assert key == b"\x00\x03\x00\x01g"
    assert value == b"\x00\x00\x00\x00\x00\x07\x01\x00\x08" + b"\xff" * 8


# --- replay


def busy_host() -> GroupHost:
    host = consumer_host({"t": 6, "u": 2})
    members = [Consumer(host, m, names=["t", "u"]) for m in "abc"]
    members.append(Consumer(host, "s", instance="i"))
    for member in members:
        member.join()
    reconcile(*members)
    members[1].leave()
    members[3].leave(-2)
    reconcile(members[0], members[2])
    return host


def test_a_compacted_log_leads_to_the_same_state() -> None:
    """Compaction keeps the last value of each key at its position."""
    host = busy_host()
    last = {key: index for index, (key, _) in enumerate(host.log)}
    live = host.shard.groups
    for retained in ("all", "no tombstones"):
        shard = GroupShard(host.config, host.topics)
        for index, (key, value) in enumerate(host.log):
            if last[key] != index or (retained == "no tombstones" and value is None):
                continue
            record = decode_record(key, value)
            assert isinstance(record, ConsumerGroupRecord)
            shard.apply(record)
        stored = shard.groups["g"]
        assert isinstance(stored, ConsumerGroup)
        stored.metadata_checked = host.consumer().metadata_checked
        assert stored == live["g"]


def test_a_log_that_is_half_compacted_leads_to_the_same_state() -> None:
    host = busy_host()
    random = Random(4)
    for _ in range(50):
        clean = random.randrange(len(host.log))
        last = {key: index for index, (key, _) in enumerate(host.log[:clean])}
        shard = GroupShard(host.config, host.topics)
        for index, (key, value) in enumerate(host.log):
            if index < clean and last[key] != index:
                continue
            record = decode_record(key, value)
            assert isinstance(record, ConsumerGroupRecord)
            shard.apply(record)
        stored = shard.groups["g"]
        assert isinstance(stored, ConsumerGroup)
        stored.metadata_checked = host.consumer().metadata_checked
        assert stored == host.consumer()


def test_tombstones_of_unknown_keys_are_ignored() -> None:
    shard = GroupShard(GroupConfig(), FakeTopics({}))
    for record in (*member_tombstones("g", "m"), *group_tombstones(ConsumerGroup("g"))):
        shard.apply(record)
    assert not shard.groups


def test_partitions_stored_before_kafka_4_3_get_the_members_epoch() -> None:
    shard = GroupShard(GroupConfig(), FakeTopics({}))
    topic = ConsumerGroupCurrentMemberAssignmentTopicPartitions(TOPIC, [0, 4], [])
    value = ConsumerGroupCurrentMemberAssignmentValue(6, 5, 0, [topic])
    shard.apply(ConsumerGroupRecord(ConsumerGroupCurrentMemberAssignmentKey("g", "m"), value))
    (member,) = shard.groups["g"].members.values()
    assert isinstance(member, ConsumerGroupMember)
    assert member.assigned == {TOPIC: {0: 6, 4: 6}}


def test_metadata_stored_before_kafka_4_1_is_deleted_with_the_next_hash() -> None:
    host = consumer_host()
    member = Consumer(host, "a")
    member.join()
    old = ConsumerGroupRecord(
        ConsumerGroupPartitionMetadataKey("g"), ConsumerGroupPartitionMetadataValue()
    )
    host.log.append(encode_record(old))
    host.restart()
    since = len(host.log)
    member.beat()
    assert kinds(host, since) == [-4]
    member.beat()
    assert kinds(host, since) == [-4]


# --- the hash of the topics


class OneTopic(FakeTopics):
    """A topic with the id that was passed to Kafka's classes."""

    def topic_id(self, name: str) -> UUID | None:
        return TOPIC if name in self.partitions else None


@pytest.mark.parametrize(
    ("name", "partitions", "racks", "expected"),
    [
        ("t", 0, {}, 3_225_180_113_517_784_766),
        ("t", 1, {}, -8_627_046_277_967_201_222),
        ("orders", 4, {}, 7_101_667_489_509_794_366),
        ("orders", 200, {}, 4_401_878_609_464_383_349),
        ("grüße", 3, {}, 7_063_168_536_511_428_201),
        ("orders", 2, {0: ["rack-b", "a"], 1: ["a"]}, 8_057_695_997_089_407_532),
    ],
)
def test_the_hash_is_kafkas(
    name: str, partitions: int, racks: dict[int, list[str]], expected: int
) -> None:
    """The expected values were computed with Kafka 4.3.1's classes."""
    topics = OneTopic({name: partitions})
    topics.racks = {(name, partition): result for partition, result in racks.items()}
    assert metadata_hash([name, "not there"], topics) == expected


def test_no_topics_hash_to_0() -> None:
    assert metadata_hash(["t"], FakeTopics({})) == 0
    assert metadata_hash([], FakeTopics({"t": 1})) == 0


def test_the_order_of_the_names_does_not_matter() -> None:
    topics = FakeTopics({"a": 1, "b": 2, "c": 3})
    assert metadata_hash(["a", "b", "c"], topics) == metadata_hash(["c", "a", "b"], topics)
    assert metadata_hash(["a", "b"], topics) != metadata_hash(["a", "c"], topics)
