"""A broker in the replication simulation: replicas that lead or follow, without files or sockets.

The followers run the real `FollowerMachine`, the leaders the real `Partition` and ISR decisions;
the fetch sessions of leaders are the real ones, too.
"""

from collections.abc import Callable
from itertools import count
from typing import Protocol
from uuid import UUID

from penstock.broker.pacer import run_to_end
from penstock.broker.replica.fetch_sessions import CachedPartition, FetchSessionCache
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.fetch import (
    FetchEpochEndOffset,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
)
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.replication.follower import FollowerRequest, FollowerResponse
from penstock.replication.isr import CommittedState, apply_outcome, expand_isr, shrink_isr
from penstock.replication.partition import IsrProposal, IsrRules, Partition
from tests.sim.replication_log import SimLog, SimRecord

MAX_LAG_MS = 300
MAX_FETCHED_RECORDS = 5


class PartitionState(Protocol):
    """A state of a partition, as the controller sends it."""

    @property
    def leader(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...
    @property
    def isr(self) -> tuple[int, ...]: ...


class SimReplica:
    """A replica: its state and its log. The log survives crashes of the broker."""

    def __init__(self, key: TopicPartition, topic_id: UUID, broker_id: int) -> None:
        self.key = key
        self.topic_id = topic_id
        self.broker_id = broker_id
        self.log = SimLog()
        self.partition = Partition(key, topic_id, broker_id)

    def restart(self) -> None:
        self.partition = Partition(self.key, self.topic_id, self.broker_id)


class LeaderSide:
    """What a broker does for the partitions that it leads."""

    def __init__(
        self,
        broker_id: int,
        replicas: dict[TopicPartition, SimReplica],
        rules: IsrRules,
        min_insync_replicas: int,
        on_high_watermark: Callable[[SimReplica], None],
        propose: Callable[[SimReplica, IsrProposal], None],
    ) -> None:
        self.broker_id = broker_id
        self.replicas = replicas
        self.rules = rules
        self.min_insync_replicas = min_insync_replicas
        self.on_high_watermark = on_high_watermark
        self.propose = propose
        self.broker_epoch = 0
        self.checks_epochs = True
        """Whether a fetch is compared with the leader epochs of the log; a planted fault if not."""
        self.fences = True
        """Whether a fetch with another leader epoch is refused; a planted fault if not."""
        self.counts_followers = True
        """Whether the high watermark waits for the ISR; a planted fault if not."""
        self.restart()

    def restart(self) -> None:
        ids = count(1)
        self.sessions = FetchSessionCache(10, lambda: next(ids))

    def become_leader(self, replica: SimReplica, state: PartitionState, now_ms: int) -> bool:
        """Applies a state; returns whether it was newer than the current one."""
        partition, log = replica.partition, replica.log
        previous_epoch = partition.leader_epoch
        is_newer = partition.update(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            isr=state.isr,
            replicas=(0, 1, 2),
            log_end_offset=log.log_end_offset,
            now_ms=now_ms,
        )
        if is_newer and partition.is_leader:
            if state.leader_epoch != previous_epoch:
                log.assign_epoch(state.leader_epoch, log.log_end_offset)
            self.advance(replica, now_ms)
        return is_newer

    def append(self, replica: SimReplica, value: int, now_ms: int) -> None:
        replica.log.append(SimRecord(replica.partition.leader_epoch, value))
        self.advance(replica, now_ms)

    def advance(self, replica: SimReplica, now_ms: int) -> None:
        partition, log = replica.partition, replica.log
        if not partition.is_leader or len(partition.isr) < self.min_insync_replicas:
            return
        offset = log.log_end_offset
        if self.counts_followers:
            offset = partition.high_watermark(offset, now_ms, self.rules)
        if offset > log.high_watermark:
            log.high_watermark = offset
            self.on_high_watermark(replica)

    def shrink_isrs(self, now_ms: int) -> None:
        for replica in self.replicas.values():
            if replica.partition.is_leader:
                proposal = shrink_isr(
                    replica.partition,
                    replica.log.log_end_offset,
                    now_ms,
                    self.rules,
                    self.broker_epoch,
                )
                if proposal is not None:
                    self.propose(replica, proposal)

    def finish_proposal(
        self,
        replica: SimReplica,
        proposal: IsrProposal,
        response: CommittedState | ErrorCode,
        now_ms: int,
    ) -> None:
        apply_outcome(replica.partition, proposal, response)
        self.advance(replica, now_ms)

    # --- requests of followers

    def handle(self, request: FollowerRequest, now_ms: int) -> FollowerResponse:
        if isinstance(request, FetchRequest):
            return self._fetch(request, now_ms)
        assert isinstance(request, ListOffsetsRequest)
        return self._list_offsets(request)

    def _fetch(self, request: FetchRequest, now_ms: int) -> FetchResponse:
        try:
            context = run_to_end(
                self.sessions.open(
                    request, uses_topic_ids=True, name_of=lambda topic_id: "t", now_ms=now_ms
                )
            )
        except KafkaError as error:
            return FetchResponse(error_code=error.code)
        context.open_session(now_ms)
        state = request.replica_state
        results = [
            (cached, self._read(cached, state.replica_id, state.replica_epoch, now_ms))
            for cached in list(context.partitions.values())
        ]
        topics = run_to_end(context.responses(results))
        return FetchResponse(session_id=context.session_id, responses=topics)

    def _read(
        self, cached: CachedPartition, follower_id: int, follower_epoch: int, now_ms: int
    ) -> FetchPartitionData:
        replica = self.replicas[TopicPartition(cached.topic, cached.index)]
        partition, log = replica.partition, replica.log
        data = FetchPartitionData(cached.index)
        data.error_code = partition.check_leader(cached.leader_epoch if self.fences else -1)
        if data.error_code:
            return data
        offset = cached.fetch_offset
        if self.checks_epochs and cached.last_fetched_epoch >= 0:
            end = log.end_offset_for_epoch(cached.last_fetched_epoch)
            if end is None:
                data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                return data
            if end[1] < cached.last_fetched_epoch or end[0] < offset:
                data.diverging_epoch = FetchEpochEndOffset(end[1], end[0])
                return data
        if not log.log_start_offset <= offset <= log.log_end_offset:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return data
        data.records = log.read(offset, MAX_FETCHED_RECORDS)
        partition.followers[follower_id].record_fetch(
            offset, log.log_start_offset, log.log_end_offset, now_ms, follower_epoch
        )
        self.advance(replica, now_ms)
        proposal = expand_isr(
            partition, follower_id, log.high_watermark, self.rules, self.broker_epoch
        )
        if proposal is not None:
            self.propose(replica, proposal)
        data.high_watermark = log.high_watermark
        data.log_start_offset = log.log_start_offset
        return data

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            partitions = []
            for wanted in topic.partitions:
                replica = self.replicas[TopicPartition(topic.name, wanted.partition_index)]
                code = replica.partition.check_leader(wanted.current_leader_epoch)
                log = replica.log
                offset = log.log_end_offset if wanted.timestamp == -1 else log.log_start_offset
                partitions.append(
                    ListOffsetsPartitionResponse(
                        partition_index=wanted.partition_index, error_code=code, offset=offset
                    )
                )
            topics.append(ListOffsetsTopicResponse(topic.name, partitions))
        return ListOffsetsResponse(topics=topics)
