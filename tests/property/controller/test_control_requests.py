"""Broker updates survive encoding as requests, in the versions that have their fields."""

from typing import TypeVar
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.controller.broker_updates import (
    BrokerUpdate,
    PartitionUpdate,
    ReplicaStop,
    broker_updates,
    full_update,
    metadata_changes,
)
from penstock.controller.control_requests import (
    ControlRequests,
)
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Assignment,
    BrokerKey,
    BrokerRecord,
    Change,
    ControllerEpochRecord,
    Delete,
    Endpoint,
    PartitionRecord,
    Put,
    Record,
    SecurityProtocol,
    TopicKey,
    TopicRecord,
)
from penstock.controller.received_updates import (
    update_of_leader_and_isr,
    update_of_stop_replica,
    update_of_update_metadata,
)
from penstock.core.ids import TopicPartition
from penstock.protocol.codec import decode, encode
from penstock.protocol.fields import Message
from penstock.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from penstock.protocol.messages.stop_replica import (
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicV1,
)
from penstock.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.support.cluster.images import image_after

M = TypeVar("M", bound=Message)

LEADER_AND_ISR_VERSION = 7
UPDATE_METADATA_VERSION = 8
STOP_REPLICA_VERSION = 4

EPOCHS = st.integers(0, 2**31 - 1)
BROKER_IDS = st.integers(0, 5)
REPLICAS = st.lists(BROKER_IDS, min_size=1, max_size=4, unique=True).map(tuple)
TOPIC_NAMES = st.sampled_from(["a", "b", "c", "d"])
ENDPOINTS = st.builds(
    Endpoint,
    st.sampled_from(["INTERNAL", "CLIENT"]),
    st.sampled_from(["h1", "h2"]),
    st.integers(1, 65535),
    st.sampled_from(SecurityProtocol),
)


def sent(message: M, version: int) -> M:
    return decode(type(message), version, encode(message, version))[0]


@st.composite
def partition_records(draw: st.DrawFn, topic: str, number: int, isr: tuple[int, ...]) -> object:
    return PartitionRecord(
        topic=topic,
        partition=number,
        leader=draw(st.sampled_from([*isr, -1])),
        leader_epoch=draw(EPOCHS),
        isr=isr,
        controller_epoch=draw(EPOCHS),
        partition_epoch=draw(EPOCHS),
    )


@st.composite
def images(draw: st.DrawFn) -> ClusterImage:
    """Images of any content, as far as UpdateMetadata has it."""
    image = ClusterImage()
    image.apply([Put(ControllerEpochRecord(draw(EPOCHS)))])
    for broker_id in draw(st.lists(BROKER_IDS, min_size=1, unique=True)):
        endpoints = tuple(draw(st.lists(ENDPOINTS, min_size=1, max_size=2)))
        rack = draw(st.sampled_from([None, "", "r1"]))
        image.apply([Put(BrokerRecord(broker_id, endpoints, rack, -1, {}, -1))])
    for topic in draw(st.lists(TOPIC_NAMES, unique=True)):
        replicas = draw(st.lists(REPLICAS, min_size=1, max_size=4))
        assignments = {number: Assignment(value) for number, value in enumerate(replicas)}
        topic_id = UUID(int=draw(st.integers(1, 2)) << 8 | ord(topic))
        image.apply([Put(TopicRecord(topic, topic_id, assignments))])
        for number, value in enumerate(replicas):
            record = draw(partition_records(topic, number, value))
            assert isinstance(record, PartitionRecord)
            image.apply([Put(record)])
    return image


def make_older(image: ClusterImage, target: ClusterImage) -> None:
    """Lowers the epochs of partitions to those of the target: brokers ignore older states."""
    for key, record in list(image.partitions.items()):
        newest = target.partitions.get(key)
        if newest is not None:
            leader_epoch, partition_epoch = min(_epochs(record), _epochs(newest))
            older = replace(record, leader_epoch=leader_epoch, partition_epoch=partition_epoch)
            image.apply([Put(older)])


def _epochs(record: PartitionRecord) -> tuple[int, int]:
    return record.leader_epoch, record.partition_epoch


def content(image: ClusterImage) -> object:
    return image.brokers, image.topics, image.topic_names, image.partitions


@settings(max_examples=150, deadline=None)
@given(images(), images())
def test_a_full_update_replaces_whatever_a_broker_knew(
    target: ClusterImage, known: ClusterImage
) -> None:
    make_older(known, target)
    update = full_update(target, next(iter(target.brokers)))
    request, *_ = ControlRequests(target, "INTERNAL").of(update)
    assert isinstance(request, UpdateMetadataRequest)
    received = update_of_update_metadata(sent(request, UPDATE_METADATA_VERSION), known)
    directly = image_after(known)
    known.apply(received.metadata)
    assert content(known) == content(target)
    directly.apply(metadata_changes(directly, update))
    assert content(directly) == content(target)
    again = update_of_update_metadata(sent(request, UPDATE_METADATA_VERSION), known)
    assert again.metadata == []


@settings(max_examples=150, deadline=None)
@given(images(), st.data())
def test_a_broker_that_gets_every_difference_has_the_image_of_the_controller(
    before: ClusterImage, data: st.DataObject
) -> None:
    target = data.draw(images())
    make_older(before, target)
    target.brokers.setdefault(0, BrokerRecord(0, (), None, -1, {}, -1))
    before.brokers.setdefault(0, BrokerRecord(0, (), None, -1, {}, -1))
    records: list[Record] = [
        *target.brokers.values(),
        *target.topics.values(),
        *target.partitions.values(),
    ]
    removed_partitions = any(
        len(topic.assignments) < len(before.topics[name].assignments)
        for name, topic in target.topics.items()
        if name in before.topics and before.topics[name].topic_id == topic.topic_id
    )
    if removed_partitions:
        return
    changes = before.changes_to(
        records, lambda key: isinstance(key, BrokerKey | TopicKey | TopicPartition)
    )
    broker_image = image_after(before)
    update = broker_updates(before, changes).get(0, BrokerUpdate(0, 0, 0))
    controller_image = image_after(before, changes)
    for request in ControlRequests(controller_image, "INTERNAL").of(update):
        if isinstance(request, UpdateMetadataRequest):
            message = sent(request, UPDATE_METADATA_VERSION)
            broker_image.apply(update_of_update_metadata(message, broker_image).metadata)
    assert content(broker_image) == content(controller_image)


@given(
    st.lists(
        st.tuples(TOPIC_NAMES, st.integers(0, 9), REPLICAS, st.booleans(), EPOCHS),
        unique_by=lambda entry: entry[:2],
    ),
    st.booleans(),
)
def test_leader_and_isr_round_trip(
    partitions: list[tuple[str, int, tuple[int, ...], bool, int]], is_full: bool
) -> None:
    partitions.sort()
    updates = [
        PartitionUpdate(
            PartitionRecord(topic, number, replicas[0], epoch, replicas, 4, 5),
            Assignment(replicas, replicas[:1], replicas[1:]),
            UUID(int=ord(topic)),
            is_new,
        )
        for topic, number, replicas, is_new, epoch in partitions
    ]
    update = BrokerUpdate(3, 4, 5, updates, is_full=is_full)
    for request in ControlRequests(ClusterImage(), "INTERNAL").of(update):
        if isinstance(request, LeaderAndIsrRequest):
            received = update_of_leader_and_isr(sent(request, LEADER_AND_ISR_VERSION))
            assert received == update


@given(
    st.lists(
        st.builds(
            ReplicaStop,
            st.builds(TopicPartition, TOPIC_NAMES, st.integers(0, 9)),
            st.integers(-2, 100),
            st.booleans(),
        ),
        min_size=1,
        unique_by=lambda stop: stop.key,
    )
)
def test_stop_replica_round_trip(stops: list[ReplicaStop]) -> None:
    update = BrokerUpdate(3, 4, 5, stops=sorted(stops))
    (request,) = ControlRequests(ClusterImage(), "INTERNAL").of(update)
    assert isinstance(request, StopReplicaRequest)
    assert update_of_stop_replica(sent(request, STOP_REPLICA_VERSION)) == update


# --- versions that Penstock does not send


@pytest.mark.parametrize("version", range(8))
def test_every_version_of_leader_and_isr_is_understood(version: int) -> None:
    topic_id = UUID(int=7)
    state = LeaderAndIsrPartitionState(
        topic_name="t" if version < 2 else "",
        partition_index=2,
        controller_epoch=3,
        leader=1,
        leader_epoch=4,
        isr=[1, 2],
        partition_epoch=5,
        replicas=[1, 2],
        is_new=version > 0,
    )
    if version < 2:
        request = LeaderAndIsrRequest(0, controller_epoch=3, ungrouped_partition_states=[state])
    else:
        topics = [LeaderAndIsrTopicState("t", topic_id, [state])]
        request = LeaderAndIsrRequest(0, controller_epoch=3, broker_epoch=9, topic_states=topics)
    update = update_of_leader_and_isr(sent(request, version))
    record = PartitionRecord("t", 2, 1, 4, (1, 2), 3, 5)
    assert update == BrokerUpdate(
        0,
        3,
        9 if version >= 2 else -1,
        [
            PartitionUpdate(
                record, Assignment((1, 2)), topic_id if version >= 5 else UUID(int=0), version > 0
            )
        ],
    )


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("delete", [False, True])
def test_old_versions_of_stop_replica_have_one_flag_for_all(version: int, delete: bool) -> None:
    request = StopReplicaRequest(1, controller_epoch=3, delete_partitions=delete)
    if version == 0:
        request.ungrouped_partitions = [StopReplicaPartitionV0("t", 2)]
    else:
        request.topics = [StopReplicaTopicV1("t", [2])]
    stops = update_of_stop_replica(sent(request, version)).stops
    assert stops == [ReplicaStop(TopicPartition("t", 2), -1, delete)]


@pytest.mark.parametrize("version", range(9))
def test_every_version_of_update_metadata_is_understood(version: int) -> None:
    broker = UpdateMetadataBroker(id=1)
    if version == 0:
        broker.v0_host, broker.v0_port = "h", 9
    else:
        broker.endpoints = [UpdateMetadataEndpoint(9, "h", "SSL" if version > 2 else "", 1)]
    state = UpdateMetadataPartitionState(
        topic_name="t" if version < 5 else "",
        controller_epoch=3,
        leader=1,
        leader_epoch=4,
        isr=[1],
        zk_version=5,
        replicas=[1, 2],
    )
    request = UpdateMetadataRequest(0, controller_epoch=3, live_brokers=[broker])
    if version < 5:
        request.ungrouped_partition_states = [state]
    else:
        request.topic_states = [UpdateMetadataTopicState("t", UUID(int=7), [state])]
    image = ClusterImage()
    metadata = update_of_update_metadata(sent(request, version), image).metadata
    protocol = SecurityProtocol.PLAINTEXT if version == 0 else SecurityProtocol.SSL
    endpoint = Endpoint(protocol.value, "h", 9, protocol)
    topic_id = UUID(int=7 if version >= 7 else 0)
    rack = "" if version < 2 else broker.rack
    assert metadata == [
        Put(BrokerRecord(1, (endpoint,), rack, -1, {}, -1)),
        Put(TopicRecord("t", topic_id, {0: Assignment((1, 2))})),
        Put(PartitionRecord("t", 0, 1, 4, (1,), 3, 5)),
    ]


def test_the_leader_of_a_deleted_partition_removes_it_and_the_last_one_the_topic() -> None:
    image = ClusterImage()
    topic = TopicRecord("t", UUID(int=7), {0: Assignment((1,)), 1: Assignment((1,))})
    records = [PartitionRecord("t", number, 1, 0, (1,), 0, 0) for number in (0, 1)]
    image.apply([Put(BrokerRecord(1, (), None, 0, {}, 1)), Put(topic), *map(Put, records)])
    first_only = Put(replace(topic, assignments={0: Assignment((1,))}))
    expected: list[list[Change]] = [
        [Delete(TopicPartition("t", 0)), Delete(TopicKey("t"))],
        [Delete(BrokerKey(1)), Delete(TopicPartition("t", 1)), first_only],
    ]
    for number in (1, 0):
        states = [UpdateMetadataPartitionState(partition_index=number, leader=-2)]
        topic_state = UpdateMetadataTopicState("t", UUID(int=0), states)
        request = UpdateMetadataRequest(topic_states=[topic_state])
        metadata = update_of_update_metadata(request, image).metadata
        assert metadata == expected[number]
        image.apply(metadata)
