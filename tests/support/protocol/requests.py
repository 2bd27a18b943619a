"""Short functions for requests of producers and consumers, in any version."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from penstock.protocol.fields import ZERO_UUID, Message
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.protocol.messages.fetch import (
    FetchForgottenTopic,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.record import Record
from tests.support.broker.in_process import WireClient
from tests.support.storage.batches import iter_records

NOW = 1_700_000_000_000
FIRST_WITH_TOPIC_IDS = 13
SESSIONLESS = -1


def make_topic(
    client: WireClient,
    name: str,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
) -> UUID:
    """Creates a topic, which must succeed; returns its id."""
    topic = CreatableTopic(
        name,
        partitions,
        1,
        configs=[CreatableTopicConfig(*config) for config in (configs or {}).items()],
    )
    response = client.request(CreateTopicsRequest([topic], timeout_ms=5000), 7)
    result = response.topics[0]
    assert result.error_code == 0, result.error_message
    topic_id: UUID = result.topic_id
    return topic_id


def batch_of(
    *values: bytes | None,
    key: bytes | None = None,
    timestamp: int = NOW,
    codec: Compression = Compression.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """Builds a batch; `producer` has the producer id, epoch and first sequence number."""
    records = [Record(i, timestamp + i, key, value) for i, value in enumerate(values)]
    producer_id, epoch, sequence = producer
    return bytes(
        build_batch(
            records,
            compression=codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
    )


def produce_request(
    topic: str | UUID, records: bytes | None, partition: int = 0, acks: int = -1
) -> ProduceRequest:
    data = [PartitionProduceData(partition, records)]
    topic_data = TopicProduceData(partition_data=data)
    if isinstance(topic, str):
        topic_data.name = topic
    else:
        topic_data.topic_id = topic
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[topic_data])


def send_batch(
    client: WireClient,
    topic: str | UUID,
    records: bytes | None,
    *,
    version: int = 9,
    partition: int = 0,
    acks: int = -1,
) -> Any:
    """Produces to one partition; returns the response for that partition."""
    response = client.request(produce_request(topic, records, partition, acks), version)
    return response.responses[0].partition_responses[0]


def produce_values(
    client: WireClient, topic: str, *values: bytes | None, partition: int = 0
) -> int:
    """Produces one plain batch, which must succeed; returns its first offset."""
    response = send_batch(client, topic, batch_of(*values), partition=partition)
    assert response.error_code == 0, response.error_message
    offset: int = response.base_offset
    return offset


def receive_response(client: WireClient, request: Message, version: int) -> Any:
    """Returns the response to a request that was sent before."""
    return client.receive(request, version)


def fetch_request(
    offsets: Mapping[str | UUID, Mapping[int, int]],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, SESSIONLESS),
    forgotten: Mapping[str | UUID, Sequence[int]] | None = None,
    isolation: int = 0,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
) -> FetchRequest:
    """`offsets` has fetch offsets by topic and partition, `session` the session id and epoch."""
    topics = [
        FetchTopic(
            *_topic(topic),
            partitions=[
                FetchPartition(
                    index,
                    fetch_offset=offset,
                    partition_max_bytes=partition_max_bytes,
                    current_leader_epoch=leader_epoch,
                    last_fetched_epoch=last_fetched_epoch,
                )
                for index, offset in partitions.items()
            ],
        )
        for topic, partitions in offsets.items()
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics,
        forgotten_topics_data=[
            FetchForgottenTopic(*_topic(topic), partitions=list(partitions))
            for topic, partitions in (forgotten or {}).items()
        ],
    )


def _topic(topic: str | UUID) -> tuple[str, UUID]:
    return (topic, ZERO_UUID) if isinstance(topic, str) else ("", topic)


def partitions_of(response: Any) -> dict[tuple[str | UUID, int], Any]:
    """Returns the partitions of a Fetch response by topic (name, or else id) and index."""
    return {
        (topic.topic or topic.topic_id, partition.partition_index): partition
        for topic in response.responses
        for partition in topic.partitions
    }


def fetch_partition(
    client: WireClient, topic: str | UUID, offset: int = 0, *, partition: int = 0, version: int = 11
) -> Any:
    """Fetches a partition from an offset on, without waiting."""
    response = client.request(fetch_request({topic: {partition: offset}}), version)
    return response.responses[0].partitions[0]


def records_in(data: Any) -> list[Record]:
    """Returns the records in the response for a partition."""
    return list(iter_records(bytes(data.records or b"")))


def values_in(data: Any) -> list[bytes | None]:
    return [record.value for record in records_in(data)]


def new_producer(client: WireClient, version: int = 4) -> tuple[int, int]:
    """Returns a new producer id and its epoch."""
    response = client.request(InitProducerIdRequest(None, 0), version)
    assert response.error_code == 0
    return response.producer_id, response.producer_epoch
