"""The state machine of a partition: the next leader, ISR, assignment and epochs.

`next_partition_state` computes the state that follows any event: a broker fails or starts, a leader
changes its ISR, a reassignment starts. Its rules:

- The ISR contains live replicas only. If none is live it stays unchanged: its members are the only
  ones known to have every committed record, and one of them leads again when it is back.
- A leader is elected from the ISR (R5): the preferred replica, else the one whose broker leads the
  fewest partitions.
- While the ISR is smaller than `min.insync.replicas`, nothing is committed. The replicas that leave
  it then are eligible leader replicas: they still have every committed record, and replace the ISR
  if none of its members is live, or all have lost records (KIP-966). So a broker that lost its
  power does not lead only because the others were stopped before its session ended.
- Any other replica is elected only if the topic allows unclean elections; it is then the only
  member of the ISR, and the partition is marked as recovering.
- A reassignment completes as soon as all replicas that stay are in sync.
- Every change raises the partition epoch by one. It raises the leader epoch too, unless the leader
  itself proposed the ISR: replicas must notice every change that the controller made on its own.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec.structs import replace

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Assignment, Change, PartitionRecord, Put
from penstock.core.ids import TopicId, TopicPartition

NO_LEADER: Final = -1

RECOVERED: Final = 0
RECOVERING: Final = 1
"""The leader recovery state from an unclean election until the leader's next change of its ISR."""


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
    offline_replicas: Mapping[TopicPartition, frozenset[int]] = MappingProxyType({})
    """Replicas in failed log directories: they count as down although their brokers are live."""
    unreliable: frozenset[int] = frozenset()
    """Brokers that do not report losses, such as Kafka's: they lead only as members of the ISR."""
    min_insync_replicas: Callable[[str], int] = lambda _topic: 1
    """Returns `min.insync.replicas` of a topic."""

    def needed_in_sync(self, topic: str, assignment: Assignment) -> int:
        """Returns how many replicas must be in sync, at most all, for records to be committed."""
        return min(self.min_insync_replicas(topic), len(assignment.replicas))


class Leaderships:
    """How many partitions each broker leads, to spread leaders over brokers (R5).

    The partitions are counted only when an election needs it.
    """

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._moves: Counter[int] = Counter()
        self._counts: Counter[int] | None = None

    def choose(self, preferred: int, candidates: Sequence[int]) -> int:
        """Returns the preferred candidate, else the first of those that lead least."""
        if preferred in candidates:
            return preferred
        if len(candidates) == 1:
            return candidates[0]
        if self._counts is None:
            self._counts = Counter(state.leader for state in self._image.partitions.values())
            self._counts.update(self._moves)
        counts = self._counts
        return min(candidates, key=lambda broker_id: counts[broker_id])

    def move(self, previous: int, leader: int) -> None:
        """Counts a partition whose leader changes."""
        if previous != leader:
            counts = self._moves if self._counts is None else self._counts
            counts[previous] -= 1
            counts[leader] += 1


class PartitionChanges:
    """Collects new partition states and turns them into changes, one topic record per topic."""

    def __init__(self, image: ClusterImage) -> None:
        self.leaderships = Leaderships(image)
        """The leaderships as they are with the states collected so far."""
        self._image = image
        self._states: dict[TopicPartition, PartitionState] = {}
        self._topic_ids: dict[str, TopicId] = {}

    def assign_topic_id(self, topic: str, topic_id: TopicId) -> None:
        """Gives a topic without an id, from Kafka before 2.8, one."""
        self._topic_ids[topic] = topic_id

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
        """Adds the next state of a partition; two in a row become one step of its epochs."""
        record = state.record
        key = record.key
        previous = self.current(key)
        self.leaderships.move(
            NO_LEADER if previous is None else previous.record.leader, record.leader
        )
        if key in self._states:
            stored = self._image.partitions.get(key)
            next_epoch = 0 if stored is None else stored.leader_epoch + 1
            record = replace(
                record,
                leader_epoch=min(record.leader_epoch, next_epoch),
                partition_epoch=0 if stored is None else stored.partition_epoch + 1,
            )
        self._states[key] = PartitionState(record, state.assignment)

    def changes(self) -> list[Change]:
        assignments: dict[str, dict[int, Assignment]] = {
            topic: dict(self._image.topics[topic].assignments) for topic in self._topic_ids
        }
        for key, state in self._states.items():
            current = self._image.topics[key.topic].assignments
            if state.assignment != current[key.partition]:
                assignments.setdefault(key.topic, dict(current))[key.partition] = state.assignment
        topics: list[Change] = []
        for topic, topic_assignments in assignments.items():
            record = self._image.topics[topic]
            topic_id = self._topic_ids.get(topic, record.topic_id)
            topics.append(Put(replace(record, topic_id=topic_id, assignments=topic_assignments)))
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


def is_unaffected(
    before: PartitionState, live: set[int], rules: ElectionRules, restarted: set[int]
) -> bool:
    """Returns whether `next_partition_state` would change nothing; it is much faster.

    False may also be returned if nothing changes.
    """
    record = before.record
    isr = record.isr
    return (
        record.leader in isr
        and not record.eligible_leader_replicas
        and live.issuperset(isr)
        and restarted.isdisjoint(isr)
        and rules.shutting_down.isdisjoint(isr)
        and not before.assignment.is_reassigning
        and record.key not in rules.offline_replicas
    )


def next_partition_state(
    before: PartitionState,
    live: Container[int],
    controller_epoch: int,
    rules: ElectionRules,
    leaderships: Leaderships,
    *,
    isr: tuple[int, ...] | None = None,
    recovery_state: int | None = None,
    assignment: Assignment | None = None,
    prefer: int = NO_LEADER,
    restarted: Container[int] = (),
    unclean: Container[int] = (),
    by_leader: bool = False,
) -> PartitionState | None:
    """Returns the next state, or None if nothing changes.

    `isr`, `recovery_state` and `assignment` are the target values; by default the current ones. At
    least one member of the ISR must be among the replicas, or an unclean election must be possible.
    `prefer` leads if it is in sync. Brokers in `restarted` may have lost records that they had not
    flushed: they leave the ISR unless it would be empty, and lead again only in a new leader epoch.
    Those that are `unclean` have probably lost records: they lead only if no other member of the
    ISR, and no other eligible leader replica, up or down, has not; until then the partition waits
    for one of the others.
    `by_leader` is set if the leader itself proposed the ISR.
    """
    record = before.record
    target = assignment or before.assignment
    in_sync = record.isr if isr is None else isr
    election = _Election(before, target, in_sync, live, rules, leaderships, restarted, unclean)
    leader, new_isr, has_lost_records = election.run(prefer)
    if not new_isr:
        raise ValueError(f"{record.key} would have no in-sync replica")
    if leader != NO_LEADER and target.is_reassigning:
        leader, new_isr, target = _complete_reassignment(leader, new_isr, target)
    recovery = record.leader_recovery_state if recovery_state is None else recovery_state
    elr: tuple[int, ...] = ()
    if has_lost_records:
        recovery = RECOVERING
    elif len(new_isr) < rules.needed_in_sync(record.topic, target):
        elr = election.eligible_leader_replicas(new_isr, target)
    is_moved = leader != record.leader or target != before.assignment
    is_reelected = leader != NO_LEADER and leader == record.leader and leader in restarted
    is_changed = tuple(new_isr) != record.isr or recovery != record.leader_recovery_state
    is_changed = is_changed or elr != record.eligible_leader_replicas
    if not (is_moved or is_reelected or is_changed):
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
            leader_recovery_state=recovery,
            eligible_leader_replicas=elr,
        ),
        target,
    )


class _Elected(NamedTuple):
    leader: int
    """`NO_LEADER` if no replica can lead; the ISR then consists of those that may lead later."""
    isr: list[int]
    has_lost_records: bool = False
    """Whether the election was unclean."""


class _Election:
    """The choice of a partition's leader and ISR among the replicas of the target assignment."""

    def __init__(
        self,
        before: PartitionState,
        target: Assignment,
        isr: Sequence[int],
        live: Container[int],
        rules: ElectionRules,
        leaderships: Leaderships,
        restarted: Container[int],
        unclean: Container[int],
    ) -> None:
        self._record = before.record
        self._replicas = target.replicas
        self._live = live
        self._offline = rules.offline_replicas.get(before.record.key, ())
        self._rules = rules
        self._leaderships = leaderships
        self._restarted = restarted
        self._unclean = unclean
        in_sync = [r for r in isr if r in target.replicas]
        outside = _eligible_leader_replicas(before, target, rules, unclean)
        if outside and all(r in unclean for r in in_sync):
            in_sync, outside = outside, []
        self._in_sync = in_sync
        self._outside = outside
        """Replicas outside the ISR that have every committed record."""

    def run(self, prefer: int) -> _Elected:
        """Elects the leader: `prefer` if it is in sync, else the current one if it still is."""
        current, isr = self._record.leader, self._electable(self._in_sync)
        isr = isr or self._electable(self._outside)
        if prefer in isr:
            return _Elected(prefer, isr)
        if current in isr:
            return _Elected(current, isr)
        if isr:
            return _Elected(self._choose(isr), isr)
        if self._rules.allows_unclean(self._record.topic):
            candidates = self._electable(self._replicas)
            if candidates:
                leader = self._choose(candidates)
                return _Elected(leader, [leader], has_lost_records=True)
        waiting = [r for r in self._in_sync if r not in self._unclean] or self._in_sync
        return _Elected(NO_LEADER, waiting)

    def eligible_leader_replicas(self, isr: Sequence[int], target: Assignment) -> tuple[int, ...]:
        """Returns the replicas with every committed record that an ISR leaves out if it is too
        small to commit more.
        """
        excluded = (isr, self._offline, self._unclean, self._rules.unreliable)
        return tuple(
            r
            for r in dict.fromkeys((*self._record.isr, *self._in_sync, *self._outside))
            if r in target.replicas and not any(r in replicas for replicas in excluded)
        )

    def _electable(self, replicas: Iterable[int]) -> list[int]:
        """Returns the replicas that are up, those without losses if there are any."""
        unclean = self._unclean
        up = [r for r in replicas if r in self._live and r not in self._offline]
        complete = [r for r in up if r not in self._restarted]
        complete = complete or [r for r in up if r not in unclean]
        if not complete and all(r in unclean for r in self._in_sync):
            complete = up
        return [r for r in complete if r not in self._rules.shutting_down] or complete

    def _choose(self, candidates: Container[int]) -> int:
        replicas = self._replicas
        return self._leaderships.choose(replicas[0], [r for r in replicas if r in candidates])


def _complete_reassignment(
    leader: int, isr: list[int], target: Assignment
) -> tuple[int, list[int], Assignment]:
    """Returns leader, ISR and assignment, without the old replicas if the new ones are in sync."""
    staying = tuple(r for r in target.replicas if r not in target.removing)
    if not all(r in isr for r in staying):
        return leader, isr, target
    isr = [r for r in isr if r in staying]
    return leader if leader in staying else staying[0], isr, Assignment(staying)


def _eligible_leader_replicas(
    before: PartitionState,
    target: Assignment,
    rules: ElectionRules,
    unclean: Container[int],
) -> list[int]:
    """Returns the replicas outside the ISR that have every committed record.

    There are none as soon as `min.insync.replicas` allows the ISR to commit records without them.
    """
    record = before.record
    if not record.eligible_leader_replicas:
        return []
    if len(record.isr) >= rules.needed_in_sync(record.topic, before.assignment):
        return []
    return [
        r
        for r in record.eligible_leader_replicas
        if r in target.replicas and r not in unclean and r not in rules.unreliable
    ]
