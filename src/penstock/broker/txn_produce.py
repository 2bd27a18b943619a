"""Batches of transactions in a Produce: whose they are, and whether they may be appended (P4)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.txn_verification import TransactionSupport, Verified, produce_error
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.records.batch import HEADER_SIZE, read_header

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


class TxnBatch(NamedTuple):
    """What a transactional batch says of its producer."""

    producer_id: int
    producer_epoch: int
    base_sequence: int

    @classmethod
    def of(cls, records: memoryview) -> "TxnBatch | None":
        """None where it is cut off: the append refuses it."""
        if len(records) < HEADER_SIZE:
            return None
        header = read_header(records)
        return cls(header.producer_id, header.producer_epoch, header.base_sequence)


def is_ongoing(broker: "Broker", partition: TopicPartition, batch: TxnBatch) -> bool:
    """Whether the transaction has records in the partition, so that nobody need be asked."""
    return broker.txn_verification.is_ongoing(partition, batch.producer_id, batch.producer_epoch)


async def verify(
    broker: "Broker",
    version: int,
    transactional_id: str,
    batches: Mapping[TopicPartition, TxnBatch],
) -> dict[TopicPartition, Verified]:
    """Asks the coordinator about batches that may be the first of their transaction."""
    producers = {(batch.producer_id, batch.producer_epoch) for batch in batches.values()}
    if len(producers) > 1:
        error = KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"the request has batches of {len(producers)} producers: a transaction has one",
        )
        return dict.fromkeys(batches, error)
    ((producer_id, producer_epoch),) = producers
    support = TransactionSupport.of_produce(version)
    verified = await broker.txn_verification.verify(
        transactional_id,
        producer_id,
        producer_epoch,
        {partition: batch.base_sequence for partition, batch in batches.items()},
        support,
    )
    return {
        partition: produce_error(each, support) if isinstance(each, KafkaError) else each
        for partition, each in verified.items()
    }
