"""Transactions that no coordinator will end: the decisions of `penstock txn find-hanging`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin import ProducerState, TransactionDescription


class OpenTransaction(NamedTuple):
    """A transaction that has no end marker in a partition."""

    partition: TopicPartition
    producer: "ProducerState"


def candidates(
    producers: "Mapping[TopicPartition, Sequence[ProducerState]]", now_ms: int, older_than_ms: int
) -> list[OpenTransaction]:
    """Returns open transactions whose last record is older than `older_than_ms`.

    Their coordinator had time to end them.
    """
    return [
        OpenTransaction(partition, state)
        for partition, states in sorted(producers.items())
        for state in states
        if state.current_transaction_start_offset is not None
        and now_ms - state.last_timestamp > older_than_ms
    ]


def hanging(
    transactions: Sequence[OpenTransaction],
    transactional_ids: Mapping[int, str],
    descriptions: "Mapping[str, TransactionDescription]",
) -> list[OpenTransaction]:
    """Returns those whose coordinator does not list the partition in the transaction."""
    hanging_transactions = []
    for transaction in transactions:
        name = transactional_ids.get(transaction.producer.producer_id)
        described = descriptions.get(name) if name is not None else None
        if described is None or transaction.partition not in described.partitions:
            hanging_transactions.append(transaction)
    return hanging_transactions
