"""Clients of a simulated broker: groups' offsets and transactional producers."""

import asyncio
from typing import Any

from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.records.build import build_batch
from penstock.records.record import Record
from tests.support.faults.simulated_broker import PRODUCE_TIMEOUT_MS, SimulatedBroker
from tests.support.protocol.requests import NOW, produce_request

GROUP = 0
TRANSACTION = 1
RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
_ATTEMPTS = 8
_RETRY_S = 0.3


async def find_coordinator(broker: SimulatedBroker, key: str, kind: int) -> None:
    """Makes the broker create the coordinator's topic, if it can."""

    async def send() -> tuple[int, Any]:
        return 0, await broker.request(FindCoordinatorRequest(key=key, key_type=kind), 3)

    await _retry(send)


async def _retry(send: Any) -> Any:
    """Sends a request until its error is not one after which a client retries."""
    for _ in range(_ATTEMPTS - 1):
        try:
            code, response = await send()
            if code not in RETRIABLE:
                return response
        except KafkaError as error:
            if error.code is not ErrorCode.NETWORK_EXCEPTION:
                raise
        await asyncio.sleep(_RETRY_S)
    _, response = await send()
    return response


async def commit_offset(
    broker: SimulatedBroker, group: str, partition: TopicPartition, offset: int
) -> int:
    """Returns the error code."""
    await find_coordinator(broker, group, GROUP)

    async def send() -> tuple[int, int]:
        part = OffsetCommitRequestPartition(partition.partition, offset)
        body = OffsetCommitRequest(
            group, topics=[OffsetCommitRequestTopic(partition.topic, partitions=[part])]
        )
        response = await broker.request(body, 8)
        code: int = response.topics[0].partitions[0].error_code
        return code, code

    code: int = await _retry(send)
    return code


async def fetch_offset(
    broker: SimulatedBroker, group: str, partition: TopicPartition
) -> tuple[int, int]:
    """Returns the error code and the committed offset, -1 for none."""
    await find_coordinator(broker, group, GROUP)

    async def send() -> tuple[int, tuple[int, int]]:
        topics = [OffsetFetchRequestTopic(partition.topic, [partition.partition])]
        response = await broker.request(OffsetFetchRequest(group, topics), 6)
        if response.error_code:
            return response.error_code, (response.error_code, -1)
        part = response.topics[0].partitions[0]
        return part.error_code, (part.error_code, part.committed_offset)

    result: tuple[int, int] = await _retry(send)
    return result


class TransactionalProducer:
    """A producer of transaction version 2: each transaction has a new epoch."""

    def __init__(self, broker: SimulatedBroker, transactional_id: str) -> None:
        self._broker = broker
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        self._sequences: dict[TopicPartition, int] = {}

    async def init(self, timeout_ms: int = 5_000) -> int:
        """Returns the error code."""
        await find_coordinator(self._broker, self.transactional_id, TRANSACTION)

        async def send() -> tuple[int, Any]:
            body = InitProducerIdRequest(self.transactional_id, timeout_ms)
            response = await self._broker.request(body, 5)
            return response.error_code, response

        response = await _retry(send)
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()
        code: int = response.error_code
        return code

    async def produce(self, partition: TopicPartition, *values: bytes) -> Any:
        """Returns the response for the partition."""
        sequence = self._sequences.get(partition, 0)
        batch = build_batch(
            [Record(n, NOW + n, value, value) for n, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )

        async def send() -> tuple[int, Any]:
            body = produce_request(partition.topic, None, partition.partition)
            body.transactional_id = self.transactional_id
            body.timeout_ms = PRODUCE_TIMEOUT_MS
            body.topic_data[0].partition_data[0].records = memoryview(bytearray(batch))
            response = await self._broker.request(body, 12)
            result = response.responses[0].partition_responses[0]
            return result.error_code, result

        result = await _retry(send)
        if not result.error_code:
            self._sequences[partition] = sequence + len(values)
        return result

    async def commit_offset(self, group: str, partition: TopicPartition, offset: int) -> int:
        """Adds an offset to the transaction; returns the error code."""
        await find_coordinator(self._broker, group, GROUP)

        async def add() -> tuple[int, int]:
            body = AddOffsetsToTxnRequest(
                self.transactional_id, self.producer_id, self.epoch, group
            )
            code: int = (await self._broker.request(body, 3)).error_code
            return code, code

        async def send() -> tuple[int, int]:
            part = TxnOffsetCommitRequestPartition(partition.partition, offset)
            body = TxnOffsetCommitRequest(
                self.transactional_id,
                group,
                self.producer_id,
                self.epoch,
                topics=[TxnOffsetCommitRequestTopic(partition.topic, partitions=[part])],
            )
            response = await self._broker.request(body, 5)
            code: int = response.topics[0].partitions[0].error_code
            return code, code

        code: int = await _retry(add)
        return code or int(await _retry(send))

    async def end(self, *, commit: bool) -> int:
        """Returns the error code."""

        async def send() -> tuple[int, Any]:
            body = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, commit)
            response = await self._broker.request(body, 5)
            return response.error_code, response

        response = await _retry(send)
        if not response.error_code:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self._sequences.clear()
        code: int = response.error_code
        return code
