"""Consume-transform-produce loops: each input must be processed exactly once.

The processed offsets are committed in the transaction of the results. If two loops run for the same
partition, the older one is fenced: by its transactional id, which belongs to the partition, or
(`txn_members`) by the generation of its group.
"""

from typing import TYPE_CHECKING

from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.sim.txn_clients import AbortableError, FencedError, Producer, Reader
from tests.sim.txn_followers import Attempt

if TYPE_CHECKING:
    from tests.sim.txn_simulation import Simulation

INPUT, OUTPUT = "in", "out"
GROUP = "transformers"
_FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
_ABORTABLE = frozenset({*_FENCED, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE})
NOT_A_MEMBER = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)


class Transformer(Producer):
    """A loop over partitions of the input, with a transactional id for these partitions."""

    group = GROUP

    def __init__(
        self,
        simulation: "Simulation",
        name: str,
        transactional_id: str,
        version: int,
        timeout_ms: int,
    ) -> None:
        super().__init__(simulation, name, transactional_id, version, timeout_ms)
        self.sources: list[int] = []
        self.member_id = ""
        self.generation = -1
        self._reader = Reader(simulation, f"{name}-reader")
        self._positions: dict[int, int] = {}
        """The next offset of each partition, if it is certain."""

    def disconnect(self) -> None:
        super().disconnect()
        self._reader.disconnect()

    def own(self, sources: list[int]) -> None:
        """Sets the partitions to process."""
        self.sources = sources
        self._positions.clear()

    async def cycle(self) -> bool:
        """Processes some of the input; returns False if all of its partitions are done."""
        if not self.sources:
            return True
        number = self.random.choice(self.sources)
        if number not in self._positions:
            self._positions[number] = await self._committed(number)
        position = self._positions[number]
        source = TopicPartition(INPUT, number)
        self._reader.positions[source] = position
        result = await self._reader.poll(source, self.random.choice((100, 200, 400)))
        if not result:
            ends = [self._positions.get(source, 0) for source in self.sources]
            return min(ends) < self.simulation.input_end
        attempt = self.simulation.checks.begin(self.name)
        attempt.offsets[source] = self._reader.positions[source]
        records: dict[TopicPartition, list[str]] = {}
        for offset, _ in result:
            target = TopicPartition(OUTPUT, offset % 2)
            records.setdefault(target, []).append(f"{self.group}-{number}-{offset}")
        del self._positions[number]
        commit = not self.simulation.faults_active or self.random.random() < 0.85
        if await self.transaction(attempt, [records], commit=commit):
            self._positions[number] = attempt.offsets[source]
        return True

    async def _committed(self, source: int) -> int:
        """Returns the group's stable committed offset."""
        topic = OffsetFetchRequestTopic(INPUT, [source])
        request = OffsetFetchRequest(self.group, [topic], require_stable=True)

        def code(response: OffsetFetchResponse) -> int:
            return response.error_code or response.topics[0].partitions[0].error_code

        response, error, _ = await self.request_until_final(request, 7, OffsetFetchResponse, code)
        assert not error, f"OffsetFetch {error.name}"
        return max(response.topics[0].partitions[0].committed_offset, 0)

    async def before_end(self, attempt: Attempt) -> None:
        if self.version == 1:
            await self._add_offsets()
        topics = [
            TxnOffsetCommitRequestTopic(
                topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(index, offset, committed_metadata=attempt.tag)
                ],
            )
            for (topic, index), offset in attempt.offsets.items()
        ]
        request = TxnOffsetCommitRequest(
            self.transactional_id,
            self.group,
            self.producer_id,
            self.epoch,
            self.generation,
            self.member_id,
            topics=topics,
        )
        _, error, _ = await self.request_until_final(
            request,
            5 if self.version == 2 else 3,
            TxnOffsetCommitResponse,
            lambda r: r.topics[0].partitions[0].error_code,
        )
        if error:
            allowed = _ABORTABLE if self.generation < 0 else _ABORTABLE | NOT_A_MEMBER
            assert error in allowed, f"{self.name}: TxnOffsetCommit {error.name}"
            raise AbortableError(f"TxnOffsetCommit {error.name}")

    async def _add_offsets(self) -> None:
        request = AddOffsetsToTxnRequest(
            self.transactional_id, self.producer_id, self.epoch, self.group
        )
        _, error, _ = await self.request_until_final(
            request, 3, AddOffsetsToTxnResponse, lambda r: r.error_code
        )
        if error:
            assert error in _FENCED, f"{self.name}: AddOffsetsToTxn {error.name}"
            raise FencedError(f"AddOffsetsToTxn {error.name}")
