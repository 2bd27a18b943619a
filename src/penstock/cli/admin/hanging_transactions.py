"""Transactions that no coordinator will ever end: the decision of `penstock txn find-hanging`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin import ProducerState, TransactionDescription


class OpenTransaction(NamedTuple):
    """A transaction that a partition has a beginning of, and no end."""

    partition: TopicPartition
    producer: "ProducerState"


def candidates(
    producers: "Mapping[TopicPartition, Sequence[ProducerState]]", now_ms: int, older_than_ms: int
) -> list[OpenTransaction]:
    """Open transactions without a record for so long that their coordinator had time to end them"""
    return [
        OpenTransaction(partition, state)
        for partition, states in sorted(producers.items())
        for state in states
        if state.current_transaction_start_offset is not None
        and now_ms - state.last_timestamp > older_than_ms
    ]


def hanging(
    result: Sequence[OpenTransaction],
    transactional_ids: Mapping[int, str],
    descriptions: "Mapping[str, TransactionDescription]",
) -> list[OpenTransaction]:
    """Those whose coordinator does not know that the partition belongs to the transaction."""
    kept = []
    for item in result:
        name = transactional_ids.get(item.producer.producer_id)
        described = descriptions.get(name) if name is not None else None
        if described is None or item.partition not in described.partitions:
            kept.append(item)
    return kept
