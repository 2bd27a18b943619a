"""The state machine of a partition: the next leader, ISR, assignment and epochs.

`next_partition_state` computes the state that follows any event: a broker fails or starts, a leader
changes its ISR, a reassignment starts. Its rules:

- The ISR contains live replicas only. If none is live it stays unchanged: its members are the only
  ones known to have every committed record, and one of them leads again when it is back.
- A leader is elected from the ISR (R5). A replica outside the ISR is elected only if the topic
  allows unclean elections; it is then the only member of the ISR.
- A reassignment completes as soon as all replicas that stay are in sync.
- Every change raises the partition epoch by one. It raises the leader epoch too, unless the leader
  itself proposed the ISR: replicas must notice every change that the controller made on its own.
"""

from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Assignment, Change, PartitionRecord, Put
from penstock.core.ids import TopicPartition

NO_LEADER = -1


class PartitionState(NamedTuple):
    """A partition's leader and ISR, and its assignment from the record of its topic."""

    record: PartitionRecord
    assignment: Assignment


class ElectionRules(NamedTuple):
    """The inputs of an election beside the image."""

    allows_unclean: Callable[[str], bool]
    """Returns `unclean.leader.election.enable` of a topic."""
    shutting_down: frozenset[int] = frozenset()
    """Brokers in controlled shutdown: they lead only partitions that no other broker can lead."""


class PartitionChanges:
    """Collects new partition states and turns them into changes, one topic record per topic."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._states: dict[TopicPartition, PartitionState] = {}

    def current(self, key: TopicPartition) -> PartitionState | None:
        """Returns the state including changes so far; None if the partition does not exist."""
        state = self._states.get(key)
        if state is not None:
            return state
        record = self._image.partitions.get(key)
        if record is None:
            return None
        return PartitionState(record, self._image.topics[key.topic].assignments[key.partition])

    def add(self, state: PartitionState) -> None:
        self._states[state.record.key] = state

    def changes(self) -> list[Change]:
        assignments: dict[str, dict[int, Assignment]] = {}
        for key, state in self._states.items():
            current = self._image.topics[key.topic].assignments
            if state.assignment != current[key.partition]:
                assignments.setdefault(key.topic, dict(current))[key.partition] = state.assignment
        topics: list[Change] = [
            Put(replace(self._image.topics[topic], assignments=topic_assignments))
            for topic, topic_assignments in assignments.items()
        ]
        return topics + [Put(state.record) for state in self._states.values()]


def new_partition(
    topic: str, partition: int, replicas: Iterable[int], live: Container[int], controller_epoch: int
) -> PartitionRecord:
    """Returns a new partition: its first live replica leads, and all live replicas are in sync.

    At least one replica must be live.
    """
    isr = tuple(replica for replica in replicas if replica in live)
    return PartitionRecord(
        topic=topic,
        partition=partition,
        leader=isr[0],
        leader_epoch=0,
        isr=isr,
        controller_epoch=controller_epoch,
        partition_epoch=0,
    )


def next_partition_state(
    before: PartitionState,
    live: Container[int],
    controller_epoch: int,
    rules: ElectionRules,
    *,
    isr: tuple[int, ...] | None = None,
    assignment: Assignment | None = None,
    prefer: int = NO_LEADER,
    restarted: Container[int] = (),
    by_leader: bool = False,
) -> PartitionState | None:
    """Returns the next state, or None if nothing changes.

    `isr` and `assignment` are the target values; by default the current ones. At least one member
    of the ISR must be among the replicas, or an unclean election must be possible. `prefer` leads
    if it is in sync. Brokers in `restarted` may have lost records that they had not flushed: they
    leave the ISR unless it would be empty, and lead again only in a new leader epoch. `by_leader`
    is set if the leader itself proposed the ISR.
    """
    record = before.record
    target = assignment or before.assignment
    in_sync = [r for r in (record.isr if isr is None else isr) if r in target.replicas]

    def eligible(replicas: Iterable[int]) -> list[int]:
        up = [r for r in replicas if r in live]
        return [r for r in up if r not in restarted and r not in rules.shutting_down] or up

    new_isr = eligible(in_sync)
    if prefer in new_isr:
        leader = prefer
    elif record.leader in new_isr:
        leader = record.leader
    elif new_isr:
        leader = next(r for r in target.replicas if r in new_isr)
    elif rules.allows_unclean(record.topic) and (candidates := eligible(target.replicas)):
        leader = candidates[0]
        new_isr = [leader]
    else:
        leader = NO_LEADER
        new_isr = in_sync
    if not new_isr:
        raise ValueError(f"{record.key} would have no in-sync replica")

    if leader != NO_LEADER and (target.adding or target.removing):
        staying = tuple(r for r in target.replicas if r not in target.removing)
        if all(r in new_isr for r in staying):
            target = Assignment(staying)
            new_isr = [r for r in new_isr if r in staying]
            if leader not in staying:
                leader = staying[0]

    is_moved = leader != record.leader or target != before.assignment
    is_reelected = leader != NO_LEADER and leader == record.leader and leader in restarted
    if not (is_moved or is_reelected or tuple(new_isr) != record.isr):
        return None
    keeps_epoch = by_leader and not is_moved
    return PartitionState(
        replace(
            record,
            leader=leader,
            leader_epoch=record.leader_epoch + (0 if keeps_epoch else 1),
            isr=tuple(new_isr),
            controller_epoch=controller_epoch,
            partition_epoch=record.partition_epoch + 1,
        ),
        target,
    )
