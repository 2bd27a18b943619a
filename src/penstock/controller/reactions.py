"""The controller's reactions to changes in the store and to the responses of brokers.

    reactions.observe(image, changes)             # every delivery, before the image applies it
    reactions.observe_response(image, response)   # every response of a broker
    while reactions.are_pending:
        result = reactions.decide(image, rules)   # again on a newer image after a conflict
        commit(result.changes)                    # brokers get broker_updates(…, awaiting)
        reactions.finish(result.response)         # then full updates of the brokers that it returns

A failed broker, a request under `/admin` or an offline replica is only noted when it is observed.
`decide` then compares the image with what should be: the leaders and ISRs of all partitions,
pending reassignments, elections and deletions. So it makes no difference in which order facts
arrive, and a new controller, which has only the image, reaches the same decisions.

The calls must not overlap; `decide` alone may run on another thread. A response to a decision's
updates is observed after `finish`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import NamedTuple

from penstock.controller.broker_updates import ReplicaStop, ReplicaStops
from penstock.controller.election import add_partition_states, controlled_shutdown
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Assignment,
    BrokerKey,
    BrokerRecord,
    Change,
    ConfigKey,
    ConfigRecord,
    Delete,
    IsrChangeRecord,
    Key,
    LogDirEventRecord,
    PreferredElectionRecord,
    Put,
    ReassignPartitionsRecord,
    TopicDeletionRecord,
    TopicKey,
    TopicRecord,
)
from penstock.controller.partition_state_machine import ElectionRules, PartitionChanges
from penstock.controller.result import ControllerResult
from penstock.controller.store_requests import (
    elect_preferred_leaders,
    reassign_partitions,
    remove_notifications,
)
from penstock.controller.topic_deletion import TopicDeletions
from penstock.controller.topics import generate_topic_id
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicId, TopicPartition
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)


class ControlResponse(NamedTuple):
    """The response of a broker to the requests of one `BrokerUpdate`."""

    broker_id: int
    broker_epoch: int
    partition_errors: Mapping[TopicPartition, ErrorCode]
    """Errors of LeaderAndIsr; KAFKA_STORAGE_ERROR means that the replica is offline."""
    stop_errors: Mapping[TopicPartition, ErrorCode]
    """Results of StopReplica for replicas that it deletes; NONE for those that are deleted."""


class HandledFacts(NamedTuple):
    """The facts that a decision has taken into account."""

    generation: int
    offline: frozenset[tuple[TopicPartition, int]]
    deletions: ReplicaStops
    changed_replicas: frozenset[TopicPartition]
    """Partitions whose offline replicas have changed: brokers get their metadata again, together
    with the changes of the decision. Brokers of Apache Kafka keep the offline replicas of a
    partition until its next update."""
    refreshed: frozenset[int]
    """Brokers that get a full update when the changes are applied: those that have registered, and
    those whose responses shall show which replicas are offline."""


class ControllerReactions:
    """The controller's memory beside the image. It starts empty with each controller."""

    def __init__(
        self,
        is_deletion_enabled: bool = True,
        new_topic_id: Callable[[], TopicId] | None = None,
    ) -> None:
        """`is_deletion_enabled` is `delete.topic.enable`.

        `new_topic_id` returns random ids for topics that Kafka before 2.8 created without.
        """
        self._new_topic_id = new_topic_id
        self.shutting_down: set[int] = set()
        """Brokers in controlled shutdown, until their sessions end."""
        self.offline_replicas: dict[TopicPartition, frozenset[int]] = {}
        """Replicas in failed log directories, until their brokers register again."""
        self._deletions = TopicDeletions(is_deletion_enabled)
        self._generation = 1
        """Rises with every fact; decisions are pending until it is handled."""
        self._handled_generation = 0
        self._restarted: dict[int, int] = {}
        """Brokers that have registered, with the generation of that fact."""
        self._new_offline: set[tuple[TopicPartition, int]] = set()
        self._changed_replicas: set[TopicPartition] = set()
        self._moved_brokers: dict[int, int] = {}
        """Brokers that have failed or registered, with the generation of that fact."""
        self._to_refresh: dict[int, int] = {}

    def begin(self, image: ClusterImage) -> None:
        """Notes what a new controller finds: brokers that may have lost records.

        The last controller may not have noticed. Those that have caught up since leave the ISR for
        a moment.
        """
        for broker in image.brokers.values():
            if broker.is_unclean:
                self._restarted[broker.broker_id] = self._generation

    def rules(self, rules: ElectionRules) -> ElectionRules:
        """Returns the rules with the brokers and replicas that are known to be unavailable."""
        return rules._replace(
            shutting_down=frozenset(self.shutting_down), offline_replicas=self.offline_replicas
        )

    @property
    def awaiting(self) -> Collection[int]:
        """Brokers that get a full update with the next decision, and only stops before."""
        return self._to_refresh

    @property
    def are_pending(self) -> bool:
        return self._generation != self._handled_generation

    def has_unhandled_losses(self, image: ClusterImage) -> bool:
        """Returns whether a broker that has lost records may still be a leader or in an ISR."""
        return any(
            broker_id in image.brokers and image.brokers[broker_id].is_unclean
            for broker_id in self._restarted
        )

    # --- facts

    def observe(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        """Notes committed changes, own and foreign ones, which the image has not applied yet."""
        put_keys = {change.record.key for change in changes if isinstance(change, Put)}
        for change in changes:
            if isinstance(change, Put):
                self._observe_put(image, change, put_keys)
            else:
                self._observe_delete(image, change)

    def _observe_put(self, image: ClusterImage, change: Put, put_keys: Set[Key]) -> None:
        match change.record:
            case BrokerRecord() as broker:
                registered = image.brokers.get(broker.broker_id)
                if registered is None or registered.epoch != broker.epoch:
                    self._restart_broker(broker.broker_id)
                    self._restarted[broker.broker_id] = self._generation
                    self._to_refresh[broker.broker_id] = self._generation
            case TopicRecord() as topic:
                self._keep_offline(topic.topic, topic.assignments)
                if self._concerns(image, topic, put_keys):
                    self._generation += 1
            case LogDirEventRecord() as event:
                self._generation += 1
                self._deletions.restart_broker(event.broker_id)
                self._to_refresh[event.broker_id] = self._generation
            case ConfigRecord() as config:
                self._observe_config(image, config.entity)
            case (
                TopicDeletionRecord()
                | ReassignPartitionsRecord()
                | PreferredElectionRecord()
                | IsrChangeRecord()
            ):
                self._generation += 1

    def _observe_delete(self, image: ClusterImage, change: Delete) -> None:
        match change.key:
            case BrokerKey(broker_id):
                self._restart_broker(broker_id)
                self._restarted.pop(broker_id, None)
            case ConfigKey(entity):
                self._observe_config(image, entity)
            case TopicKey(topic):
                self._deletions.forget_topic(topic)
                self._keep_offline(topic, {})
                if image.reassign_partitions is not None:
                    self._generation += 1

    def _observe_config(self, image: ClusterImage, entity: tuple[tuple[str, str], ...]) -> None:
        """Notes that `min.insync.replicas` may have changed.

        If it was lowered, leaders commit records without the eligible leader replicas.
        """
        if entity[0][0] in ("topics", "brokers") and any(
            partition.eligible_leader_replicas for partition in image.partitions.values()
        ):
            self._generation += 1

    def _restart_broker(self, broker_id: int) -> None:
        self._generation += 1
        self._moved_brokers[broker_id] = self._generation
        self.shutting_down.discard(broker_id)
        self._to_refresh.pop(broker_id, None)
        self._deletions.restart_broker(broker_id)
        self._new_offline = {entry for entry in self._new_offline if entry[1] != broker_id}
        for key, brokers in list(self.offline_replicas.items()):
            self._set_offline(key, brokers - {broker_id})

    def _keep_offline(self, topic: str, assignments: Mapping[int, Assignment]) -> None:
        """Forgets the offline replicas of a topic that are not assigned."""
        for key in [key for key in self.offline_replicas if key.topic == topic]:
            assignment = assignments.get(key.partition)
            replicas = () if assignment is None else assignment.replicas
            self._set_offline(key, self.offline_replicas[key].intersection(replicas))

    def _set_offline(self, key: TopicPartition, brokers: frozenset[int]) -> None:
        if brokers:
            self.offline_replicas[key] = brokers
        else:
            self.offline_replicas.pop(key, None)

    def _concerns(self, image: ClusterImage, topic: TopicRecord, put_keys: Set[Key]) -> bool:
        """Returns whether a change of a topic may need a decision.

        That is so if it was requested in the store, or if it has partitions without a state: those
        that another process has assigned.
        """
        if image.reassign_partitions is not None or image.is_deleting(topic.topic):
            return True
        keys = (TopicPartition(topic.topic, number) for number in topic.assignments)
        return any(key not in image.partitions and key not in put_keys for key in keys)

    def observe_response(self, image: ClusterImage, response: ControlResponse) -> None:
        """Notes the response of a broker, unless the broker has registered again."""
        broker = image.brokers.get(response.broker_id)
        if broker is None or broker.epoch != response.broker_epoch:
            return
        for key, error in response.partition_errors.items():
            self._observe_replica(image, key, response.broker_id, error)
        if self._deletions.complete(response.broker_id, response.stop_errors):
            self._generation += 1

    def _observe_replica(
        self, image: ClusterImage, key: TopicPartition, broker_id: int, error: ErrorCode
    ) -> None:
        offline = self.offline_replicas.get(key, frozenset())
        topic = image.topics.get(key.topic)
        assignment = None if topic is None else topic.assignments.get(key.partition)
        if assignment is None or broker_id not in assignment.replicas:
            return
        if error is ErrorCode.KAFKA_STORAGE_ERROR and broker_id not in offline:
            self._set_offline(key, offline | {broker_id})
            self._new_offline.add((key, broker_id))
            self._changed_replicas.add(key)
            self._generation += 1
        elif error is ErrorCode.NONE and broker_id in offline:
            self._set_offline(key, offline - {broker_id})
            self._new_offline.discard((key, broker_id))
            self._changed_replicas.add(key)
            self._generation += 1

    # --- decisions

    def controlled_shutdown(
        self, image: ClusterImage, request: ControlledShutdownRequest, rules: ElectionRules
    ) -> ControllerResult[ControlledShutdownResponse]:
        """Moves a broker's leaderships away; it gets none until it has registered again."""
        result = controlled_shutdown(image, request, self.rules(rules))
        if result.response.error_code == ErrorCode.NONE:
            self.shutting_down.add(request.broker_id)
        return result

    def decide(self, image: ClusterImage, rules: ElectionRules) -> ControllerResult[HandledFacts]:
        """Returns everything that follows from the image and the facts so far."""
        rules = self.rules(rules)
        changes = PartitionChanges(image)
        self._assign_topic_ids(image, changes)
        add_partition_states(changes, image, image.brokers.keys(), rules, restarted=self._restarted)
        requests = [
            *reassign_partitions(image, changes, rules),
            *elect_preferred_leaders(image, changes, rules),
            *remove_notifications(image),
        ]
        deletions = self._deletions.next_step(image)
        stops = {broker_id: list(stops) for broker_id, stops in deletions.stops.items()}
        for key, broker_id in sorted(self._new_offline):
            partition = changes.current(key)
            if partition is not None and not image.is_deleting(key.topic):
                stop = ReplicaStop(key, partition.record.leader_epoch, delete=False)
                stops.setdefault(broker_id, []).append(stop)
        facts = HandledFacts(
            self._generation,
            frozenset(self._new_offline),
            deletions.stops,
            frozenset(self._find_changed_replicas(image)),
            frozenset(self._to_refresh.keys() & image.brokers.keys()),
        )
        return ControllerResult([*changes.changes(), *requests, *deletions.changes], facts, stops)

    def _find_changed_replicas(self, image: ClusterImage) -> set[TopicPartition]:
        """Returns the partitions of which other replicas are offline than brokers know."""
        changed = set(self._changed_replicas)
        if self._moved_brokers:
            moved = self._moved_brokers.keys()
            for topic in image.topics.values():
                for number, assignment in topic.assignments.items():
                    if not moved.isdisjoint(assignment.replicas):
                        changed.add(TopicPartition(topic.topic, number))
        return changed

    def _assign_topic_ids(self, image: ClusterImage, changes: PartitionChanges) -> None:
        if self._new_topic_id is None or ZERO_UUID not in image.topic_names:
            return
        for topic in image.topics.values():
            if topic.topic_id == ZERO_UUID and not image.is_deleting(topic.topic):
                topic_id = generate_topic_id(self._new_topic_id, image.topic_names)
                changes.assign_topic_id(topic.topic, topic_id)

    def finish(self, facts: HandledFacts) -> frozenset[int]:
        """Notes that a decision has been committed; returns the brokers that get a full update.

        A broker that has registered since the decision is not among them: it may have lost records,
        and the next decision removes it from the ISR first.
        """
        generation = facts.generation
        self._handled_generation = max(self._handled_generation, generation)
        self._restarted = _later_than(generation, self._restarted)
        self._new_offline -= facts.offline
        self._changed_replicas -= facts.changed_replicas
        self._moved_brokers = _later_than(generation, self._moved_brokers)
        later = _later_than(generation, self._to_refresh)
        refreshed = facts.refreshed & (self._to_refresh.keys() - later.keys())
        self._to_refresh = later
        self._deletions.start(facts.deletions)
        return refreshed


def _later_than(generation: int, brokers: Mapping[int, int]) -> dict[int, int]:
    return {broker_id: added for broker_id, added in brokers.items() if added > generation}
