"""The ISRs of the partitions that this broker leads: follows its followers, proposes changes.

A follower's Fetch may add it to the ISR and advance the high watermark. A task removes followers
that lag, every half of `replica.lag.time.max.ms`. `replication/isr.py` decides.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.broker.pacer import Pacer
from penstock.broker.replica.alter_partition_manager import AlterPartitionManager
from penstock.broker.replica.replica import Replica
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import BrokerKey, Change, Delete
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.replication.follower_state import FollowerState
from penstock.replication.isr import (
    CommittedState,
    Outcome,
    apply_outcome,
    expand_isr,
    shrink_isr,
)
from penstock.replication.partition import IsrChange, IsrProposal, IsrRules

logger = logging.getLogger(__name__)


def isr_rules(image: ClusterImage, max_lag_ms: int) -> IsrRules:
    """Returns the rules of a broker that knows the others from this image."""

    def live_epoch(broker_id: int) -> int | None:
        record = image.brokers.get(broker_id)
        return None if record is None else record.epoch

    return IsrRules(max_lag_ms, live_epoch)


@dataclass(slots=True)
class ReplicationStatus:
    """The counters of a leader: events since the start, and its partitions by their state."""

    isr_expands: int
    isr_shrinks: int
    failed_isr_updates: int
    leaders: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0

    def add(self, replica: Replica) -> None:
        """Counts a replica, if this broker leads its partition."""
        partition = replica.partition
        if partition.is_leader:
            needed = partition.needed_in_sync(replica.config.min_insync_replicas)
            self.leaders += 1
            self.under_replicated += partition.is_under_replicated
            self.under_min_isr += len(partition.isr) < needed
            self.at_min_isr += len(partition.isr) == needed
            self.reassigning += bool(partition.adding or partition.removing)


class IsrManager:
    """Proposes the ISRs of all replicas that this broker leads. It belongs to the event loop."""

    def __init__(
        self,
        replicas: Iterable[Replica],
        proposals: AlterPartitionManager,
        rules: IsrRules,
        broker_epoch: Callable[[], int],
        pacer: Pacer,
        clock: Clock,
    ) -> None:
        """`replicas` yields the replicas that this broker has at the time."""
        self._replicas = replicas
        self._proposals = proposals
        self._rules = rules
        self._broker_epoch = broker_epoch
        self._pacer = pacer
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self.isr_expands = 0
        self.isr_shrinks = 0
        self.failed_isr_updates = 0

    # --- fetches of followers

    def record_fetch(
        self,
        replica: Replica,
        follower: FollowerState,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        broker_epoch: int,
    ) -> None:
        """Applies what a follower's Fetch says about its log.

        `leader_end_offset` is where the leader's log ended when the fetch was read. Raises
        NOT_LEADER_OR_FOLLOWER for a fetch of an earlier process of the follower's broker.
        """
        broker_id = follower.broker_id
        live_epoch = self._rules.live_epoch(broker_id)
        if live_epoch is not None and 0 <= broker_epoch < live_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {broker_id} fetched with epoch {broker_epoch}, "
                f"its current epoch is {live_epoch}",
            )
        previous_end, previous_start = follower.log_end_offset, follower.log_start_offset
        follower.record_fetch(
            fetch_offset,
            log_start_offset,
            leader_end_offset,
            self._clock.monotonic_ms(),
            broker_epoch,
        )
        if log_start_offset != previous_start:
            replica.on_low_watermark_changed()
        if broker_id not in replica.partition.isr:
            self._expand(replica, follower)
        if fetch_offset != previous_end:
            replica.advance_high_watermark()

    def apply(self, changes: Iterable[Change]) -> None:
        """Advances the watermarks that have waited for followers on brokers that are down now."""
        if any(
            isinstance(change, Delete) and isinstance(change.key, BrokerKey) for change in changes
        ):
            for replica in list(self._replicas):
                if replica.partition.followers:
                    replica.advance_high_watermark()
                    replica.on_low_watermark_changed()

    # --- proposals

    def _expand(self, replica: Replica, follower: FollowerState) -> None:
        """Proposes to add a follower that is in sync."""
        partition = replica.partition
        if follower.broker_id in partition.isr:
            return
        proposal = expand_isr(
            partition,
            follower.broker_id,
            replica.log.high_watermark,
            self._rules,
            self._broker_epoch(),
        )
        if proposal is not None:
            logger.info("%s: broker %d is in sync again", partition.key, follower.broker_id)
            self._submit(replica, proposal)

    def expand(self, replica: Replica) -> None:
        """Proposes to add a follower that has caught up while another proposal was pending.

        Its fetches do not name a partition without new records.
        """
        partition = replica.partition
        if not partition.is_leader or len(partition.isr) > len(partition.followers):
            return
        try:
            end = replica.log.log_end_offset
        except KafkaError:
            return  # the controller will choose another leader
        now_ms = self._clock.monotonic_ms()
        for follower in partition.followers.values():
            if follower.is_caught_up(end, now_ms, self._rules.max_lag_ms):
                self._expand(replica, follower)

    def shrink(self, replica: Replica) -> None:
        """Proposes to remove the followers of one partition that lag."""
        partition = replica.partition
        if not partition.is_leader or len(partition.isr) == 1:
            return
        try:
            log = replica.log
        except KafkaError:
            return  # the controller will choose another leader
        previous = partition.isr
        proposal = shrink_isr(
            partition,
            log.log_end_offset,
            self._clock.monotonic_ms(),
            self._rules,
            self._broker_epoch(),
        )
        if proposal is not None:
            logger.info(
                "%s: the ISR shrinks from %s to %s; log end offset %d, high watermark %d, lagging: "
                "%s",
                partition.key,
                previous,
                proposal.isr,
                log.log_end_offset,
                log.high_watermark,
                [partition.followers.get(member) for member in set(previous) - set(proposal.isr)],
            )
            self._submit(replica, proposal)

    def _submit(self, replica: Replica, proposal: IsrProposal) -> None:
        def on_result(proposal: IsrProposal, result: CommittedState | ErrorCode) -> bool:
            return self._apply(replica, proposal, result)

        self._proposals.submit(proposal, on_result)

    def _apply(
        self, replica: Replica, proposal: IsrProposal, result: CommittedState | ErrorCode
    ) -> bool:
        partition = replica.partition
        outcome = apply_outcome(partition, proposal, result)
        if isinstance(result, CommittedState):
            if proposal.change is IsrChange.EXPAND:
                self.isr_expands += 1
            else:
                self.isr_shrinks += 1
        else:
            self.failed_isr_updates += 1
            logger.log(
                logging.WARNING if outcome is Outcome.RETRY else logging.INFO,
                "%s: the controller refused the ISR %s with %s",
                partition.key,
                proposal.isr,
                result.name,
            )
        if outcome is Outcome.COMMITTED:
            logger.info("%s: the ISR is %s", partition.key, partition.isr)
        if outcome is not Outcome.RETRY:
            # A refused proposal no longer holds the high watermark back.
            replica.advance_high_watermark()
        return outcome is Outcome.RETRY

    # --- task

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._proposals.close()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._rules.max_lag_ms / 2000)
            async for replica in self._pacer.each(list(self._replicas)):
                try:
                    self.shrink(replica)
                    self.expand(replica)
                    # It may have waited for a follower that no longer counts as caught up.
                    replica.advance_high_watermark()
                except Exception:  # the other partitions must be checked
                    logger.exception("cannot check the ISR of %s", replica.partition.key)

    # --- status

    def counters(self) -> ReplicationStatus:
        """Returns the events since the start; the caller adds the replicas."""
        return ReplicationStatus(self.isr_expands, self.isr_shrinks, self.failed_isr_updates)

    def status(self) -> ReplicationStatus:
        """Counts the partitions that this broker leads by their state."""
        status = self.counters()
        for replica in self._replicas:
            status.add(replica)
        return status
