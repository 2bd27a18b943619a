"""Produce: versions, acks and errors (P2, P6, P7, E2, E7)."""

import time
from uuid import UUID

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.records.batch import read_header
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.record import Record
from tests.support.broker.absent_replicas import add_absent_replica
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.protocol.requests import (
    NOW,
    batch_of,
    fetch_partition,
    make_topic,
    produce_request,
    produce_values,
    records_in,
    send_batch,
    values_in,
)
from tests.support.storage.batches import golden

WITH_BATCHES = range(3, 14)
NO_LEADER = (-1, -1)


@pytest.mark.parametrize("version", WITH_BATCHES)
def test_record_batches_are_produced_in_every_version(client: WireClient, version: int) -> None:
    """P2: offsets are consecutive; the response has the fields of its version."""
    topic = f"batches-{version}"
    topic_id = make_topic(client, topic)
    topic_key: str | UUID = topic_id if version >= 13 else topic
    for first in (0, 2):
        response = send_batch(client, topic_key, batch_of(b"a", b"b"), version=version)
        assert (response.error_code, response.base_offset, response.index) == (0, first, 0)
        assert response.log_append_time_ms == -1
        assert response.log_start_offset == (0 if version >= 5 else -1)
        assert response.error_message is None
    result = fetch_partition(client, topic)
    assert values_in(result) == [b"a", b"b"] * 2
    assert [record.offset for record in records_in(result)] == [0, 1, 2, 3]


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("name", ["v0_none", "v0_gzip", "v1_none", "v1_snappy", "v1_lz4"])
def test_old_message_sets_are_stored_as_batches(
    client: WireClient, version: int, name: str
) -> None:
    topic = f"{name}-{version}"
    make_topic(client, topic)
    response = send_batch(client, topic, golden("legacy")[name], version=version)
    assert (response.error_code, response.base_offset) == (0, 0)
    result = fetch_partition(client, topic)
    header = read_header(result.records)
    assert header.magic == 2
    assert [record.value for record in records_in(result)] == [b"v0", None, b"w" * 100]
    assert [record.offset for record in records_in(result)] == [0, 1, 2]
    assert result.high_watermark == 3


@pytest.mark.parametrize("version", [3, 8, 12])
def test_old_message_sets_in_new_requests_are_rejected(client: WireClient, version: int) -> None:
    topic = f"mixed-{version}"
    make_topic(client, topic)
    response = send_batch(client, topic, golden("legacy")["v1_none"], version=version)
    assert response.error_code == ErrorCode.INVALID_RECORD
    assert fetch_partition(client, topic).high_watermark == 0


@pytest.mark.parametrize("version", [3, 9, 12])
@pytest.mark.parametrize("acks", [1, -1])
def test_records_are_stored_with_acks_1_and_all(
    client: WireClient, version: int, acks: int
) -> None:
    topic = f"acks-{version}{acks}"
    make_topic(client, topic)
    assert send_batch(client, topic, batch_of(b"a"), version=version, acks=acks).error_code == 0
    assert values_in(fetch_partition(client, topic)) == [b"a"]


@pytest.mark.parametrize("version", [0, 3, 9])
def test_without_acks_there_is_no_response(client: WireClient, version: int) -> None:
    """P2: the next response on the connection belongs to the next request."""
    topic = f"no-acks-{version}"
    make_topic(client, topic)
    records = golden("legacy")["v1_none"] if version < 3 else batch_of(b"a")
    client.send(produce_request(topic, records, acks=0), version)
    assert client.request(ApiVersionsRequest(), 0).error_code == 0
    assert fetch_partition(client, topic).high_watermark > 0


@pytest.mark.parametrize("version", [3, 9])
def test_an_error_without_acks_closes_the_connection(broker: RunningBroker, version: int) -> None:
    with broker.connect() as client:
        client.send(produce_request("nowhere", batch_of(b"a"), acks=0), version)
        assert client.is_closed()
    with broker.connect() as client:
        make_topic(client, f"corrupt-no-acks-{version}")
        broken = bytearray(batch_of(b"a"))
        broken[-1] ^= 1
        client.send(produce_request(f"corrupt-no-acks-{version}", bytes(broken), acks=0), version)
        assert client.is_closed()


@pytest.mark.parametrize("acks", [2, -2, 32767])
@pytest.mark.parametrize("version", [3, 8, 12])
def test_invalid_acks_are_rejected(client: WireClient, acks: int, version: int) -> None:
    topic = f"bad-acks-{acks}-{version}"
    make_topic(client, topic)
    response = send_batch(client, topic, batch_of(b"a"), version=version, acks=acks)
    assert (response.error_code, response.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert fetch_partition(client, topic).high_watermark == 0


@pytest.mark.parametrize("version", [8, 9])
def test_some_errors_have_the_log_start_offset(client: WireClient, version: int) -> None:
    """As in Kafka, it is missing if no append was attempted and for some validation errors.

    Version 9 uses the fast path of small requests.
    """
    topic, strict = f"starts-{version}", f"strict-{version}"
    make_topic(client, topic, configs={"max.message.bytes": "200"})
    make_topic(client, strict, configs={"message.timestamp.before.max.ms": "3600000"})
    recent = time.time_ns() // 1_000_000
    for name in (topic, strict):
        assert send_batch(client, name, batch_of(b"a", b"b", timestamp=recent)).error_code == 0
        delete = DeleteRecordsTopic(name, [DeleteRecordsPartition(0, 1)])
        client.request(DeleteRecordsRequest([delete], 5000), 2)

    def send_invalid(name: str, records: bytes, **options: int) -> tuple[ErrorCode, int]:
        response = send_batch(client, name, records, version=version, **options)
        return ErrorCode(response.error_code), response.log_start_offset

    batches = batch_of(b"a", producer=(7, 0, 0)), batch_of(b"a", producer=(7, 0, 5))
    assert send_invalid(topic, batches[0]) == (ErrorCode.NONE, 1)
    assert send_invalid(topic, batches[1]) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1)
    assert send_invalid(strict, batch_of(b"a")) == (ErrorCode.INVALID_TIMESTAMP, 1)
    broken = bytearray(batch_of(b"a"))
    broken[-1] ^= 1
    assert send_invalid(topic, bytes(broken)) == (ErrorCode.CORRUPT_MESSAGE, -1)
    assert send_invalid(topic, batch_of(bytes(300))) == (ErrorCode.MESSAGE_TOO_LARGE, -1)
    assert send_invalid(topic, b"") == (ErrorCode.INVALID_RECORD, -1)
    assert send_invalid(topic, batch_of(b"a") * 2) == (ErrorCode.INVALID_RECORD, -1)
    assert send_invalid(topic, batch_of(b"a"), acks=7) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert send_invalid(topic, batch_of(b"a"), partition=3) == (unknown, -1)


@pytest.mark.parametrize("version", [0, 5, 12])
def test_unknown_topics_and_partitions_are_rejected(client: WireClient, version: int) -> None:
    make_topic(client, f"known-{version}", 2)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    records = golden("legacy")["v1_none"] if version < 3 else batch_of(b"a")
    for topic, partition in (("unknown", 0), (f"known-{version}", 2), (f"known-{version}", -1)):
        response = send_batch(client, topic, records, version=version, partition=partition)
        assert (response.error_code, response.index) == (unknown, partition)
        assert response.base_offset == -1


def test_an_unknown_topic_id_is_rejected(client: WireClient) -> None:
    response = send_batch(client, UUID(int=7), batch_of(b"a"), version=13)
    assert response.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [3, 9, 12])
def test_each_partition_has_its_own_result(client: WireClient, version: int) -> None:
    topic = f"some-{version}"
    make_topic(client, topic, 2)
    data = [PartitionProduceData(index, batch_of(b"%d" % index)) for index in (1, 5, 0)]
    request = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(topic, partition_data=data), TopicProduceData("none")],
    )
    response = client.request(request, version)
    assert [item.name for item in response.responses] == [topic, "none"]
    assert [
        (partition.index, partition.error_code)
        for partition in response.responses[0].partition_responses
    ] == [
        (1, 0),
        (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, 0),
    ]
    assert values_in(fetch_partition(client, topic, partition=1)) == [b"1"]


@pytest.mark.parametrize("version", [3, 8, 12])
def test_a_record_that_is_too_large_is_rejected(client: WireClient, version: int) -> None:
    """E2, P7: the error has the limit and its name, and nothing is stored."""
    topic = f"large-{version}"
    make_topic(client, topic, configs={"max.message.bytes": "1000"})
    response = send_batch(client, topic, batch_of(b"x" * 1000), version=version)
    assert response.error_code == ErrorCode.MESSAGE_TOO_LARGE
    if version >= 8:
        assert "1000" in response.error_message
        assert "max.message.bytes" in response.error_message
    assert produce_values(client, topic, b"x" * 900) == 0


@pytest.mark.parametrize("version", [3, 8, 12])
def test_corrupt_records_are_rejected(client: WireClient, version: int) -> None:
    topic = f"corrupt-{version}"
    make_topic(client, topic)
    broken = bytearray(batch_of(b"some value"))
    broken[-3] ^= 0x10
    response = send_batch(client, topic, bytes(broken), version=version)
    assert response.error_code == ErrorCode.CORRUPT_MESSAGE
    truncated = send_batch(client, topic, batch_of(b"some value")[:-1], version=version)
    assert truncated.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    assert fetch_partition(client, topic).high_watermark == 0


@pytest.mark.parametrize("version", [3, 9, 12])
@pytest.mark.parametrize("records", [None, b""])
def test_a_request_without_records_is_rejected(
    client: WireClient, version: int, records: bytes | None
) -> None:
    make_topic(client, topic := f"empty-{version}-{records is None}")
    response = send_batch(client, topic, records, version=version)
    assert response.error_code == ErrorCode.INVALID_RECORD


def test_two_batches_for_one_partition_are_rejected(client: WireClient) -> None:
    """Since record batches exist, Produce accepts exactly one batch."""
    make_topic(client, "two-batches")
    response = send_batch(client, "two-batches", batch_of(b"a") + batch_of(b"b"))
    assert response.error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(("version", "supported"), [(3, False), (6, False), (7, True), (12, True)])
def test_zstd_needs_version_7(client: WireClient, version: int, supported: bool) -> None:
    topic = f"zstd-{version}"
    make_topic(client, topic)
    records = batch_of(b"a", codec=Compression.ZSTD)
    response = send_batch(client, topic, records, version=version)
    expected = ErrorCode.NONE if supported else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert response.error_code == expected
    assert len(values_in(fetch_partition(client, topic))) == supported


@pytest.mark.parametrize("version", [3, 7, 8, 12])
def test_records_without_key_in_a_compacted_topic_are_rejected(
    client: WireClient, version: int
) -> None:
    """Every invalid record is listed, and nothing of the batch is stored."""
    topic = f"compacted-{version}"
    make_topic(client, topic, configs={"cleanup.policy": "compact"})
    response = send_batch(client, topic, batch_of(b"a", b"b"), version=version)
    assert response.error_code == ErrorCode.INVALID_RECORD
    if version >= 8:
        assert [record_error.batch_index for record_error in response.record_errors] == [0, 1]
        assert all(
            "key" in record_error.batch_index_error_message
            for record_error in response.record_errors
        )
        assert response.error_message
    else:
        assert response.record_errors == []
    response = send_batch(client, topic, batch_of(b"a", key=b"k"), version=version)
    assert (response.error_code, response.base_offset) == (0, 0)


@pytest.mark.parametrize("version", [3, 9, 12])
def test_too_few_in_sync_replicas_reject_acks_all(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    """E7: acks=all needs min.insync.replicas, acks=1 does not."""
    topic = f"insync-{version}"
    make_topic(client, topic, configs={"min.insync.replicas": "2"})
    add_absent_replica(broker, topic)
    response = send_batch(client, topic, batch_of(b"a"), version=version)
    assert response.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    if version >= 8:
        assert "min.insync.replicas=2" in response.error_message
    assert fetch_partition(client, topic).high_watermark == 0
    assert send_batch(client, topic, batch_of(b"a"), version=version, acks=1).error_code == 0


@pytest.mark.parametrize("version", [3, 9, 11, 12])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_transactional_batches_need_a_transaction(
    client: WireClient, version: int, codec: Compression
) -> None:
    """The transaction could never end and would block the last stable offset (P4, KIP-890)."""
    make_topic(client, topic := f"transactional-{version}-{codec.name}")
    assert produce_values(client, topic, b"first") == 0
    batch = build_batch(
        [Record(0, NOW, None, b"a")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
        compression=codec,
    )
    request = produce_request(topic, bytes(batch))
    for transactional_id in (None, f"unknown-{version}"):
        request.transactional_id = transactional_id
        find = FindCoordinatorRequest(key=transactional_id or "x", key_type=1)
        assert client.request(find, 3).error_code == 0
        (response,) = client.request(request, version).responses[0].partition_responses
        if transactional_id is None:
            assert response.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        else:
            assert response.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert produce_values(client, topic, b"second") == 1
    assert fetch_partition(client, topic).last_stable_offset == 2
