"""Is this partition part of the producer's transaction? Asked before its first append (KIP-890).

A transaction that the coordinator does not know would never end, and hold consumers back for ever.
So the first batch of a transaction in a partition waits for the coordinator: it confirms that the
partition was added, or, for clients of transaction version 2, adds it.
"""

import asyncio
from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.coordinator.transaction_coordinator import TransactionCoordinator
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.storage.producer.append_info import VerificationGuard


class TransactionSupport(Enum):
    """What a client can do, by the version of its request."""

    DEFAULT_ERROR = 0
    """It does not know TRANSACTION_ABORTABLE."""
    GENERIC_ERROR = 1
    ADD_PARTITION = 2
    """It leaves it to the broker to add partitions, and expects a new epoch at each end."""

    @classmethod
    def of_produce(cls, version: int) -> "TransactionSupport":
        return cls(min(max(version - 10, 0), 2))

    @classmethod
    def of_txn_offset_commit(cls, version: int) -> "TransactionSupport":
        return cls(min(max(version - 3, 0), 2))

    @property
    def supports_epoch_bump(self) -> bool:
        return self is TransactionSupport.ADD_PARTITION


Verification: TypeAlias = "VerificationGuard | KafkaError | None"
"""The guard to append with, why not to append, or nothing to verify."""

_NOT_YET = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""What passes: the coordinator is found, or has ended the transaction before."""


class TransactionVerifier:
    """Asks the coordinator about transactions, for Produce and for offsets in transactions."""

    def __init__(
        self,
        replicas: ReplicaManager,
        transactions: TransactionCoordinator,
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._transactions = transactions
        self._config = config
        self._clock = clock

    def is_ongoing(self, partition: TopicPartition, producer_id: int, producer_epoch: int) -> bool:
        """Whether the transaction has records in the partition, so that nobody need be asked."""
        try:
            log = self._replicas.find(*partition).log
        except KafkaError:
            return False
        return log.producers.has_ongoing_transaction(producer_id, producer_epoch)

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        sequences: Mapping[TopicPartition, int],
        support: TransactionSupport,
    ) -> dict[TopicPartition, Verification]:
        """What to do with batches that start with these sequences."""
        adds = support.supports_epoch_bump
        if not adds and not self._config.bool("transaction.partition.verification.enable"):
            return {}
        found: dict[TopicPartition, Verification] = {}
        for partition, sequence in sequences.items():
            found[partition] = self._start(
                partition, producer_id, producer_epoch, sequence, supports_epoch_bump=adds
            )
        to_ask = frozenset(k for k, each in found.items() if isinstance(each, VerificationGuard))
        if to_ask:
            errors = await self._ask(transactional_id, producer_id, producer_epoch, to_ask, adds)
            for partition, code in errors.items():
                if code:
                    found[partition] = _refusal(partition, transactional_id, code, support)
        return found

    def _start(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        *,
        supports_epoch_bump: bool,
    ) -> Verification:
        try:
            return (
                self._replicas.find(*partition)
                .leader_log()
                .producers.start_verification(
                    producer_id,
                    sequence,
                    producer_epoch,
                    self._clock.now_ms(),
                    supports_epoch_bump=supports_epoch_bump,
                )
            )
        except KafkaError as error:
            return error

    async def _ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
        adds: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """Asks the coordinator; while it still ends the transaction before, asks again for a while.

        A producer that had to come back would lose more time than that takes.
        """
        patience_ms = min(
            self._config.int("add.partitions.to.txn.retry.backoff.max.ms"),
            self._config.int("request.timeout.ms"),
        )
        give_up_ms = self._clock.now_ms() + patience_ms
        while True:
            errors = await self._transactions.add_partitions(
                transactional_id, producer_id, producer_epoch, partitions, verify_only=not adds
            )
            retries = adds and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
            if not retries or self._clock.now_ms() >= give_up_ms:
                return errors
            backoff_ms = self._config.int("add.partitions.to.txn.retry.backoff.ms")
            await asyncio.sleep(backoff_ms / 1000)


def _refusal(
    partition: TopicPartition, transactional_id: str, code: ErrorCode, support: TransactionSupport
) -> KafkaError:
    """The coordinator's error as producers know to handle it."""
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code is ErrorCode.TRANSACTION_ABORTABLE and support is TransactionSupport.DEFAULT_ERROR:
        code = ErrorCode.INVALID_TXN_STATE
    advice = "retry" if code in _NOT_YET else "abort it and begin a new one"
    return KafkaError(
        code,
        f"{partition} cannot be written in a transaction of {transactional_id!r}: its coordinator "
        f"answers {code.name}; {advice}",
    )


def produce_error(error: KafkaError, support: TransactionSupport) -> KafkaError:
    """The error for a Produce: old producers retry this one, and look for no other leader."""
    known = error.code is ErrorCode.CONCURRENT_TRANSACTIONS and support.supports_epoch_bump
    if error.code not in _NOT_YET or known:
        return error
    return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, error.message)
