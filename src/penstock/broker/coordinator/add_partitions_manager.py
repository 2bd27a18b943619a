"""Adding partitions to transactions, or verifying them, with any coordinator (KIP-890).

A broker does it on behalf of its producers. If it coordinates the transactional id itself, nothing
is sent. Otherwise the transactions for one coordinator that arrive while a request is in flight are
sent as one AddPartitionsToTxn request.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from penstock.broker.inter_broker.batch_queue import BatchQueue
from penstock.broker.inter_broker.client import InterBrokerClient
from penstock.core.errors import ErrorCode, KafkaError, UnsupportedVersionError
from penstock.core.ids import TopicPartition
from penstock.net.client.errors import error_code_of
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

logger = logging.getLogger(__name__)

_FIRST_BETWEEN_BROKERS: Final = 4
Errors = dict[TopicPartition, ErrorCode]


class LocalCoordinator(Protocol):
    """The transaction coordinator of this broker."""

    def coordinator_of(self, key: str) -> int:
        """Returns the broker that coordinates a transactional id; -1 if it is unknown."""
        ...

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        verify_only: bool,
    ) -> Errors: ...


class AddPartitionsManager:
    """Adds partitions to transactions. It belongs to the event loop."""

    def __init__(
        self, broker_id: int, transactions: LocalCoordinator, client: InterBrokerClient
    ) -> None:
        self._broker_id = broker_id
        self._transactions = transactions
        self._client = client
        self._queues: dict[int, BatchQueue[AddPartitionsToTxnTransaction, Errors]] = {}

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        verify_only: bool,
    ) -> Errors:
        """Adds partitions to a producer's transaction, or only checks whether they are in it.

        Returns the error of each partition. A coordinator that cannot be reached is
        NETWORK_EXCEPTION, which producers retry.
        """
        coordinator = self._transactions.coordinator_of(transactional_id)
        if coordinator in (self._broker_id, -1):
            return await self._transactions.add_partitions(
                transactional_id, producer_id, producer_epoch, partitions, verify_only=verify_only
            )
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, index in partitions:
            topics.setdefault(topic, AddPartitionsToTxnTopic(topic, [])).partitions.append(index)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id, producer_id, producer_epoch, verify_only, list(topics.values())
        )
        try:
            return await self._queue(coordinator).put(transaction)
        except UnsupportedVersionError:
            # The coordinator is a broker that cannot verify. Kafka lets the producer go on.
            code = ErrorCode.NONE if verify_only else ErrorCode.INVALID_TXN_STATE
        except KafkaError as error:
            logger.debug("broker %d cannot verify transactions: %s", coordinator, error.message)
            code = ErrorCode.NETWORK_EXCEPTION
        return dict.fromkeys(_partitions(transaction), code)

    def _queue(self, coordinator: int) -> BatchQueue[AddPartitionsToTxnTransaction, Errors]:
        queue = self._queues.get(coordinator)
        if queue is None:
            queue = self._queues[coordinator] = BatchQueue(
                lambda transactions: self._request(coordinator, transactions),
                key=lambda transaction: transaction.transactional_id,
            )
        return queue

    async def _request(
        self, coordinator: int, transactions: Sequence[AddPartitionsToTxnTransaction]
    ) -> list[Errors]:
        response = await self._client.request(
            coordinator,
            AddPartitionsToTxnRequest(list(transactions)),
            AddPartitionsToTxnResponse,
            min_version=_FIRST_BETWEEN_BROKERS,
        )
        code = error_code_of(response.error_code)
        if code is not ErrorCode.NONE:
            if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                logger.error(
                    "broker %d does not let this broker verify transactions: allow its user "
                    "CLUSTER_ACTION on the cluster, or add it to super.users",
                    coordinator,
                )
                # Not an error of the producer, which could not know what to do about it.
                code = ErrorCode.INVALID_TXN_STATE
            return [dict.fromkeys(_partitions(transaction), code) for transaction in transactions]
        results = {result.transactional_id: result for result in response.results_by_transaction}
        return [
            _errors(transaction, results.get(transaction.transactional_id))
            for transaction in transactions
        ]


def _partitions(transaction: AddPartitionsToTxnTransaction) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index)
        for topic in transaction.topics
        for index in topic.partitions
    ]


def _errors(
    transaction: AddPartitionsToTxnTransaction, result: AddPartitionsToTxnResult | None
) -> Errors:
    errors = dict.fromkeys(_partitions(transaction), ErrorCode.NETWORK_EXCEPTION)
    for topic in () if result is None else result.topic_results:
        for partition in topic.results_by_partition:
            key = TopicPartition(topic.name, partition.partition_index)
            errors[key] = error_code_of(partition.partition_error_code)
    return errors
