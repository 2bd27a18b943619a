"""What a producer asks coordinators: each request, and what its answer means."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.client.consumer.record import ConsumerGroupMetadata, OffsetAndMetadata
from penstock.client.errors import error_of
from penstock.client.producer.idempotence import NO_PRODUCER, ProducerIdAndEpoch
from penstock.client.producer.txn_request import (
    FENCED,
    FINAL,
    MOVED,
    Coordinator,
    Priority,
    TxnRequest,
    TxnResult,
    abort_this,
    group_forbidden,
    known,
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
    FindCoordinatorRequest,
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
    from penstock.client.producer.txn_machine import TransactionMachine

_FIRST_ADD_BACKOFF_MS = 20
"""A transaction right behind another waits for its markers only, which is short."""


class InitProducerId(TxnRequest[InitProducerIdResponse]):
    """Asks for an id, or, with one, for its next epoch."""

    request = InitProducerIdRequest
    max_version = 5

    def __init__(
        self,
        manager: "TransactionMachine",
        timeout_ms: int,
        current: ProducerIdAndEpoch = NO_PRODUCER,
        result: TxnResult | None = None,
    ) -> None:
        super().__init__(manager, InitProducerIdResponse, result or TxnResult("InitProducerId"))
        self._timeout_ms = timeout_ms
        self._current = current

    @property
    def priority(self) -> Priority:
        return Priority.EPOCH_BUMP if self._is_bump else Priority.INIT_PRODUCER_ID

    @property
    def _is_bump(self) -> bool:
        return self._current is not NO_PRODUCER

    @property
    def coordinator(self) -> tuple[Coordinator, str] | None:
        return super().coordinator if self.manager.is_transactional else None

    def build(self, version: int) -> Message:
        # Before version 3 there is only a new id, which has the next epoch too.
        current = self._current if version >= 3 else NO_PRODUCER
        return InitProducerIdRequest(
            transactional_id=self.manager.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=current.producer_id,
            producer_epoch=current.epoch,
        )

    def handle(self, response: InitProducerIdResponse) -> None:
        code = known(response.error_code)
        if code is ErrorCode.NONE:
            owner = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            self.manager.initialized(owner, is_bump=self._is_bump)
            self.result.done()
        elif self._common(code):
            pass
        elif code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            self.abortable(self._final(code))
        elif code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            self.abortable(
                error_of(
                    code,
                    "not authorized to produce idempotently: allow this user IDEMPOTENT_WRITE on "
                    "the cluster or WRITE on a topic, or set enable_idempotence=False",
                )
            )
        elif code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            self.fatal(
                error_of(
                    code,
                    f"transaction_timeout_ms={self._timeout_ms} is more than the broker's "
                    "transaction.max.timeout.ms: use a smaller one",
                )
            )
        else:
            self.fatal(self._unexpected(code))


class AddPartitionsToTxn(TxnRequest[AddPartitionsToTxnResponse]):
    """Tells the coordinator of partitions before anything is sent to them (transactions of v1)."""

    request = AddPartitionsToTxnRequest
    priority = Priority.ADD_PARTITIONS_OR_OFFSETS
    max_version = 3
    """Later ones are for brokers."""

    def __init__(self, manager: "TransactionMachine", partitions: list[TopicPartition]) -> None:
        super().__init__(manager, AddPartitionsToTxnResponse, TxnResult("AddPartitionsToTxn"))
        self._partitions = partitions
        self._owner = manager.producer

    def build(self, version: int) -> Message:
        topics: dict[str, list[int]] = {}
        for topic, partition in self._partitions:
            topics.setdefault(topic, []).append(partition)
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.manager.transactional_id or "",
            v3_and_below_producer_id=self._owner.producer_id,
            v3_and_below_producer_epoch=self._owner.epoch,
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
            for each in topic.results_by_partition:
                partition = TopicPartition(topic.name, each.partition_index)
                partitions.append(partition)
                code = known(each.partition_error_code)
                if code is ErrorCode.NONE:
                    continue
                if code is ErrorCode.CONCURRENT_TRANSACTIONS:
                    if not self.manager.partitions_in_transaction:
                        self.backoff_ms = min(_FIRST_ADD_BACKOFF_MS, self.backoff_ms)
                    self.again()
                    return
                if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    forbidden.add(topic.name)
                elif code in FINAL or code is ErrorCode.UNKNOWN_PRODUCER_ID:
                    self._txn_error(code)
                    return
                elif self._common(code):
                    return
                else:
                    failed[partition] = code
        # Even those that failed are not pending any more: batches of others, in retry, must go on.
        self.manager.pending_partitions.difference_update(partitions)
        if forbidden:
            self.abortable(
                error_of(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    f"not authorized to write to {', '.join(sorted(forbidden))}: abort the "
                    "transaction, and allow this user WRITE on it",
                )
            )
        elif failed:
            names = ", ".join(f"{each} ({code.name})" for each, code in failed.items())
            self.abortable(
                error_of(
                    next(iter(failed.values())),
                    f"could not add partitions to the transaction: {names}; abort it",
                )
            )
        else:
            self.manager.partitions_added(partitions)
            self.result.done()


class FindCoordinator(TxnRequest[FindCoordinatorResponse]):
    request = FindCoordinatorRequest
    priority = Priority.FIND_COORDINATOR
    coordinator = None

    def __init__(self, manager: "TransactionMachine", kind: Coordinator, key: str) -> None:
        super().__init__(manager, FindCoordinatorResponse, TxnResult("FindCoordinator"))
        self._kind = kind
        self.key = key

    def build(self, version: int) -> Message:
        if version >= 4:
            return FindCoordinatorRequest(key_type=self._kind, coordinator_keys=[self.key])
        return FindCoordinatorRequest(key_type=self._kind, key=self.key)

    def handle(self, response: FindCoordinatorResponse) -> None:
        if response.coordinators:
            found = response.coordinators[0]
            code, message = found.error_code, found.error_message
            node = Node(found.node_id, found.host, found.port)
        else:
            code, message = response.error_code, response.error_message
            node = Node(response.node_id, response.host, response.port)
        error = known(code)
        if error is ErrorCode.NONE:
            self.manager.coordinators[self._kind, self.key] = node
            self.result.done()
        elif error.retriable:
            self.again()
        elif error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            self.fatal(self._final(error))
        elif error is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self.abortable(group_forbidden(self.key))
        elif error is ErrorCode.TRANSACTION_ABORTABLE:
            self.abortable(abort_this(error, self.result.operation))
        else:
            self.fatal(
                error_of(
                    error,
                    f"could not find the coordinator of {self._kind.name.lower()} "
                    f"{self.key!r}: {message or error.name}",
                )
            )


class EndTxn(TxnRequest[EndTxnResponse]):
    """Commits or aborts. In transactions of v2 the answer has the epoch of the next one."""

    request = EndTxnRequest
    priority = Priority.END_TXN
    is_end = True

    def __init__(self, manager: "TransactionMachine", *, commit: bool) -> None:
        name = "commit_transaction" if commit else "abort_transaction"
        super().__init__(manager, EndTxnResponse, TxnResult(name))
        self._commit = commit
        self._owner = manager.producer
        self.max_version = None if manager.is_v2 else 4

    def build(self, version: int) -> Message:
        return EndTxnRequest(
            transactional_id=self.manager.transactional_id or "",
            producer_id=self._owner.producer_id,
            producer_epoch=self._owner.epoch,
            committed=self._commit,
        )

    def handle(self, response: EndTxnResponse) -> None:
        code = known(response.error_code)
        if code is ErrorCode.NONE:
            if response.producer_id != -1:
                self.manager.next_epoch(
                    ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
                )
            self.manager.transaction_ended(self.result)
        elif code is ErrorCode.TRANSACTION_ABORTABLE and not self._commit:
            # To abort again would end here again.
            self.fatal(
                error_of(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    "the coordinator cannot abort the transaction; close the producer and make a "
                    "new one with the same transactional_id, which aborts it",
                )
            )
        else:
            self._txn_error(code)


class AddOffsetsToTxn(TxnRequest[AddOffsetsToTxnResponse]):
    """Tells the coordinator that offsets of a group will follow (transactions of v1)."""

    request = AddOffsetsToTxnRequest
    priority = Priority.ADD_PARTITIONS_OR_OFFSETS

    def __init__(
        self,
        manager: "TransactionMachine",
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> None:
        super().__init__(manager, AddOffsetsToTxnResponse, TxnResult("AddOffsetsToTxn"))
        self._owner = manager.producer
        self._offsets = offsets
        self._group = group

    def build(self, version: int) -> Message:
        return AddOffsetsToTxnRequest(
            transactional_id=self.manager.transactional_id or "",
            producer_id=self._owner.producer_id,
            producer_epoch=self._owner.epoch,
            group_id=self._group.group_id,
        )

    def handle(self, response: AddOffsetsToTxnResponse) -> None:
        code = known(response.error_code)
        if code is ErrorCode.NONE:
            self.manager.transaction_started = True
            self.manager.enqueue(
                TxnOffsetCommit(self.manager, self._offsets, self._group, self.result)
            )
        elif code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self.abortable(group_forbidden(self._group.group_id))
        else:
            self._txn_error(code)


class TxnOffsetCommit(TxnRequest[TxnOffsetCommitResponse]):
    """The offsets, for the coordinator of their group. Those that can be retried are."""

    request = TxnOffsetCommitRequest
    priority = Priority.ADD_PARTITIONS_OR_OFFSETS

    def __init__(
        self,
        manager: "TransactionMachine",
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        result: TxnResult | None = None,
    ) -> None:
        super().__init__(manager, TxnOffsetCommitResponse, result or TxnResult("TxnOffsetCommit"))
        self._owner = manager.producer
        self._pending = dict(offsets)
        self._group = group
        # From 5 on the group's coordinator adds itself to the transaction; 6 has ids for names.
        self.max_version = 5 if manager.is_v2 else 4

    @property
    def coordinator(self) -> tuple[Coordinator, str] | None:
        return Coordinator.GROUP, self._group.group_id

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
            producer_id=self._owner.producer_id,
            producer_epoch=self._owner.epoch,
            topics=list(topics.values()),
        )
        if version >= 3:
            request.generation_id_or_member_epoch = self._group.generation_id
            request.member_id = self._group.member_id
            request.group_instance_id = self._group.group_instance_id
        return request

    def handle(self, response: TxnOffsetCommitResponse) -> None:
        moved = False
        for topic in response.topics:
            for each in topic.partitions:
                code = known(each.error_code)
                if code is ErrorCode.NONE:
                    self._pending.pop(TopicPartition(topic.name, each.partition_index), None)
                elif code in MOVED or code is ErrorCode.REQUEST_TIMED_OUT:
                    moved = True
                elif not code.retriable:
                    self._refused(code)
                    return
        if not self._pending:
            self.result.done()
        elif moved:
            self.moved()
        else:
            self.again()

    def _refused(self, code: ErrorCode) -> None:
        group = self._group.group_id
        if code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self.abortable(group_forbidden(group))
        elif code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.TRANSACTION_ABORTABLE):
            self.abortable(abort_this(code, self.result.operation))
        elif code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.STALE_MEMBER_EPOCH,
        ):
            self.abortable(self.manager.commit_failed(group, code))
        elif code in FENCED:
            self.fatal(self.manager.fenced())
        elif code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            self.fatal(self._final(code))
        else:
            self.fatal(self._unexpected(code))
