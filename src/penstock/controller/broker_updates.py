"""Updates from the controller to brokers: what each live broker must learn after a commit (R6, R7).

The controller's host calls `broker_updates` with its image and the changes that it has committed,
before the image applies them, or `full_updates` after it has become the controller. Each broker
gets one `BrokerUpdate` for each event, however many partitions changed. The controller's own broker
receives the value itself; `control_requests.py` turns it into LeaderAndIsr, UpdateMetadata and
StopReplica requests for the others.

Brokers do not see a topic that is being deleted: it leaves their metadata when the deletion is
requested, and `topic_deletion.py` decides when its replicas are stopped.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeGuard

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Assignment,
    BrokerKey,
    BrokerRecord,
    Change,
    Delete,
    PartitionRecord,
    Put,
    TopicDeletionKey,
    TopicDeletionRecord,
    TopicKey,
    TopicRecord,
)
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicId, TopicPartition

EPOCH_DURING_DELETE: Final = -2
"""The leader epoch in StopReplica for a topic that is being deleted; it exceeds every epoch."""


class PartitionUpdate(NamedTuple):
    """The state of one partition for a broker that has a replica of it."""

    record: PartitionRecord
    assignment: Assignment
    topic_id: TopicId
    is_new: bool
    """Whether the replica is new on this broker, so that its log may have to be created."""


class ReplicaStop(NamedTuple):
    """A replica that a broker stops, and deletes if `delete` is set."""

    key: TopicPartition
    leader_epoch: int
    """The partition's leader epoch; `EPOCH_DURING_DELETE`, or -1 if it is unknown."""
    delete: bool


OfflineReplicas = Mapping[TopicPartition, frozenset[int]]
"""The brokers of a partition's replicas in failed log directories."""
ReplicaStops = Mapping[int, Sequence[ReplicaStop]]
"""Replicas to stop, by broker."""


class BrokerUpdate(NamedTuple):
    """Everything that one broker must learn after one event, in the order of the fields."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    """The epoch of the broker's registration that the update is meant for."""
    partitions: Sequence[PartitionUpdate] = ()
    metadata: Sequence[Change] = ()
    """Changes of brokers, topics and partitions; shared by the updates of all brokers."""
    stops: Sequence[ReplicaStop] = ()
    is_full: bool = False
    """Whether the update has all partitions of the broker and all metadata of the cluster. It is
    set for the first update after the broker has registered or the controller has changed."""
    offline_replicas: OfflineReplicas | None = None
    """All replicas in failed log directories of live brokers; None if they have not changed."""


def full_updates(image: ClusterImage) -> dict[int, BrokerUpdate]:
    """Returns the full updates of all live brokers, for a new controller."""
    return _full_updates(image, image.brokers.keys(), _all_metadata(image))


def full_update(image: ClusterImage, broker_id: int) -> BrokerUpdate:
    """Returns the full update of one live broker."""
    return _full_updates(image, {broker_id}, _all_metadata(image))[broker_id]


def broker_updates(
    image: ClusterImage,
    changes: Sequence[Change],
    stops: ReplicaStops | None = None,
    awaiting: Collection[int] = (),
    changed_replicas: Collection[TopicPartition] = (),
) -> dict[int, BrokerUpdate]:
    """Returns the updates that follow from committed changes, by live broker.

    `image` does not contain the changes yet. Replicas of a partition receive its state if its
    leader epoch has changed; a leader that changed its ISR knows it already. Replicas that are no
    longer assigned are deleted. `stops` are replicas to stop in addition; their brokers do not
    receive the partitions' states. The metadata of partitions in `changed_replicas` is sent again,
    because other replicas of them are offline than before.

    A broker that has registered with the changes gets nothing: it must not lead in the epochs from
    before its restart. It gets a full update after the controller has reacted (`reactions.py`).
    Until then it is one of those in `awaiting`, which get only stops.
    """
    delta = _Delta(image, changes, changed_replicas)
    delta.collect()
    replica_stops = delta.stops
    for broker_id, additional_stops in (stops or {}).items():
        replica_stops.setdefault(broker_id, []).extend(additional_stops)
    updates: dict[int, BrokerUpdate] = {}
    for broker_id, broker in delta.live.items():
        if broker_id in delta.started:
            continue
        partitions: Sequence[PartitionUpdate] = delta.partitions.get(broker_id, ())
        broker_stops = replica_stops.get(broker_id, ())
        metadata: Sequence[Change] = delta.metadata
        if broker_id in awaiting:
            partitions, metadata = (), ()
        elif broker_stops and partitions:
            stopped = {stop.key for stop in broker_stops}
            partitions = [update for update in partitions if update.record.key not in stopped]
        if partitions or metadata or broker_stops:
            updates[broker_id] = BrokerUpdate(
                image.controller_id,
                image.controller_epoch,
                broker.epoch,
                partitions,
                metadata,
                broker_stops,
            )
    return updates


def metadata_changes(image: ClusterImage, update: BrokerUpdate) -> Sequence[Change]:
    """Returns the changes that a broker with this image applies for an update's metadata.

    A full update deletes what it does not contain; what has not changed is left out of it. Without
    any metadata it is that of a LeaderAndIsr request, which concerns replicas alone.
    """
    if not update.is_full or not update.metadata:
        return update.metadata
    return image.metadata_changes_to(
        change.record for change in update.metadata if isinstance(change, Put)
    )


def deletion_errors(
    stops: Iterable[ReplicaStop], errors: Mapping[TopicPartition, ErrorCode]
) -> dict[TopicPartition, ErrorCode]:
    """Returns the errors of the replicas that were to be deleted, not only stopped."""
    return {stop.key: errors[stop.key] for stop in stops if stop.delete and stop.key in errors}


def _all_metadata(image: ClusterImage) -> list[Change]:
    records: list[Change] = [Put(broker) for broker in image.brokers.values()]
    for topic in image.topics.values():
        if image.is_deleting(topic.topic):
            continue
        records.append(Put(topic))
        for number in topic.assignments:
            record = image.partitions.get(TopicPartition(topic.topic, number))
            if record is not None:
                records.append(Put(record))
    return records


def _full_updates(
    image: ClusterImage, broker_ids: Iterable[int], metadata: Sequence[Change]
) -> dict[int, BrokerUpdate]:
    partitions: dict[int, list[PartitionUpdate]] = {broker_id: [] for broker_id in broker_ids}
    for topic in image.topics.values():
        is_deleting = image.is_deleting(topic.topic)
        for number, assignment in topic.assignments.items():
            record = image.partitions.get(TopicPartition(topic.topic, number))
            if record is None or (is_deleting and not assignment.is_reassigning):
                continue
            update = PartitionUpdate(record, assignment, topic.topic_id, False)
            for replica in assignment.replicas:
                if replica in partitions:
                    partitions[replica].append(update)
    return {
        broker_id: BrokerUpdate(
            image.controller_id,
            image.controller_epoch,
            image.brokers[broker_id].epoch,
            broker_partitions,
            metadata,
            is_full=True,
        )
        for broker_id, broker_partitions in partitions.items()
    }


class _Delta:
    """The changes of one commit against the image before it."""

    def __init__(
        self,
        image: ClusterImage,
        changes: Sequence[Change],
        changed_replicas: Collection[TopicPartition],
    ) -> None:
        self._image = image
        self._changes = changes
        self._changed_replicas = changed_replicas
        self.live = dict(image.brokers)
        self.started: set[int] = set()
        """Brokers that have registered, for the first time or with a new epoch."""
        self._topics: dict[str, TopicRecord] = {}
        self._deleted_topics: dict[str, TopicRecord] = {}
        self._hidden_topics = set(image.topic_deletions)
        """Topics that are being deleted."""
        self._states: dict[TopicPartition, PartitionRecord] = {}
        self.metadata: list[Change] = []
        self.partitions: dict[int, list[PartitionUpdate]] = {}
        self.stops: dict[int, list[ReplicaStop]] = {}

    def collect(self) -> None:
        for change in self._changes:
            if isinstance(change, Put):
                self._put(change)
            else:
                self._delete(change)
        for state in self._states.values():
            self._update_replicas(state)
        for topic in self._topics.values():
            self._stop_removed_replicas(topic)
        for topic in self._deleted_topics.values():
            if topic.topic not in self._topics and not self._image.is_deleting(topic.topic):
                self._stop_deleted_replicas(topic)
        for key in self._changed_replicas:
            self._refresh_partition(key)
        if self._hidden_topics or self._image.topic_deletions:
            self._hide_topics()

    def _put(self, change: Put) -> None:
        match change.record:
            case PartitionRecord() as record:
                self._states[record.key] = record
                self.metadata.append(change)
            case TopicRecord() as topic:
                self._topics[topic.topic] = topic
                self.metadata.append(change)
            case TopicDeletionRecord(name):
                self._hidden_topics.add(name)
            case BrokerRecord() as broker:
                registered = self._image.brokers.get(broker.broker_id)
                if registered is None or registered.epoch != broker.epoch:
                    self.started.add(broker.broker_id)
                self.live[broker.broker_id] = broker
                self.metadata.append(change)

    def _delete(self, change: Delete) -> None:
        match change.key:
            case TopicPartition():
                self.metadata.append(change)
            case TopicKey(topic):
                self.metadata.append(change)
                self._deleted_topics[topic] = self._image.topics[topic]
            case TopicDeletionKey(topic):
                self._hidden_topics.discard(topic)
            case BrokerKey(broker_id):
                self.live.pop(broker_id, None)
                self.metadata.append(change)

    def _hide_topics(self) -> None:
        """Removes topics that are being deleted from the metadata, and adds the others to it."""
        before = self._image.topic_deletions.keys()
        hidden = self._hidden_topics
        announced: list[Change] = []
        for change in self.metadata:
            topic = _topic_of(change)
            # A deletion that brokers have received already is not repeated.
            if topic is None or not (
                topic in hidden or (topic in before and isinstance(change, Delete))
            ):
                announced.append(change)
        for topic in hidden - before:
            record = self._image.topics.get(topic)
            if record is not None:
                announced += map(Delete, self._partitions_of(record))
                announced.append(Delete(record.key))
        for topic in before - hidden:
            record = self._image.topics.get(topic)
            if record is not None and topic not in self._deleted_topics:
                announced.append(Put(record))
                for key in self._partitions_of(record):
                    announced.append(Put(self._image.partitions[key]))
        self.metadata = announced

    def _partitions_of(self, topic: TopicRecord) -> list[TopicPartition]:
        keys = (TopicPartition(topic.topic, number) for number in topic.assignments)
        return [key for key in keys if key in self._image.partitions]

    def _update_replicas(self, state: PartitionRecord) -> None:
        key = state.key
        previous_topic = self._image.topics.get(key.topic)
        topic = self._topics.get(key.topic, previous_topic)
        if topic is None:
            return
        previous = self._image.partitions.get(key)
        previous_replicas: tuple[int, ...] = ()
        if previous is not None and _is_same_topic(previous_topic, topic):
            if previous.leader_epoch == state.leader_epoch:
                return
            previous_replicas = previous_topic.assignments[key.partition].replicas
        assignment = topic.assignments[key.partition]
        update = PartitionUpdate(state, assignment, topic.topic_id, False)
        for replica in assignment.replicas:
            if replica in self.live and replica not in self.started:
                is_new = replica not in previous_replicas
                self.partitions.setdefault(replica, []).append(
                    update._replace(is_new=True) if is_new else update
                )

    def _stop_removed_replicas(self, topic: TopicRecord) -> None:
        previous_topic = self._image.topics.get(topic.topic)
        if not _is_same_topic(previous_topic, topic):
            return
        for number, previous in previous_topic.assignments.items():
            assignment = topic.assignments[number]
            if assignment.replicas == previous.replicas:
                continue
            key = TopicPartition(topic.topic, number)
            state = self._states.get(key) or self._image.partitions.get(key)
            epoch = -1 if state is None else state.leader_epoch
            for replica in previous.replicas:
                if replica not in assignment.replicas:
                    self._stop(replica, ReplicaStop(key, epoch, delete=True))

    def _stop_deleted_replicas(self, topic: TopicRecord) -> None:
        for number, assignment in topic.assignments.items():
            key = TopicPartition(topic.topic, number)
            for replica in assignment.replicas:
                self._stop(replica, ReplicaStop(key, EPOCH_DURING_DELETE, delete=True))

    def _stop(self, broker_id: int, stop: ReplicaStop) -> None:
        if broker_id in self.live:
            self.stops.setdefault(broker_id, []).append(stop)

    def _refresh_partition(self, key: TopicPartition) -> None:
        record = self._image.partitions.get(key)
        if record is not None and key not in self._states and key.topic not in self._deleted_topics:
            self.metadata.append(Put(record))


def _topic_of(change: Change) -> str | None:
    match change:
        case Put(TopicRecord(topic=topic) | PartitionRecord(topic=topic)):
            return topic
        case Delete(TopicKey(topic) | TopicPartition(topic, _)):
            return topic
    return None


def _is_same_topic(previous: TopicRecord | None, topic: TopicRecord) -> TypeGuard[TopicRecord]:
    return previous is not None and previous.topic_id == topic.topic_id
