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
    """The two places in which the cluster remembers a partition."""

    record: PartitionRecord
    assignment: Assignment


class ElectionRules(NamedTuple):
    """What an election must know beside the image."""

    unclean: Callable[[str], bool]
    """Whether `unclean.leader.election.enable` holds for a topic."""
    shutting_down: frozenset[int] = frozenset()
    """Brokers that are up but asked to leave: they lead only what nobody else can."""


class PartitionChanges:
    """Collects new states; one topic record carries all assignments that change in its topic."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._after: dict[TopicPartition, PartitionState] = {}

    def current(self, key: TopicPartition) -> PartitionState | None:
        """As decided so far; None where there is no such partition."""
        after = self._after.get(key)
        if after is not None:
            return after
        state = self._image.partitions.get(key)
        if state is None:
            return None
        return PartitionState(state, self._image.topics[key.topic].assignments[key.partition])

    def add(self, after: PartitionState) -> None:
        self._after[after.record.key] = after

    def changes(self) -> list[Change]:
        assignments: dict[str, dict[int, Assignment]] = {}
        for key, after in self._after.items():
            known = self._image.topics[key.topic].assignments
            if after.assignment != known[key.partition]:
                assignments.setdefault(key.topic, dict(known))[key.partition] = after.assignment
        topics: list[Change] = [
            Put(replace(self._image.topics[topic], assignments=changed))
            for topic, changed in assignments.items()
        ]
        return topics + [Put(after.record) for after in self._after.values()]


def new_partition(
    topic: str, partition: int, replicas: Iterable[int], live: Container[int], controller_epoch: int
) -> PartitionRecord:
    """The first live replica leads, all live ones are in sync: there is nothing to lag behind.

    At least one replica is live.
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
    """The state that follows; None where nothing changes.

    `isr` and `assignment` are those to aim at, if not those of now; at least one member of the ISR
    is among the replicas, or an unclean election is allowed and finds a live one. `prefer` leads if
    it is in sync. Brokers that `restarted` may have lost what they had not flushed: they leave the
    ISR unless nobody else is in it, and where one of them leads again it does so in a new epoch.
    """
    state = before.record
    target = assignment or before.assignment
    in_sync = [r for r in (state.isr if isr is None else isr) if r in target.replicas]

    def best(replicas: Iterable[int]) -> list[int]:
        up = [r for r in replicas if r in live]
        return [r for r in up if r not in restarted and r not in rules.shutting_down] or up

    voters = best(in_sync)
    if prefer in voters:
        leader = prefer
    elif state.leader in voters:
        leader = state.leader
    elif voters:
        leader = next(r for r in target.replicas if r in voters)
    elif rules.unclean(state.topic) and (candidates := best(target.replicas)):
        leader = candidates[0]
        voters = [leader]
    else:
        leader = NO_LEADER
        voters = in_sync
    if not voters:
        raise ValueError(f"{state.key} would be left without an in-sync replica")

    if leader != NO_LEADER and (target.adding or target.removing):
        staying = tuple(r for r in target.replicas if r not in target.removing)
        if all(r in voters for r in staying):
            target = Assignment(staying)
            voters = [r for r in voters if r in staying]
            if leader not in staying:
                leader = staying[0]

    moved = leader != state.leader or target != before.assignment
    again = leader != NO_LEADER and leader == state.leader and leader in restarted
    if not (moved or again or tuple(voters) != state.isr):
        return None
    keeps_epoch = by_leader and not moved
    return PartitionState(
        replace(
            state,
            leader=leader,
            leader_epoch=state.leader_epoch + (0 if keeps_epoch else 1),
            isr=tuple(voters),
            controller_epoch=controller_epoch,
            partition_epoch=state.partition_epoch + 1,
        ),
        target,
    )
