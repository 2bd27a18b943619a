"""Leader elections: when brokers fail or start, on request, and for the balance (R5, R7, R8)."""

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

from penstock.controller.broker_updates import ReplicaStop
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Assignment,
    Change,
    PartitionRecord,
    Put,
)
from penstock.controller.partition_state_machine import (
    NO_LEADER,
    ElectionRules,
    PartitionChanges,
    PartitionState,
    is_unaffected,
    new_partition,
    next_partition_state,
)
from penstock.controller.result import ControllerResult
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from penstock.protocol.messages.elect_leaders import (
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)

PREFERRED: Final = 0
UNCLEAN: Final = 1


def update_partition_states(
    image: ClusterImage,
    live: Collection[int],
    rules: ElectionRules,
    *,
    controller_epoch: int | None = None,
    restarted: Collection[int] = (),
) -> list[Change]:
    """Returns the changes that bring every partition up to date with the `live` brokers.

    Partitions without a state, which another process has assigned, get one as soon as a replica is
    live. Topics that are being deleted change only until their reassignments are complete.
    """
    changes = PartitionChanges(image)
    add_partition_states(
        changes, image, live, rules, controller_epoch=controller_epoch, restarted=restarted
    )
    return changes.changes()


def add_partition_states(
    changes: PartitionChanges,
    image: ClusterImage,
    live: Collection[int],
    rules: ElectionRules,
    *,
    controller_epoch: int | None = None,
    restarted: Collection[int] = (),
) -> None:
    """Adds what `update_partition_states` returns to changes that are collected."""
    epoch = image.controller_epoch if controller_epoch is None else controller_epoch
    live, restarted = set(live), set(restarted)
    unclean = {b for b in restarted if b in image.brokers and image.brokers[b].is_unclean}
    for topic in image.topics.values():
        is_deleting = image.is_deleting(topic.topic)
        for number, assignment in topic.assignments.items():
            if is_deleting and not assignment.is_reassigning:
                continue
            record = image.partitions.get(TopicPartition(topic.topic, number))
            if record is None:
                if any(replica in live for replica in assignment.replicas):
                    replicas = assignment.replicas
                    record = new_partition(topic.topic, number, replicas, live, epoch)
                    changes.add(PartitionState(record, assignment))
                continue
            before = PartitionState(record, assignment)
            if is_unaffected(before, live, rules, restarted):
                continue
            after = next_partition_state(
                before,
                live,
                epoch,
                rules,
                changes.leaderships,
                restarted=restarted,
                unclean=unclean,
            )
            if after is not None:
                changes.add(after)


def elect_leaderless(image: ClusterImage, rules: ElectionRules) -> list[Change]:
    """Elects leaders that became possible because `unclean.leader.election.enable` was set."""
    return update_partition_states(image, image.brokers.keys(), rules)


def controlled_shutdown(
    image: ClusterImage, request: ControlledShutdownRequest, rules: ElectionRules
) -> ControllerResult[ControlledShutdownResponse]:
    """Moves a broker's leaderships away before it leaves (R8).

    Its followers leave the ISR, and the broker stops them without deleting anything. The response
    names the partitions that still have no other leader although another broker with a replica is
    up and stays; the broker retries. The host keeps the broker in `rules.shutting_down` until its
    session ends.
    """
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        code = ErrorCode.BROKER_NOT_AVAILABLE
        return ControllerResult([], ControlledShutdownResponse(error_code=code))
    if request.broker_epoch not in (-1, broker.epoch):
        code = ErrorCode.STALE_BROKER_EPOCH
        return ControllerResult([], ControlledShutdownResponse(error_code=code))
    leaving = rules.shutting_down | {request.broker_id}
    changes = update_partition_states(
        image, image.brokers.keys(), rules._replace(shutting_down=leaving)
    )
    states = {
        change.record.key: change.record
        for change in changes
        if isinstance(change, Put) and isinstance(change.record, PartitionRecord)
    }
    remaining: list[RemainingPartition] = []
    stops: list[ReplicaStop] = []
    for key, previous in sorted(image.partitions.items(), key=lambda entry: entry[0]):
        replicas = image.topics[key.topic].assignments[key.partition].replicas
        if request.broker_id not in replicas or len(replicas) == 1 or image.is_deleting(key.topic):
            continue
        state = states.get(key, previous)
        if state.leader == request.broker_id:
            if any(member in image.brokers and member not in leaving for member in replicas):
                remaining.append(
                    RemainingPartition(topic_name=key.topic, partition_index=key.partition)
                )
        elif previous.leader != request.broker_id:
            stops.append(ReplicaStop(key, state.leader_epoch, delete=False))
    response = ControlledShutdownResponse(remaining_partitions=remaining)
    return ControllerResult(changes, response, {request.broker_id: stops} if stops else {})


def elect_leaders(
    image: ClusterImage, request: ElectLeadersRequest, rules: ElectionRules
) -> ControllerResult[ElectLeadersResponse]:
    """Elects preferred replicas, or any live replica of partitions without a live in-sync replica.

    An unclean election on request does not need `unclean.leader.election.enable`. A request without
    partitions applies to all; the response then has every topic, but only those partitions that
    needed an election.
    """
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"election type {request.election_type} is unknown",
            remedy="use 0 (preferred) or 1 (unclean)",
        )
    if request.topic_partitions is None:
        requested = [(topic, sorted(record.assignments)) for topic, record in image.topics.items()]
    else:
        requested = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    changes = PartitionChanges(image)
    results: list[ReplicaElectionResult] = []
    for topic, partitions in requested:
        result = ReplicaElectionResult(topic=topic, partition_result=[])
        for number in partitions:
            code, message = ErrorCode.NONE, None
            try:
                key = TopicPartition(topic, number)
                changes.add(_elect(image, changes, key, request.election_type, rules))
            except KafkaError as error:
                code, message = error.code, error.message
            if code != ErrorCode.ELECTION_NOT_NEEDED or request.topic_partitions is not None:
                result.partition_result.append(
                    ElectLeadersPartitionResult(
                        partition_id=number, error_code=code, error_message=message
                    )
                )
        results.append(result)
    return ControllerResult(
        changes.changes(), ElectLeadersResponse(replica_election_results=results)
    )


def _elect(
    image: ClusterImage,
    changes: PartitionChanges,
    key: TopicPartition,
    election_type: int,
    rules: ElectionRules,
) -> PartitionState:
    before = changes.current(key)
    if before is not None and image.is_deleting(key.topic):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic '{key.topic}' is being deleted")
    if before is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"partition {key} does not exist",
            remedy="check the topic and the partition number",
        )
    preferred = before.assignment.replicas[0]
    leader = before.record.leader
    if leader == preferred if election_type == PREFERRED else leader != NO_LEADER:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"{key} already has the leader {leader}")
    if election_type == PREFERRED:
        after = elect_preferred(image, changes, before, rules)
        if after is None:
            raise KafkaError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"the preferred leader {preferred} of {key} is not up or not in sync (ISR "
                f"{list(before.record.isr)})",
                remedy="start it, wait until it has caught up, and retry",
            )
        return after
    after = next_partition_state(
        before,
        image.brokers.keys(),
        image.controller_epoch,
        rules._replace(allows_unclean=lambda _topic: True),
        changes.leaderships,
    )
    if after is None:
        raise KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"no replica of {key} is up",
            remedy=f"start one of {list(before.assignment.replicas)}",
        )
    return after


def elect_preferred(
    image: ClusterImage, changes: PartitionChanges, before: PartitionState, rules: ElectionRules
) -> PartitionState | None:
    """Returns the state in which the preferred replica leads; None if it does or cannot."""
    preferred = before.assignment.replicas[0]
    after = next_partition_state(
        before,
        image.brokers.keys(),
        image.controller_epoch,
        rules,
        changes.leaderships,
        prefer=preferred,
    )
    return None if after is None or after.record.leader != preferred else after


def imbalance(image: ClusterImage) -> dict[int, float]:
    """Returns for each live broker the share of its preferred partitions that it does not lead."""
    preferred: Counter[int] = Counter()
    led_elsewhere: Counter[int] = Counter()
    for key, assignment in _led_partitions(image):
        broker = assignment.replicas[0]
        preferred[broker] += 1
        led_elsewhere[broker] += image.partitions[key].leader != broker
    return {b: led_elsewhere[b] / count for b, count in preferred.items() if b in image.brokers}


def _led_partitions(image: ClusterImage) -> Iterator[tuple[TopicPartition, Assignment]]:
    """Yields the partitions that have a state and are not being deleted."""
    for topic in image.topics.values():
        if not image.is_deleting(topic.topic):
            for number, assignment in topic.assignments.items():
                key = TopicPartition(topic.topic, number)
                if key in image.partitions:
                    yield key, assignment


def balance_leaders(image: ClusterImage, percentage: int, rules: ElectionRules) -> list[Change]:
    """Moves leaderships back to preferred replicas (R8).

    Only for brokers whose imbalance is above `percentage`
    (`leader.imbalance.per.broker.percentage`), and only to in-sync replicas of partitions that are
    not being reassigned.
    """
    unbalanced = {broker for broker, share in imbalance(image).items() if share * 100 > percentage}
    unbalanced -= rules.shutting_down
    changes = PartitionChanges(image)
    for key, assignment in _led_partitions(image):
        if assignment.replicas[0] not in unbalanced or assignment.is_reassigning:
            continue
        before = PartitionState(image.partitions[key], assignment)
        after = elect_preferred(image, changes, before, rules)
        if after is not None:
            changes.add(after)
    return changes.changes()
