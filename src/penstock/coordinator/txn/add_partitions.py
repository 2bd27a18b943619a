"""AddPartitionsToTxn and AddOffsetsToTxn: the partitions of a transaction."""

from collections.abc import Iterable

from penstock.coordinator.txn.metadata import TransactionMetadata, prepare_add_partitions
from penstock.coordinator.txn.state import TransactionState
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)


def partitions_in(topics: Iterable[AddPartitionsToTxnTopic]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic.name, p) for topic in topics for p in topic.partitions)


def add_partitions(
    metadata: TransactionMetadata | None,
    producer_id: int,
    producer_epoch: int,
    partitions: frozenset[TopicPartition],
    client_transaction_version: int,
    now: int,
) -> TransactionMetadata | ErrorCode:
    """Returns the next state, or an error; NONE if all partitions are in the transaction
    already."""
    if metadata is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if metadata.state.is_ending:
        # Checked first: the producer may have the id already that it gets when the transaction
        # ends.
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if error := _check_producer(metadata, producer_id, producer_epoch):
        return error
    if metadata.state is TransactionState.ONGOING and partitions <= metadata.partitions:
        return ErrorCode.NONE
    return prepare_add_partitions(metadata, partitions, client_transaction_version, now)


def verify_partitions(
    metadata: TransactionMetadata | None, transaction: AddPartitionsToTxnTransaction
) -> AddPartitionsToTxnResult:
    """Returns whether partitions are in the transaction, for a broker that appends to them."""
    if not transaction.transactional_id:
        return result_for_all(transaction, ErrorCode.INVALID_REQUEST)
    if metadata is None:
        return result_for_all(transaction, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    error = _check_producer(metadata, transaction.producer_id, transaction.producer_epoch)
    if error:
        return result_for_all(transaction, error)
    if metadata.state.is_ending:
        return result_for_all(transaction, ErrorCode.CONCURRENT_TRANSACTIONS)
    return AddPartitionsToTxnResult(
        transaction.transactional_id,
        [
            AddPartitionsToTxnTopicResult(
                topic.name, [_verify_partition(metadata, topic.name, p) for p in topic.partitions]
            )
            for topic in transaction.topics
        ],
    )


def _verify_partition(
    metadata: TransactionMetadata, topic: str, partition: int
) -> AddPartitionsToTxnPartitionResult:
    is_added = TopicPartition(topic, partition) in metadata.partitions
    error = ErrorCode.NONE if is_added else ErrorCode.TRANSACTION_ABORTABLE
    return AddPartitionsToTxnPartitionResult(partition, error)


def _check_producer(
    metadata: TransactionMetadata, producer_id: int, producer_epoch: int
) -> ErrorCode:
    if metadata.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if metadata.producer_epoch != producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def result_for_all(
    transaction: AddPartitionsToTxnTransaction, error: ErrorCode
) -> AddPartitionsToTxnResult:
    """Returns the result of a transaction with the same error for every partition."""
    return AddPartitionsToTxnResult(
        transaction.transactional_id, topic_results(transaction.topics, error)
    )


def topic_results(
    topics: Iterable[AddPartitionsToTxnTopic], error: ErrorCode
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            topic.name, [AddPartitionsToTxnPartitionResult(p, error) for p in topic.partitions]
        )
        for topic in topics
    ]
