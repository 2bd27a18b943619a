"""One partition, from its state before to its state after: ISR, leader, reassignment, epochs.

Whatever happens (a broker goes or comes, a leader changes its ISR, a reassignment starts), `settle`
works out the one next state. What it holds to:

- The ISR has live replicas only. Where none is left it stays as it was: its members are the only
  ones known to have everything, and one of them will lead again when it is back.
- A leader comes from the ISR (R5); from outside only where the topic allows an unclean election,
  and then it alone is in sync.
- A reassignment is finished as soon as all replicas that are to stay are in sync.
- Every change raises the partition epoch by one, and the leader epoch too unless the leader itself
  asked for a new ISR: replicas must notice what the controller did behind their back.
"""

from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Assignment, Change, PartitionRecord, Put
from penstock.core.ids import TopicPartition

NO_LEADER = -1


class Partition(NamedTuple):
    """The two places in which the cluster remembers a partition."""

    state: PartitionRecord
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
        self._after: dict[TopicPartition, Partition] = {}

    def current(self, key: TopicPartition) -> Partition | None:
        """As decided so far; None where there is no such partition."""
        after = self._after.get(key)
        if after is not None:
            return after
        state = self._image.partitions.get(key)
        if state is None:
            return None
        return Partition(state, self._image.topics[key.topic].assignments[key.partition])

    def add(self, after: Partition) -> None:
        self._after[after.state.key] = after

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
        return topics + [Put(after.state) for after in self._after.values()]


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


def settle(
    before: Partition,
    live: Container[int],
    controller_epoch: int,
    rules: ElectionRules,
    *,
    isr: tuple[int, ...] | None = None,
    assignment: Assignment | None = None,
    prefer: int = NO_LEADER,
    restarted: Container[int] = (),
    by_leader: bool = False,
) -> Partition | None:
    """The state that follows; None where nothing changes.

    `isr` and `assignment` are those to aim at, if not those of now; at least one member of the ISR
    is among the replicas, or an unclean election is allowed and finds a live one. `prefer` leads if
    it is in sync. Brokers that `restarted` may have lost what they had not flushed: they leave the
    ISR unless nobody else is in it, and where one of them leads again it does so in a new epoch.
    """
    state = before.state
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
    return Partition(
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
