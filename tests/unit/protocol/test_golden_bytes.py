"""Messages written out byte by byte, in the old and in the flexible encoding."""

from uuid import UUID

import pytest

from penstock.protocol.codec import decode, encode
from penstock.protocol.fields import Message
from penstock.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from penstock.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsTopicRequest,
)
from penstock.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchPartitionData,
    FetchResponse,
)
from penstock.protocol.messages.header import RequestHeader, ResponseHeader
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.protocol.stored.offsets import OffsetCommitKey, OffsetCommitValue
from penstock.protocol.stored.transaction_log import PartitionsSchema, TransactionLogValue

TOPIC_ID = UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")


def in_hex(text: str) -> bytes:
    """Bytes from hex, with everything from a `#` to the end of its line left out."""
    return bytes.fromhex("".join(line.partition("#")[0] for line in text.splitlines()))


GOLDEN: list[tuple[Message, int, str]] = [
    (
        RequestHeader(0, 9, 7, "me"),
        2,
        """
        0000 0009 00000007
        0002 6d65           # the client id keeps its two-byte length
        00                  # no tagged fields
        """,
    ),
    (RequestHeader(7, 0, 1), 0, "0007 0000 00000001"),
    (RequestHeader(3, 1, 2, None), 1, "0003 0001 00000002 ffff"),
    (ResponseHeader(16), 0, "00000010"),
    (ResponseHeader(16), 1, "00000010 00"),
    (
        ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=1500,
            topic_data=[
                TopicProduceData(name="t", partition_data=[PartitionProduceData(2, b"xyz")])
            ],
        ),
        8,
        """
        ffff ffff 000005dc
        00000001 0001 74            # one topic: "t"
        00000001 00000002           # one partition: 2
        00000003 78797a
        """,
    ),
    (
        ProduceRequest(
            transactional_id="tx",
            acks=1,
            timeout_ms=1500,
            topic_data=[
                TopicProduceData(
                    topic_id=TOPIC_ID,
                    partition_data=[PartitionProduceData(2, b"xyz"), PartitionProduceData(3, None)],
                )
            ],
        ),
        13,
        """
        03 7478 0001 000005dc
        02 000102030405060708090a0b0c0d0e0f
        03 00000002 04 78797a 00    # three bytes, no tagged fields
           00000003 00        00    # null records
        00
        00
        """,
    ),
    (MetadataRequest(topics=None), 1, "ffffffff"),
    (MetadataRequest(topics=[]), 0, "00000000"),
    (
        MetadataRequest(topics=[MetadataRequestTopic(name="ab")], allow_auto_topic_creation=False),
        9,
        """
        02 03 6162 00
        00 00 00                    # creation, authorized operations of cluster and topics
        00
        """,
    ),
    (ApiVersionsRequest("lib", "1.0"), 3, "04 6c6962 04 312e30 00"),
    (
        ApiVersionsResponse(
            api_keys=[ApiVersion(18, 0, 4)],
            supported_features=[SupportedFeatureKey("f", 1, 2)],
            finalized_features_epoch=5,
            finalized_features=[FinalizedFeatureKey("f", 2, 1)],
        ),
        3,
        """
        0000
        02 0012 0000 0004 00
        00000000
        03                                  # three tagged fields
        00 08 02 02 66 0001 0002 00
        01 08 0000000000000005
        02 08 02 02 66 0002 0001 00
        """,
    ),
    (
        FetchResponse(
            throttle_time_ms=1,
            responses=[
                FetchableTopicResponse(
                    topic="t",
                    partitions=[
                        FetchPartitionData(
                            partition_index=1,
                            high_watermark=9,
                            last_stable_offset=8,
                            aborted_transactions=[AbortedTransaction(4, 2)],
                            records=b"\xaa\xbb",
                        )
                    ],
                )
            ],
        ),
        4,
        """
        00000001
        00000001 0001 74
        00000001 00000001 0000 0000000000000009 0000000000000008
                 00000001 0000000000000004 0000000000000002
                 00000002 aabb
        """,
    ),
    (
        FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic_id=TOPIC_ID,
                    partitions=[
                        FetchPartitionData(
                            partition_index=1,
                            error_code=1,
                            high_watermark=9,
                            diverging_epoch=FetchEpochEndOffset(3, 7),
                            aborted_transactions=None,
                            records=None,
                        )
                    ],
                )
            ],
        ),
        16,
        """
        00000000 0000 00000000
        02 000102030405060708090a0b0c0d0e0f
        02 00000001 0001 0000000000000009
           ffffffffffffffff ffffffffffffffff
           00 ffffffff 00                   # no aborted transactions, no other replica, no records
           01                               # one tagged field: where the logs part
           00 0d 00000003 0000000000000007 00
        00
        00
        """,
    ),
    (
        DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsTopicRequest("t")],
            cursor=DescribeTopicPartitionsRequestCursor("t", 1),
        ),
        0,
        """
        02 02 74 00
        000007d0
        01 02 74 00000001 00                # a struct that could be null, and is not
        00
        """,
    ),
    (
        DescribeTopicPartitionsRequest(topics=[], response_partition_limit=1),
        0,
        "01 00000001 ff 00",
    ),
    (OffsetCommitKey("g", "t", 3), 0, "0001 67 0001 74 00000003"),
    (
        OffsetCommitValue(offset=5, leader_epoch=1, metadata="m", commit_timestamp=6),
        3,
        "0000000000000005 00000001 0001 6d 0000000000000006",
    ),
    (
        TransactionLogValue(
            producer_id=1,
            previous_producer_id=2,
            producer_epoch=3,
            transaction_timeout_ms=4,
            transaction_status=1,
            transaction_partitions=[PartitionsSchema("t", [0, 1])],
            transaction_last_update_timestamp_ms=5,
            transaction_start_timestamp_ms=6,
            client_transaction_version=2,
        ),
        1,
        """
        0000000000000001 0003 00000004 01
        02 02 74 03 00000000 00000001 00
        0000000000000005 0000000000000006
        02
        00 08 0000000000000002
        02 02 0002
        """,
    ),
]


@pytest.mark.parametrize(
    ("message", "version", "text"),
    GOLDEN,
    ids=[f"{type(message).__name__}-{version}" for message, version, _ in GOLDEN],
)
def test_golden(message: Message, version: int, text: str) -> None:
    expected = in_hex(text)
    assert encode(message, version) == expected
    assert decode(type(message), version, expected) == (message, len(expected))
