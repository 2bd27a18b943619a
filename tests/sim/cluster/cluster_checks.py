"""What must hold in a simulated cluster, after every step and when the faults have ended."""

from collections.abc import Collection, Iterable, Mapping

from penstock.cluster.store import Scope
from penstock.controller.metadata import PartitionRecord, TopicDeletionRecord, TopicRecord
from penstock.core.ids import TopicPartition
from penstock.replication.follower_state import FollowerState
from penstock.replication.partition import Partition
from penstock.storage.log.log import Log
from tests.sim.cluster.cluster_broker import SimBroker
from tests.sim.cluster.cluster_history import History
from tests.support.cluster.memory_store import MemoryStoreServer
from tests.support.faults.simulated_broker import read_records_of


class ClusterChecks:
    """Remembers who led and controlled in which epoch, and follows the committed records."""

    def __init__(
        self, store: MemoryStoreServer, brokers: Mapping[int, SimBroker], history: History
    ) -> None:
        self._store = store
        self._brokers = brokers
        self._history = history
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._controllers: dict[int, int] = {}
        self._acknowledged: dict[FollowerState, int] = {}
        """Up to which offset followers have acknowledged records, as their leaders know it."""

    def step(self, broker: SimBroker) -> None:
        """One leader for each leader epoch, one controller for each controller epoch.

        A new leader has every acknowledged record, and logs agree below their high watermarks.
        """
        if broker.app._parts is None or broker.is_stopping:
            return
        broker_id = broker.broker_id
        controller = broker.app._controller.active
        if controller is not None and controller.is_started:
            epoch = controller.image.controller_epoch
            owner = self._controllers.setdefault(epoch, broker_id)
            assert owner == broker_id, f"{owner} and {broker_id} are controllers in epoch {epoch}"
        if any(log_dir.closed_logs for log_dir in broker.app._logs.dirs):
            return  # it has stopped, and its logs cannot be read
        for replica in broker.app.broker.replicas:
            log = replica._log
            if log is None or log.failure is not None or log.partition.topic[0] == "x":
                continue  # it is offline, or may be deleted and created again
            partition = replica.partition
            if partition.is_leader:
                key, epoch = partition.key, partition.leader_epoch
                owner = self._leaders.get((key, epoch), -1)
                if owner != broker_id:
                    assert owner == -1, f"{owner} and {broker_id} lead {key} in epoch {epoch}"
                    self._leaders[key, epoch] = broker_id
                    self._check_leader(broker, key, epoch, log)
                for follower in partition.followers.values():
                    if follower.log_end_offset != self._acknowledged.get(follower, 0):
                        self._acknowledged[follower] = follower.log_end_offset
                        self._check_follower(partition, follower)
            followed = broker.followed.get(log, 0)
            if log.high_watermark != followed:
                self._follow(broker, log, followed)

    def _check_leader(self, broker: SimBroker, key: TopicPartition, epoch: int, log: Log) -> None:
        """A new leader has every record that was acknowledged before."""
        (record,) = self._store.fetch([key])
        assert isinstance(record, PartitionRecord)
        if record.leader_epoch == epoch:
            end = self._history.acknowledged_ends.get(key, 0)
            assert log.log_end_offset >= end, (
                f"broker {broker.broker_id} leads {key} in epoch {epoch} with "
                f"{log.log_end_offset} records, but {end} were acknowledged"
            )

    def _check_follower(self, partition: Partition, follower: FollowerState) -> None:
        """A follower has what it has acknowledged, unless it was restarted or follows another."""
        broker = self._brokers.get(follower.broker_id)
        if broker is None or not broker.is_up:
            return
        key = partition.key
        replica = broker.app.broker.replicas.by_topic.get(key.topic, {}).get(key.partition)
        if (
            replica is None
            or replica._log is None
            or replica.partition.leader_epoch > partition.leader_epoch
            or broker.app.parts.controller_requests.broker_epoch != follower.broker_epoch
        ):
            return
        end = replica._log.log_end_offset
        assert end >= follower.log_end_offset, (
            f"broker {partition.local_id} leads {key} in epoch {partition.leader_epoch}, and takes "
            f"broker {broker.broker_id} to have {follower.log_end_offset} records; it has {end}"
        )

    def _follow(self, broker: SimBroker, log: Log, followed: int) -> None:
        key = log.partition
        if log.high_watermark > followed:
            origin = f"committed by broker {broker.broker_id}"
            broker.followed[log] = self._history.follow(log, followed, log.high_watermark, origin)
        else:
            assert log.log_end_offset >= followed, (
                f"broker {broker.broker_id} had committed {key} to {followed}, and has truncated "
                f"it to {log.log_end_offset}"
            )


def unsettled(
    store: MemoryStoreServer,
    brokers: Mapping[int, SimBroker],
    broker_ids: Collection[int],
    *,
    is_quiet: bool = False,
) -> str:
    """Returns what is not as it should be when nothing disturbs the cluster; empty if all is.

    `is_quiet` means that nobody produces, so that all replicas must be equal.
    """
    if len(brokers) < len(broker_ids):
        return f"only the brokers {sorted(brokers)} run"
    for broker in brokers.values():
        if not broker.is_up:
            return f"broker {broker.broker_id} is starting"
    if sum(broker.is_controller for broker in brokers.values()) != 1:
        return "there is not one controller"
    records = store.load(Scope.ALL).records
    partitions = {r.key: r for r in records if isinstance(r, PartitionRecord)}
    for record in records:
        if isinstance(record, TopicDeletionRecord):
            return f"{record.topic} is being deleted"
        if isinstance(record, TopicRecord):
            for number, assignment in record.assignments.items():
                key = TopicPartition(record.topic, number)
                problem = _problem(
                    brokers, partitions[key], assignment.replicas, key, is_quiet=is_quiet
                )
                if problem:
                    return problem
                if assignment.is_reassigning:
                    return f"{key} is being reassigned"
    return _outdated_topics(brokers, {r.topic: r for r in records if isinstance(r, TopicRecord)})


def _outdated_topics(brokers: Mapping[int, SimBroker], topics: Mapping[str, TopicRecord]) -> str:
    """Compares what brokers know of topics, which may have been deleted and created again."""
    ids = {name: topic.topic_id for name, topic in topics.items()}
    for broker in brokers.values():
        known = {name: topic.topic_id for name, topic in broker.app.broker.image.topics.items()}
        if known != ids:
            return f"broker {broker.broker_id} knows the topics {known}, there are {ids}"
        for replica in broker.app.broker.replicas:
            topic = replica.partition.key.topic
            if {replica.partition.topic_id, replica.log.topic_id} != {ids.get(topic)}:
                return f"broker {broker.broker_id} has a replica of an earlier topic {topic}"
    return ""


def _problem(
    brokers: Mapping[int, SimBroker],
    state: PartitionRecord,
    replicas: Collection[int],
    key: TopicPartition,
    *,
    is_quiet: bool,
) -> str:
    if set(state.isr) != set(replicas):
        return f"the ISR of {key} is {state.isr}"
    hosted = {}
    for broker in brokers.values():
        replica = broker.app.broker.replicas.by_topic.get(key.topic, {}).get(key.partition)
        if replica is not None:
            hosted[broker.broker_id] = replica
    if hosted.keys() != set(replicas):
        return f"the brokers {sorted(hosted)} have replicas of {key}"
    if any(replica._log is None or replica._log.failure for replica in hosted.values()):
        return f"a replica of {key} is offline"
    if state.leader not in hosted:
        return f"{key} has no leader"
    leader = hosted[state.leader]
    for broker_id, replica in hosted.items():
        is_leader = replica.partition.is_leader
        if is_leader is not (broker_id == state.leader):
            return f"broker {broker_id} leads {key}: {is_leader}"
        log = replica.log
        if is_quiet and (log.log_end_offset, log.high_watermark) != (
            leader.log.log_end_offset,
            leader.log.log_end_offset,
        ):
            return f"broker {broker_id} has not caught up in {key}"
    if is_quiet and leader.log.last_stable_offset < leader.log.log_end_offset:
        return f"{key} has an open transaction"
    if set(leader.partition.isr) != set(replicas):
        return f"the leader of {key} has the ISR {leader.partition.isr}"
    for broker in brokers.values():
        known = broker.app.broker.image.partitions.get(key)
        if known is None or known.leader != state.leader:
            return f"broker {broker.broker_id} does not know the leader of {key}"
    return ""


def check_records(
    brokers: Mapping[int, SimBroker],
    history: History,
    sent: Iterable[Mapping[TopicPartition, list[bytes]]],
) -> None:
    """R2: nothing that was acknowledged, read or committed is lost, doubled or in another place."""
    for key, records in history.records.items():
        contents = {
            broker.broker_id: _values(broker.app.broker.replicas.find(*key).log)
            for broker in brokers.values()
            if key.partition in broker.app.broker.replicas.by_topic.get(key.topic, {})
        }
        values = next(iter(contents.values()))
        for broker_id, content in contents.items():
            assert content == values, f"{key}: the log of broker {broker_id} differs"
        for offset, (value, origin) in records.items():
            stored = values.get(offset)
            assert stored == value, (
                f"{key}@{offset} was {origin} as {value!r}, now it is {stored!r}"
            )
    for producer in sent:
        for key, acknowledged in producer.items():
            in_order = history.values(key)
            assert len(set(in_order)) == len(in_order), f"{key} has a record twice"
            own = set(acknowledged)
            kept = [value for value in in_order if value in own]
            assert kept == acknowledged, f"{key}: lost or reordered records"


def _values(log: Log) -> dict[int, bytes]:
    return {record.offset: bytes(record.value or b"") for record in read_records_of(log)}
