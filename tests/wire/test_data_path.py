"""Produce and fetch over the wire."""

from pathlib import Path

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.records.build import build_batch
from penstock.records.record import Record
from tests.support.broker.in_process import WireClient, running_broker


def create(client: WireClient, topic: str) -> None:
    response = client.request(MetadataRequest([MetadataRequestTopic(name=topic)]), 9)
    assert response.topics[0].error_code == 0


def produce(client: WireClient, topic: str, *values: bytes) -> int:
    batch = build_batch([Record(i, 1_700_000_000_000, None, v) for i, v in enumerate(values)])
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, bytes(batch))])]
    response = client.request(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data), 9)
    partition = response.responses[0].partition_responses[0]
    assert partition.error_code == 0
    offset: int = partition.base_offset
    return offset


def test_produced_records_are_fetched(disk_directory: Path) -> None:
    """M2, P2, C1."""
    with running_broker(disk_directory) as broker, broker.connect() as client:
        create(client, "t")
        assert produce(client, "t", b"a", b"b") == 0
        assert produce(client, "t", b"c") == 2
        topics = [
            FetchTopic(
                "t", partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)]
            )
        ]
        response = client.request(FetchRequest(max_wait_ms=100, min_bytes=1, topics=topics), 11)
        partition = response.responses[0].partitions[0]
        assert partition.error_code == ErrorCode.NONE
        assert partition.high_watermark == 3
