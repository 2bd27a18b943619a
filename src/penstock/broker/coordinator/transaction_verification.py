"""Verifies that a partition is part of the producer's transaction before its first append
(KIP-890).

A transaction that the coordinator does not know would never end and would block consumers forever.
So the first batch of a transaction in a partition waits for the coordinator, which confirms that
the partition was added or, for clients of transaction version 2, adds it.
"""

import asyncio
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Protocol, TypeAlias

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError, drop_traceback
from penstock.core.ids import TopicPartition
from penstock.storage.producer.append_info import VerificationGuard


class TransactionSupport(Enum):
    """What a client supports, by the version of its request."""

    DEFAULT_ERROR = 0
    """The client does not know TRANSACTION_ABORTABLE."""
    GENERIC_ERROR = 1
    ADD_PARTITION = 2
    """The broker adds partitions, and the epoch is bumped at the end of each transaction."""

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
"""The guard to append with, the error not to append, or None if there is nothing to verify."""

_TRANSIENT = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""Errors that pass when the coordinator is found or has ended the previous transaction."""


class Coordinators(Protocol):
    """The coordinators of all transactional ids, such as an `AddPartitionsManager`."""

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        verify_only: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """Returns the error of each partition."""
        ...


class TransactionVerifier:
    """Verifies transactions with their coordinator, for Produce and TxnOffsetCommit."""

    def __init__(
        self,
        replicas: ReplicaManager,
        coordinators: Coordinators,
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._coordinators = coordinators
        self._config = config
        self._clock = clock

    def is_ongoing(self, partition: TopicPartition, producer_id: int, producer_epoch: int) -> bool:
        """Returns whether the transaction has records in the partition: it is verified then."""
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
        """Returns what to do with batches that start with these sequences."""
        adds = support.supports_epoch_bump
        if not adds and not self._config.bool("transaction.partition.verification.enable"):
            return {}
        verifications: dict[TopicPartition, Verification] = {}
        for partition, sequence in sequences.items():
            verifications[partition] = self._start(
                partition, producer_id, producer_epoch, sequence, supports_epoch_bump=adds
            )
        unverified = frozenset(
            partition
            for partition, verification in verifications.items()
            if isinstance(verification, VerificationGuard)
        )
        if unverified:
            errors = await self._query_coordinator(
                transactional_id, producer_id, producer_epoch, unverified, adds
            )
            for partition, code in errors.items():
                if code:
                    verifications[partition] = _verification_error(
                        partition, transactional_id, code, support
                    )
        return verifications

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
            return drop_traceback(error)

    async def _query_coordinator(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
        adds: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """Sends the partitions to the coordinator, and retries while it ends the last transaction.

        A retry of the producer would take longer.
        """
        timeout_ms = min(
            self._config.int("add.partitions.to.txn.retry.backoff.max.ms"),
            self._config.int("request.timeout.ms"),
        )
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while True:
            errors = await self._coordinators.add_partitions(
                transactional_id, producer_id, producer_epoch, partitions, verify_only=not adds
            )
            retries = adds and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
            if not retries or self._clock.monotonic_ms() >= deadline_ms:
                return errors
            backoff_ms = self._config.int("add.partitions.to.txn.retry.backoff.ms")
            await asyncio.sleep(backoff_ms / 1000)


def _verification_error(
    partition: TopicPartition, transactional_id: str, code: ErrorCode, support: TransactionSupport
) -> KafkaError:
    """Returns the coordinator's error as one that producers handle."""
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code is ErrorCode.TRANSACTION_ABORTABLE and support is TransactionSupport.DEFAULT_ERROR:
        code = ErrorCode.INVALID_TXN_STATE
    advice = "retry" if code in _TRANSIENT else "abort it and begin a new one"
    return KafkaError(
        code,
        f"{partition} cannot be written in a transaction of {transactional_id!r}: its coordinator "
        f"responded {code.name}; {advice}",
    )


def produce_error(error: KafkaError, support: TransactionSupport) -> KafkaError:
    """Returns the error for a Produce: one that old producers retry without a new leader."""
    is_supported = error.code is ErrorCode.CONCURRENT_TRANSACTIONS and support.supports_epoch_bump
    if error.code not in _TRANSIENT or is_supported:
        return error
    return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, error.message)
