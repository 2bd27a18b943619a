"""Random histories of transactions while brokers, the coordinator and connections fail."""

from typing import Any

from penstock.client.producer.transaction_request import TxnRequest, TxnResult
from penstock.client.producer.transaction_requests import (
    AddPartitionsToTxn,
    EndTxn,
    FindCoordinator,
    InitProducerId,
)
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.fields import Message
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.produce import ProduceRequest
from penstock.records.batch import read_header
from tests.support.client.producer_histories import PARTITIONS, History

PRODUCER_ID = 1
_RETRIABLE_ERRORS = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


class TransactionHistory(History):
    """A transactional producer, and a coordinator with Kafka's rules."""

    def __init__(self, seed: int, version: int, **options: Any) -> None:
        super().__init__(seed, idempotent=True, transactional_id="id", **options)
        self.version = version
        self.committed: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self._epoch = -1
        self._members: set[int] = set()
        self._last_end: tuple[int, bool] | None = None
        self._starts = [0] * PARTITIONS
        self._number = 0

    def run_transactions(self, count: int) -> None:
        manager = self._transactions
        self._wait(manager.initialize())
        manager.set_transaction_version(self.version, initially=True)
        for _ in range(count):
            self._run_transaction()
        while self._zombies:
            self._deliver_zombie()

    def _run_transaction(self) -> None:
        manager = self._transactions
        manager.begin()
        first = len(self.sent)
        wants_commit = self.random.random() < 0.8
        try:
            for _ in range(self.random.randrange(12)):
                manager.check_send()
                manager.add_partition(self.send_one(self._number))
                self._number += 1
                self._step(failure_rate=0.3)
            if wants_commit:
                self._wait(manager.begin_commit(self.version))
                for partition, value, _ in self.sent[first:]:
                    self.expected[partition].append(value)
                return
        except KafkaError:
            assert manager.has_abortable_error, manager.last_error
        self._wait(manager.begin_abort(self.version))

    def _wait(self, result: TxnResult) -> None:
        for _ in range(5000):
            if result.is_done:
                result.is_acknowledged = True
                if result.error is not None:
                    raise result.error
                return
            self._step(failure_rate=0.1)
        raise AssertionError(f"{result.operation} does not complete")

    def _step(self, *, failure_rate: float) -> None:
        self.run_sender()
        if self.random.random() < failure_rate:
            self.inject_failure()
        self.progress()

    @property
    def _transactions(self) -> Any:
        return self.manager

    # --- the coordinator

    def handle_request(self, request: TxnRequest[Message]) -> None:
        manager = self._transactions
        if request.coordinator is not None and request.coordinator not in manager.coordinators:
            manager.look_up_coordinator(*request.coordinator)
            manager.enqueue(request)
            return
        manager.set_coordinator_version(3)
        roll = self.random.random()
        if roll < 0.1:
            request.handle_disconnect()
            return
        if roll < 0.3:
            response = self._error_response(request, self.random.choice(_RETRIABLE_ERRORS))
        else:
            response = self._handle(request)
        if roll > 0.8:
            request.handle_disconnect()
        else:
            request.handle(response)

    def _error_response(self, request: TxnRequest[Any], code: ErrorCode) -> Message:
        match request:
            case FindCoordinator():
                return FindCoordinatorResponse(
                    coordinators=[Coordinator(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)]
                )
            case InitProducerId():
                return InitProducerIdResponse(error_code=code)
            case EndTxn():
                return EndTxnResponse(error_code=code)
        return self._add_partitions_response(request, code)

    def _handle(self, request: TxnRequest[Any]) -> Message:
        message = request.build(5 if request.max_version is None else request.max_version)
        if isinstance(request, FindCoordinator):
            return FindCoordinatorResponse(coordinators=[Coordinator(node_id=1)])
        if isinstance(message, InitProducerIdRequest):
            return self._initialize(message)
        if isinstance(message, EndTxnRequest):
            return self._end(message)
        assert isinstance(message, AddPartitionsToTxnRequest)
        if message.v3_and_below_producer_epoch != self._epoch:
            return self._add_partitions_response(request, ErrorCode.PRODUCER_FENCED)
        for topic in message.v3_and_below_topics:
            self._members.update(topic.partitions)
        return self._add_partitions_response(request, ErrorCode.NONE)

    def _add_partitions_response(self, request: TxnRequest[Any], code: ErrorCode) -> Message:
        assert isinstance(request, AddPartitionsToTxn)
        message = request.build(3)
        assert isinstance(message, AddPartitionsToTxnRequest)
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=index, partition_error_code=code
                        )
                        for index in topic.partitions
                    ],
                )
                for topic in message.v3_and_below_topics
            ]
        )

    def _initialize(self, message: InitProducerIdRequest) -> InitProducerIdResponse:
        epoch = message.producer_epoch
        # The previous epoch is that of a retry whose first response was lost.
        if epoch not in (-1, self._epoch, self._epoch - 1):
            return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
        if epoch in (-1, self._epoch):
            self._write_markers(commit=False, epoch=self._epoch)
            self._epoch += 1
        return InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=self._epoch)

    def _end(self, message: EndTxnRequest) -> EndTxnResponse:
        end = message.producer_epoch, message.committed
        is_v2 = self.version >= 2
        if end == self._last_end and not self._members:
            return self._end_response(is_v2)
        if message.producer_epoch != self._epoch:
            return EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)
        if not self._members and message.committed:
            return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
        if is_v2:
            self._epoch += 1
        self._write_markers(commit=message.committed, epoch=self._epoch)
        self._last_end = end
        return self._end_response(is_v2)

    def _end_response(self, is_v2: bool) -> EndTxnResponse:
        if is_v2:
            return EndTxnResponse(producer_id=PRODUCER_ID, producer_epoch=self._epoch)
        return EndTxnResponse()

    def _write_markers(self, *, commit: bool, epoch: int) -> None:
        for index in self._members:
            partition = self.partitions[index]
            values = partition.log[self._starts[index] :]
            if commit:
                self.committed[index] += values
            self._starts[index] = len(partition.log)
            partition.write_marker(PRODUCER_ID, epoch)
        self._members.clear()

    def check_transaction(self, partition: int, request: ProduceRequest) -> ErrorCode:
        (data,) = (
            entry for entry in request.topic_data[0].partition_data if entry.index == partition
        )
        assert data.records is not None
        if read_header(data.records).producer_epoch != self._epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.version >= 2:
            self._members.add(partition)
        elif partition not in self._members:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE
