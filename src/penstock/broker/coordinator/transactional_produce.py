"""Transactional batches in a Produce: their producers, and their verification (P4)."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.broker.coordinator.transaction_verification import (
    TransactionSupport,
    TransactionVerifier,
    Verification,
    produce_error,
)
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.produce import ProduceRequest
from penstock.records.batch import (
    FLAGS_AT,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL_FLAG,
    read_header,
)


class TransactionalBatch(NamedTuple):
    """The producer fields of a transactional batch."""

    producer_id: int
    producer_epoch: int
    base_sequence: int

    @property
    def producer(self) -> tuple[int, int]:
        return self.producer_id, self.producer_epoch

    @classmethod
    def of(cls, records: memoryview) -> "TransactionalBatch | None":
        """Returns None if the batch is truncated: the append refuses it."""
        if len(records) < HEADER_SIZE:
            return None
        header = read_header(records)
        return cls(header.producer_id, header.producer_epoch, header.base_sequence)


def has_transactional_records(body: ProduceRequest) -> bool:
    """Returns whether any batch of the request is part of a transaction."""
    for topic in body.topic_data:
        for data in topic.partition_data:
            if data.records is not None and is_transactional(data.records):
                return True
    return False


def is_transactional(records: bytes | memoryview) -> bool:
    """Returns whether the first batch is transactional; False for bytes that are no batch."""
    return (
        len(records) > FLAGS_AT
        and bool(records[FLAGS_AT] & TRANSACTIONAL_FLAG)
        and records[MAGIC_AT] == MAGIC
    )


def several_producers_error(batches: Iterable[TransactionalBatch | None]) -> KafkaError | None:
    """Returns an error if the request has transactional batches of several producers."""
    producers = {batch.producer for batch in batches if batch is not None}
    if len(producers) < 2:
        return None
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"the request has batches of {len(producers)} producers: a transaction has one",
    )


def is_ongoing(
    verifier: TransactionVerifier, partition: TopicPartition, batch: TransactionalBatch
) -> bool:
    """Returns whether the transaction has records in the partition: it is verified then."""
    return verifier.is_ongoing(partition, batch.producer_id, batch.producer_epoch)


async def verify(
    verifier: TransactionVerifier,
    version: int,
    transactional_id: str,
    batches: Mapping[TopicPartition, TransactionalBatch],
) -> dict[TopicPartition, Verification]:
    """Verifies batches of one producer that may be the first of their transaction."""
    ((producer_id, producer_epoch),) = {batch.producer for batch in batches.values()}
    support = TransactionSupport.of_produce(version)
    verifications = await verifier.verify(
        transactional_id,
        producer_id,
        producer_epoch,
        {partition: batch.base_sequence for partition, batch in batches.items()},
        support,
    )
    return {
        partition: produce_error(outcome, support) if isinstance(outcome, KafkaError) else outcome
        for partition, outcome in verifications.items()
    }
