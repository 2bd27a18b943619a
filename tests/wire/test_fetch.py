"""Fetch: limits, offsets, epochs, topic ids, fairness (C1, C2, P7, R4)."""

from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace

from penstock.controller.broker_updates import PartitionUpdate
from penstock.controller.metadata import Put
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.records.batch import split
from penstock.replication.partition import Partition
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.protocol.requests import (
    batch_of,
    fetch_partition,
    fetch_request,
    make_topic,
    partitions_of,
    produce_values,
    records_in,
    values_in,
)

VERSIONS = range(4, 19)
SOME_VERSIONS = [4, 11, 12, 13, 18]


@pytest.fixture(scope="module")
def broker_directory(disk_directory: Path) -> Path:
    return disk_directory


def create_filled_topic(
    client: WireClient, topic: str, partitions: int = 1, batches: int = 3
) -> UUID:
    topic_id = make_topic(client, topic, partitions)
    for partition in range(partitions):
        for number in range(batches):
            produce_values(client, topic, b"%d-%d" % (partition, number), partition=partition)
    return topic_id


def topic_key(topic: str, topic_id: UUID, version: int) -> str | UUID:
    return topic_id if version >= 13 else topic


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_fetched_in_every_version(client: WireClient, version: int) -> None:
    """C2: records, high watermark, last stable offset and log start offset."""
    topic = topic_key(f"every-{version}", create_filled_topic(client, f"every-{version}"), version)
    response = client.request(fetch_request({topic: {0: 1}}), version)
    assert response.error_code == response.session_id == response.throttle_time_ms == 0
    ((key, data),) = partitions_of(response).items()
    assert key == (topic, 0)
    assert data.error_code == 0
    assert (data.high_watermark, data.last_stable_offset) == (3, 3)
    assert data.log_start_offset == (0 if version >= 5 else -1)
    assert data.preferred_read_replica == -1
    assert values_in(data) == [b"0-1", b"0-2"]
    assert (data.diverging_epoch.epoch, data.current_leader.leader_id) == (-1, -1)


@pytest.mark.parametrize("version", SOME_VERSIONS)
def test_a_fetch_at_the_log_end_returns_no_records(client: WireClient, version: int) -> None:
    topic = topic_key(f"end-{version}", create_filled_topic(client, f"end-{version}"), version)
    data = fetch_partition(client, topic, 3, version=version)
    assert (data.error_code, data.high_watermark) == (0, 3)
    assert data.records == b"", "some clients cannot read null"


@pytest.mark.parametrize("version", SOME_VERSIONS)
@pytest.mark.parametrize("offset", [4, -1, 2**62])
def test_offsets_out_of_range_are_rejected(client: WireClient, version: int, offset: int) -> None:
    name = f"range-{version}-{offset}"
    topic = topic_key(name, create_filled_topic(client, name), version)
    data = fetch_partition(client, topic, offset, version=version)
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (data.high_watermark, data.records) == (-1, b"")


@pytest.mark.parametrize("version", [4, 8, 12])
def test_unknown_topics_and_partitions_have_errors(client: WireClient, version: int) -> None:
    create_filled_topic(client, f"known-{version}")
    for topic, partition in (("unknown", 0), (f"known-{version}", 1), (f"known-{version}", -1)):
        data = fetch_partition(client, topic, partition=partition, version=version)
        assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [13, 15, 18])
def test_unknown_topic_ids_have_errors(client: WireClient, version: int) -> None:
    assert (
        fetch_partition(client, UUID(int=9), version=version).error_code
        == ErrorCode.UNKNOWN_TOPIC_ID
    )


@pytest.mark.parametrize("version", SOME_VERSIONS)
def test_read_committed_without_transactions(client: WireClient, version: int) -> None:
    """No transaction is open, so everything is committed and nothing was aborted."""
    topic = topic_key(
        f"committed-{version}", create_filled_topic(client, f"committed-{version}"), version
    )
    response = client.request(fetch_request({topic: {0: 0}}, isolation=1), version)
    (data,) = partitions_of(response).values()
    assert data.last_stable_offset == 3
    assert data.aborted_transactions == []
    assert len(records_in(data)) == 3
    response = client.request(fetch_request({topic: {0: 0}}), version)
    (data,) = partitions_of(response).values()
    assert not data.aborted_transactions


@pytest.mark.parametrize("version", SOME_VERSIONS)
@pytest.mark.parametrize("limit", ["max_bytes", "partition_max_bytes"])
def test_the_first_batch_is_returned_whole_despite_the_limits(
    client: WireClient, version: int, limit: str
) -> None:
    """P7: a consumer with small limits makes progress, and gets no more than one batch."""
    name = f"large-{version}-{limit}"
    topic_id = make_topic(client, name)
    for value in (b"x" * 5000, b"y" * 5000):
        produce_values(client, name, value)
    offsets = {topic_key(name, topic_id, version): {0: 0}}
    if limit == "max_bytes":
        request = fetch_request(offsets, max_bytes=1000)
    else:
        request = fetch_request(offsets, partition_max_bytes=1000)
    (data,) = partitions_of(client.request(request, version)).values()
    assert values_in(data) == [b"x" * 5000]


@pytest.mark.parametrize("version", SOME_VERSIONS)
def test_limits_apply_to_whole_batches(client: WireClient, version: int) -> None:
    name = f"limits-{version}"
    topic = topic_key(name, create_filled_topic(client, name, batches=10), version)
    size = len(batch_of(b"0-0"))
    request = fetch_request({topic: {0: 0}}, partition_max_bytes=3 * size + 1)
    (data,) = partitions_of(client.request(request, version)).values()
    assert len(split(data.records, allow_partial=True)) == 3
    request = fetch_request({topic: {0: 0}}, max_bytes=2 * size + 1)
    (data,) = partitions_of(client.request(request, version)).values()
    assert len(split(data.records, allow_partial=True)) == 2


def test_only_the_first_partition_may_exceed_the_limit(client: WireClient) -> None:
    make_topic(client, "several", 3)
    for partition in range(3):
        produce_values(client, "several", b"z" * 5000, partition=partition)
    request = fetch_request({"several": {0: 0, 1: 0, 2: 0}}, max_bytes=100)
    result = partitions_of(client.request(request, 11))
    assert [len(records_in(result["several", index])) for index in range(3)] == [1, 0, 0]
    assert {data.high_watermark for data in result.values()} == {1}


def test_small_limits_do_not_starve_partitions(client: WireClient) -> None:
    """In a session, a partition that returned records moves to the end of the queue."""
    make_topic(client, "fair", 4)
    for partition in range(4):
        for _ in range(20):
            produce_values(client, "fair", b"z" * 500, partition=partition)
    offsets = dict.fromkeys(range(4), 0)
    response = client.request(fetch_request({"fair": offsets}, max_bytes=600, session=(0, 0)), 11)
    session_id = response.session_id
    for epoch in range(1, 40):
        for (_, index), data in partitions_of(response).items():
            offsets[index] += len(records_in(data))
        request = fetch_request({"fair": offsets}, max_bytes=600, session=(session_id, epoch))
        response = client.request(request, 11)
        assert response.error_code == 0
    assert max(offsets.values()) - min(offsets.values()) <= 2


@pytest.mark.parametrize("version", SOME_VERSIONS)
def test_an_error_of_one_partition_does_not_affect_others(client: WireClient, version: int) -> None:
    name = f"mixed-{version}"
    topic = topic_key(name, create_filled_topic(client, name, 2), version)
    result = partitions_of(client.request(fetch_request({topic: {0: 99, 1: 0, 7: 0}}), version))
    assert {index: data.error_code for (_, index), data in result.items()} == {
        0: ErrorCode.OFFSET_OUT_OF_RANGE,
        1: ErrorCode.NONE,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert len(records_in(result[topic, 1])) == 3


# --- leader epochs


def raise_epoch(broker: RunningBroker, topic: str, epoch: int) -> None:
    """Raises the leader epoch as if the controller had elected this broker again."""

    async def apply(inside: object) -> None:
        image = broker.app.broker.image
        before = image.partitions[TopicPartition(topic, 0)]
        record = replace(before, leader_epoch=epoch, partition_epoch=before.partition_epoch + 1)
        owner = image.topics[topic]
        image.apply([Put(record)])
        await broker.app.broker.replicas.apply_updates(
            [PartitionUpdate(record, owner.assignments[0], owner.topic_id, False)]
        )

    broker.wait(apply)


@pytest.mark.parametrize("version", [9, 12, 18])
def test_the_leader_epoch_of_the_client_is_validated(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    """R4: an old epoch is fenced and a newer one is unknown; both errors are sent at once."""
    name = f"epochs-{version}"
    topic = topic_key(name, create_filled_topic(client, name), version)
    raise_epoch(broker, name, 5)
    expected = {
        4: ErrorCode.FENCED_LEADER_EPOCH,
        5: ErrorCode.NONE,
        6: ErrorCode.UNKNOWN_LEADER_EPOCH,
        -1: ErrorCode.NONE,
    }
    for epoch, code in expected.items():
        request = fetch_request({topic: {0: 0}}, leader_epoch=epoch, max_wait_ms=5000, min_bytes=1)
        (data,) = partitions_of(client.request(request, version)).values()
        assert data.error_code == code
        if code is ErrorCode.FENCED_LEADER_EPOCH and version >= 12:
            assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (
                broker.app.broker.broker_id,
                5,
            )


@pytest.mark.parametrize("version", [12, 13, 18])
def test_a_diverging_epoch_is_reported(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    """R4: a fetch beyond the end of its last epoch gets the end offset of that epoch."""
    name = f"diverging-{version}"
    topic = topic_key(name, create_filled_topic(client, name), version)
    raise_epoch(broker, name, 4)
    assert produce_values(client, name, b"later") == 3
    request = fetch_request({topic: {0: 4}}, last_fetched_epoch=0, max_wait_ms=5000, min_bytes=1)
    (data,) = partitions_of(client.request(request, version)).values()
    assert data.error_code == 0
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 3)
    assert data.records == b""
    request = fetch_request({topic: {0: 3}}, last_fetched_epoch=0)
    (data,) = partitions_of(client.request(request, version)).values()
    assert data.diverging_epoch.epoch == -1
    assert values_in(data) == [b"later"]


def test_a_partition_led_by_another_broker_is_rejected(
    broker: RunningBroker, client: WireClient
) -> None:
    create_filled_topic(client, "elsewhere")

    def resign(inside: object) -> None:
        partition = broker.app.broker.replicas.find("elsewhere", 0).partition
        assert isinstance(partition, Partition)
        partition.is_leader = False

    broker.call(resign)
    for version in (4, 10):
        data = fetch_partition(client, "elsewhere", version=version)
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    data = fetch_partition(client, "elsewhere", version=11)
    assert data.error_code == 0, "newer clients may read from followers (KIP-392)"
    assert values_in(data) == [b"0-0", b"0-1", b"0-2"]


def test_a_fenced_client_learns_the_leader(broker: RunningBroker, client: WireClient) -> None:
    create_filled_topic(client, "fenced")

    def elect_again(inside: object) -> None:
        partition = broker.app.broker.replicas.find("fenced", 0).partition
        assert isinstance(partition, Partition)
        partition.leader_epoch += 1

    broker.call(elect_again)
    request = fetch_request({"fenced": {0: 0}}, leader_epoch=0)
    (data,) = partitions_of(client.request(request, 12)).values()
    assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert data.current_leader.leader_id == broker.app.broker.broker_id


@pytest.mark.parametrize("version", [0, 3, 5, 6, 12])
def test_a_partition_in_an_offline_log_directory(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    """E7: old clients do not know KAFKA_STORAGE_ERROR; they look for the leader instead."""
    name = f"offline-{version}"
    create_filled_topic(client, name)
    broker.call(lambda inside: inside.replicas.find(name, 0).replace_log(None))
    expected_code = (
        ErrorCode.KAFKA_STORAGE_ERROR if version > 5 else ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    assert fetch_partition(client, name, version=version).error_code == expected_code


def test_fetch_accepts_the_topic_ids_of_metadata(client: WireClient) -> None:
    topic_id = create_filled_topic(client, "ids")
    topics = client.request(MetadataRequest([MetadataRequestTopic(name="ids")]), 12).topics
    assert topics[0].topic_id == topic_id
    assert len(records_in(fetch_partition(client, topic_id, version=13))) == 3
