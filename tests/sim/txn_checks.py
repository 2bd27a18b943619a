"""The invariants of the transaction simulation, at every step and at the end.

At every step: a transaction is committed in all its partitions or in none, only when its client
requested it, and gets no record after its end; the last stable offset is exactly where the first
open transaction starts, and never goes back; readers see what is committed, all of it, in order;
offsets of groups never go back (no user moves them here); a partition of the input belongs to one
member of a generation; no input is processed twice; ids and epochs of producers belong to one
producer each, and never go back; every acknowledged batch is in the log at the acknowledged
offset, however often it was sent.

At the end, after all faults: every transaction is decided, with all its records, and transactions
that were acknowledged as committed are.

These hold over a kill of the broker, and over a power cut where `flush.messages` is 1, but that
readers may have seen the end of a log which is then gone. Otherwise a power cut takes what was not
flushed, from each log its own part, as it does in Kafka where a partition has one replica: a
transaction that was under way or had ended before may be left in one log and be gone from another,
or be open in a log and unknown to its coordinator. What holds then: each log is a beginning of what
it was, with all that was flushed, and is consistent in itself; transactions that begin afterwards,
with other transactional ids, have all properties, but that they are not shown while one from before
keeps the log unstable.
"""

from collections.abc import Iterable

from penstock.broker.broker import Broker
from penstock.coordinator.txn.state import TransactionState
from penstock.core.ids import TopicPartition
from penstock.core.internal_topics import (
    GROUP_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from penstock.storage.log.log import Log
from tests.sim.txn_followers import (
    Attempt,
    DataFollower,
    Follower,
    OffsetsFollower,
    TxnStateFollower,
)

_KINDS: dict[str, type[Follower]] = {
    GROUP_METADATA_TOPIC: OffsetsFollower,
    TRANSACTION_STATE_TOPIC: TxnStateFollower,
}


class Checks:
    """The observations of all clients and logs, and their invariants."""

    def __init__(self, inputs: set[tuple[int, int]]) -> None:
        """`inputs`: partition and offset of each record that each group must process."""
        self._inputs = inputs
        self.attempts: dict[str, Attempt] = {}
        self.followers: dict[TopicPartition, Follower] = {}
        self.cuts = 0
        """The number of power cuts."""
        self.losses = 0
        """The number of power cuts that lost acknowledged but unflushed data."""
        self._owners: dict[tuple[int, int], str] = {}
        self._members: dict[tuple[int, int], str] = {}
        self._done: dict[str, dict[tuple[int, int], str]] = {}
        """The inputs that each group has processed, with the attempt."""

    # --- reports of clients

    def begin(self, name: str) -> Attempt:
        tag = f"x{len(self.attempts)}"
        attempt = self.attempts[tag] = Attempt(tag, name)
        return attempt

    def received_producer_id(self, owner: str, producer_id: int, epoch: int) -> None:
        """Records that a producer received this id and epoch."""
        previous = self._owners.setdefault((producer_id, epoch), owner)
        assert previous == owner, f"producer {producer_id} epoch {epoch} is {previous} and {owner}"

    def owns(self, generation: int, partition: int, member_id: str) -> None:
        """Records that a group member was assigned a partition."""
        previous = self._members.setdefault((generation, partition), member_id)
        assert previous == member_id, (
            f"generation {generation}: {previous} and {member_id} have a part"
        )

    def acked(self, partition: TopicPartition, offset: int, values: list[bytes]) -> None:
        """Checks an acknowledged Produce, which may be a retry."""
        result = [self.data(partition).values.get(offset + n) for n in range(len(values))]
        assert result == values, f"{partition} {offset}: {values} acknowledged, {result} is there"

    def data(self, partition: TopicPartition) -> DataFollower:
        follower = self.followers[partition]
        assert isinstance(follower, DataFollower)
        return follower

    # --- at every step

    def step(self, logs: Iterable[Log]) -> None:
        for log in logs:
            follower = self.followers.get(log.partition)
            if follower is None:
                kind = _KINDS.get(log.partition.topic, DataFollower)
                follower = self.followers[log.partition] = kind(log.partition, self.attempts)
                if isinstance(follower, DataFollower):
                    follower.on_commit = self._committed
            if follower.end != log.log_end_offset or follower.stable != log.last_stable_offset:
                follower.follow(log)

    def _committed(self, value: bytes) -> None:
        """Records a committed value; checks that no input is processed in two transactions."""
        tag, _, source = value.decode().split("|")
        if source:
            group, partition, offset = source.split("-")
            place = (int(partition), int(offset))
            before = self._done.setdefault(group, {}).setdefault(place, tag)
            assert before == tag, f"{value!r}: its input was processed in {before}"

    def are_done(self, group: str) -> bool:
        """Returns whether a group has processed all of the input."""
        return self._inputs == self._done.get(group, {}).keys()

    # --- crashes

    def killed(self, logs: Iterable[Log]) -> None:
        """Checks, after a restart, that all written data exists."""
        for log in logs:
            follower = self.followers[log.partition]
            end = log.log_end_offset
            assert end == follower.end, f"{log.partition} ended at {follower.end}, now at {end}"

    def power_cut(
        self, logs: Iterable[Log], flushed: dict[TopicPartition, int], *, durable: bool
    ) -> None:
        """Checks the flushed data after a power cut; `durable`: nothing else was acknowledged."""
        self.cuts += 1
        if not durable:
            self.losses += 1
            for attempt in self.attempts.values():
                attempt.lost = True
            self._owners.clear()
        for log in logs:
            follower = self.followers.get(log.partition)
            if follower is None:
                continue
            compacted = log.partition.topic in _KINDS
            again = follower.survived(log, flushed.get(log.partition, 0), compacted)
            if isinstance(again, DataFollower):
                again.on_commit = self._committed
            self.followers[log.partition] = again

    # --- the end

    def finish(self, broker: Broker, groups: Iterable[str], ids: set[str] | None) -> None:
        """Checks the final state, when no request is in flight and these groups are done.

        After a power cut, `ids` are the transactional ids that came after it.
        """
        for attempt in self.attempts.values():
            if not attempt.lost:
                self._check_whole(attempt)
        for log in broker.logs:
            stable = log.last_stable_offset == log.log_end_offset
            assert stable or self.losses, f"{log} is stable to {log.last_stable_offset} only"
        self._check_coordinator(broker, ids)
        if not self.losses:
            self._check_groups(broker)
        for group in groups:
            missing = self._inputs - self._done.get(group, {}).keys()
            assert not missing, f"{group} has not processed {sorted(missing)}"

    def _check_whole(self, attempt: Attempt) -> None:
        counts = {
            follower.partition: follower.counts[attempt.tag]
            for follower in self.followers.values()
            if isinstance(follower, DataFollower) and attempt.tag in follower.counts
        }
        if counts:
            assert attempt.outcome is not None, f"{attempt} is not decided"
        if attempt.commit_acked and (counts or attempt.acked):
            assert attempt.outcome is True, f"{attempt} was committed, and is not"
        if attempt.outcome:
            assert counts == attempt.sent, f"{attempt} sent {attempt.sent}, {counts} is there"
            offsets = [f for f in self.followers.values() if isinstance(f, OffsetsFollower)]
            there = any(attempt.tag in follower.tags for follower in offsets)
            assert there == bool(attempt.offsets), f"{attempt} without {attempt.offsets}"

    def _check_coordinator(self, broker: Broker, ids: set[str] | None) -> None:
        resting = (
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        )
        for shard in broker.transactions._shards.values():
            assert shard is not None, "a coordinator is not loaded"
            for metadata in shard.transactions.values():
                if ids is not None and metadata.transactional_id not in ids:
                    continue
                assert metadata.state in resting, f"{metadata} is not decided"
                assert not metadata.partitions, f"{metadata} waits for markers"

    def _check_groups(self, broker: Broker) -> None:
        for partition, shard in broker.groups._shards.items():
            assert shard is not None, "a coordinator is not loaded"
            follower = self.followers[TopicPartition(GROUP_METADATA_TOPIC, partition)]
            assert isinstance(follower, OffsetsFollower)
            for (group, topic, number), offset in follower.committed.items():
                committed = shard.offsets.get(group, topic, number)
                assert committed is not None, f"{group} has lost its offset of {topic}-{number}"
                assert committed.offset == offset, (
                    f"{group} {topic}-{number}: {committed}, not {offset}"
                )
