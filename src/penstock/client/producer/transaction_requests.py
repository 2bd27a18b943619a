"""The requests of a producer to coordinators, and the handling of their responses."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.client.consumer.record import ConsumerGroupMetadata, OffsetAndMetadata
from penstock.client.coordinators import (
    CoordinatorKind,
    coordinators_of,
    find_coordinators_request,
)
from penstock.client.errors import error_code_of, error_of
from penstock.client.producer.sequences import NO_PRODUCER, ProducerIdAndEpoch
from penstock.client.producer.transaction_request import (
    COORDINATOR_MOVED,
    FATAL_ERRORS,
    FENCED,
    Priority,
    TxnRequest,
    TxnResult,
    abortable_error,
    group_authorization_error,
)
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Node
from penstock.protocol.fields import Message
from penstock.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorResponse,
)
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from penstock.client.producer.transaction_manager import TransactionManager

_FIRST_ADD_BACKOFF_MS = 20
"""The wait of the first partition for the markers of the previous transaction is short."""


class InitProducerId(TxnRequest[InitProducerIdResponse]):
    """Requests a producer id, or the next epoch of the `current` one."""

    response_type = InitProducerIdResponse
    max_version = 5

    def __init__(
        self,
        manager: "TransactionManager",
        timeout_ms: int,
        current: ProducerIdAndEpoch = NO_PRODUCER,
        result: TxnResult | None = None,
    ) -> None:
        super().__init__(manager, result)
        self._timeout_ms = timeout_ms
        self._current = current
        self._is_bump = current is not NO_PRODUCER
        self.priority = Priority.EPOCH_BUMP if self._is_bump else Priority.INIT_PRODUCER_ID

    @property
    def coordinator(self) -> tuple[CoordinatorKind, str] | None:
        return super().coordinator if self.manager.is_transactional else None

    def build(self, version: int) -> Message:
        # Before version 3 a bump is not possible; the coordinator bumps the epoch anyway.
        current = self._current if version >= 3 else NO_PRODUCER
        return InitProducerIdRequest(
            transactional_id=self.manager.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=current.producer_id,
            producer_epoch=current.epoch,
        )

    def handle(self, response: InitProducerIdResponse) -> None:
        code = error_code_of(response.error_code)
        if code is ErrorCode.NONE:
            owner = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            self.manager.complete_initialization(owner, is_bump=self._is_bump)
            self.result.complete()
        elif self._handle_common_error(code):
            pass
        elif code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            self.fail_abortable(self._rejected_error(code))
        elif code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            self.fail_abortable(
                error_of(
                    code,
                    "not authorized to produce idempotently: allow this user IDEMPOTENT_WRITE on "
                    "the cluster or WRITE on a topic, or set `enable_idempotence`=False",
                )
            )
        elif code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            self.fail_fatally(
                error_of(
                    code,
                    f"transaction_timeout_ms={self._timeout_ms} is more than the broker's "
                    "transaction.max.timeout.ms: use a smaller one",
                )
            )
        else:
            self.fail_fatally(self._unexpected_error(code))


class AddPartitionsToTxn(TxnRequest[AddPartitionsToTxnResponse]):
    """Adds partitions to the transaction before records are sent to them (transactions of v1)."""

    response_type = AddPartitionsToTxnResponse
    priority = Priority.ADD_PARTITIONS_OR_OFFSETS
    max_version = 3
    """Later versions are for brokers."""

    def __init__(self, manager: "TransactionManager", partitions: list[TopicPartition]) -> None:
        super().__init__(manager)
        self._partitions = partitions

    def build(self, version: int) -> Message:
        topics: dict[str, list[int]] = {}
        for topic, partition in self._partitions:
            topics.setdefault(topic, []).append(partition)
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.manager.transactional_id or "",
            v3_and_below_producer_id=self.owner.producer_id,
            v3_and_below_producer_epoch=self.owner.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

    def handle(self, response: AddPartitionsToTxnResponse) -> None:
        self.backoff_ms = self.manager.retry_backoff_ms
        forbidden: set[str] = set()
        failed: dict[TopicPartition, ErrorCode] = {}
        partitions: list[TopicPartition] = []
        for topic in response.results_by_topic_v3_and_below:
            for result in topic.results_by_partition:
                partition = TopicPartition(topic.name, result.partition_index)
                partitions.append(partition)
                code = error_code_of(result.partition_error_code)
                if code is ErrorCode.NONE:
                    continue
                if code is ErrorCode.CONCURRENT_TRANSACTIONS:
                    if not self.manager.partitions_in_transaction:
                        self.backoff_ms = min(_FIRST_ADD_BACKOFF_MS, self.backoff_ms)
                    self.retry()
                    return
                if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    forbidden.add(topic.name)
                elif code in FATAL_ERRORS or code is ErrorCode.UNKNOWN_PRODUCER_ID:
                    self._handle_transaction_error(code)
                    return
                elif self._handle_common_error(code):
                    return
                else:
                    failed[partition] = code
        # Partitions that failed are not pending either, so that retries of others continue.
        self.manager.pending_partitions.difference_update(partitions)
        if forbidden:
            self.fail_abortable(
                error_of(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    f"not authorized to write to {', '.join(sorted(forbidden))}: abort the "
                    "transaction, and allow this user WRITE on it",
                )
            )
        elif failed:
            names = ", ".join(f"{partition} ({code.name})" for partition, code in failed.items())
            self.fail_abortable(
                error_of(
                    next(iter(failed.values())),
                    f"could not add partitions to the transaction: {names}; abort it",
                )
            )
        else:
            self.manager.confirm_partitions(partitions)
            self.result.complete()


class FindCoordinator(TxnRequest[FindCoordinatorResponse]):
    """Looks up the coordinator of the transactional id or of a group."""

    response_type = FindCoordinatorResponse
    priority = Priority.FIND_COORDINATOR
    coordinator = None

    def __init__(self, manager: "TransactionManager", kind: CoordinatorKind, key: str) -> None:
        super().__init__(manager)
        self._kind = kind
        self.key = key

    def build(self, version: int) -> Message:
        return find_coordinators_request(self._kind, [self.key], version)

    def handle(self, response: FindCoordinatorResponse) -> None:
        coordinator = coordinators_of(response, self.key)[0]
        error = error_code_of(coordinator.error_code)
        if error is ErrorCode.NONE:
            self.manager.coordinators[self._kind, self.key] = Node(
                coordinator.node_id, coordinator.host, coordinator.port
            )
            self.result.complete()
        elif error.retriable:
            self.retry()
        elif error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            self.fail_fatally(self._rejected_error(error))
        elif error is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self.fail_abortable(group_authorization_error(self.key))
        elif error is ErrorCode.TRANSACTION_ABORTABLE:
            self.fail_abortable(abortable_error(error, self.result.operation))
        else:
            self.fail_fatally(
                error_of(
                    error,
                    f"could not find the coordinator of {self._kind.name.lower()} "
                    f"{self.key!r}: {coordinator.error_message or error.name}",
                )
            )


class EndTxn(TxnRequest[EndTxnResponse]):
    """Commits or aborts. With transactions of v2 the response has the next epoch."""

    response_type = EndTxnResponse
    priority = Priority.END_TXN
    is_end = True

    def __init__(self, manager: "TransactionManager", *, commit: bool) -> None:
        super().__init__(manager, TxnResult(f"{'commit' if commit else 'abort'}_transaction"))
        self._commit = commit
        self.max_version = None if manager.is_v2 else 4

    def build(self, version: int) -> Message:
        return EndTxnRequest(
            transactional_id=self.manager.transactional_id or "",
            producer_id=self.owner.producer_id,
            producer_epoch=self.owner.epoch,
            committed=self._commit,
        )

    def handle(self, response: EndTxnResponse) -> None:
        code = error_code_of(response.error_code)
        if code is ErrorCode.NONE:
            if response.producer_id != -1:
                self.manager.start_epoch(
                    ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
                )
            self.manager.complete_transaction(self.result)
        elif code is ErrorCode.TRANSACTION_ABORTABLE and not self._commit:
            # Aborting again would fail in the same way.
            self.fail_fatally(
                error_of(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    "the coordinator cannot abort the transaction; close the producer and create a "
                    "new one with the same `transactional_id`, which aborts it",
                )
            )
        else:
            self._handle_transaction_error(code)


class AddOffsetsToTxn(TxnRequest[AddOffsetsToTxnResponse]):
    """Adds the offsets of a group to the transaction before they are sent (transactions of v1)."""

    response_type = AddOffsetsToTxnResponse
    priority = Priority.ADD_PARTITIONS_OR_OFFSETS

    def __init__(
        self,
        manager: "TransactionManager",
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> None:
        super().__init__(manager)
        self._offsets = offsets
        self._group = group

    def build(self, version: int) -> Message:
        return AddOffsetsToTxnRequest(
            transactional_id=self.manager.transactional_id or "",
            producer_id=self.owner.producer_id,
            producer_epoch=self.owner.epoch,
            group_id=self._group.group_id,
        )

    def handle(self, response: AddOffsetsToTxnResponse) -> None:
        code = error_code_of(response.error_code)
        if code is ErrorCode.NONE:
            self.manager.transaction_started = True
            self.manager.enqueue(
                TxnOffsetCommit(self.manager, self._offsets, self._group, self.result)
            )
        elif code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self.fail_abortable(group_authorization_error(self._group.group_id))
        else:
            self._handle_transaction_error(code)


class TxnOffsetCommit(TxnRequest[TxnOffsetCommitResponse]):
    """Sends offsets to the coordinator of their group; retries those with retriable errors."""

    response_type = TxnOffsetCommitResponse
    priority = Priority.ADD_PARTITIONS_OR_OFFSETS

    def __init__(
        self,
        manager: "TransactionManager",
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        result: TxnResult | None = None,
    ) -> None:
        super().__init__(manager, result)
        self._pending = dict(offsets)
        self._group = group
        # From 5 on the group's coordinator adds itself to the transaction; 6 has topic ids.
        self.max_version = 5 if manager.is_v2 else 4

    @property
    def coordinator(self) -> tuple[CoordinatorKind, str] | None:
        return CoordinatorKind.GROUP, self._group.group_id

    def build(self, version: int) -> Message:
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (name, partition), position in self._pending.items():
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = TxnOffsetCommitRequestTopic(name=name, partitions=[])
            topic.partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=position.offset,
                    committed_leader_epoch=position.leader_epoch,
                    committed_metadata=position.metadata,
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self.manager.transactional_id or "",
            group_id=self._group.group_id,
            producer_id=self.owner.producer_id,
            producer_epoch=self.owner.epoch,
            topics=list(topics.values()),
        )
        if version >= 3:
            request.generation_id_or_member_epoch = self._group.generation_id
            request.member_id = self._group.member_id
            request.group_instance_id = self._group.group_instance_id
        return request

    def handle(self, response: TxnOffsetCommitResponse) -> None:
        has_moved = False
        for topic in response.topics:
            for partition in topic.partitions:
                code = error_code_of(partition.error_code)
                if code is ErrorCode.NONE:
                    self._pending.pop(TopicPartition(topic.name, partition.partition_index), None)
                elif code in COORDINATOR_MOVED or code is ErrorCode.REQUEST_TIMED_OUT:
                    has_moved = True
                elif not code.retriable:
                    self._handle_error(code)
                    return
        if not self._pending:
            self.result.complete()
        elif has_moved:
            self.handle_disconnect()
        else:
            self.retry()

    def _handle_error(self, code: ErrorCode) -> None:
        group = self._group.group_id
        if code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self.fail_abortable(group_authorization_error(group))
        elif code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.TRANSACTION_ABORTABLE):
            self.fail_abortable(abortable_error(code, self.result.operation))
        elif code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.STALE_MEMBER_EPOCH,
        ):
            self.fail_abortable(self.manager.commit_failed_error(group, code))
        elif code in FENCED:
            self.fail_fatally(self.manager.fenced_error())
        elif code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            self.fail_fatally(self._rejected_error(code))
        else:
            self.fail_fatally(self._unexpected_error(code))
