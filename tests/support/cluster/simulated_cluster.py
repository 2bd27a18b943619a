"""A cluster around the pure controller: a store, brokers that apply updates, and their logs.

The brokers know only what the controller sends, late but in order, and propose ISRs by what they
know. A log is the number of its records. `check` compares everything with what must hold.
"""

from collections import deque
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from penstock.controller.broker_updates import (
    BrokerUpdate,
    PartitionUpdate,
    ReplicaStops,
    broker_updates,
    full_update,
    full_updates,
    metadata_changes,
)
from penstock.controller.control_merging import merge
from penstock.controller.control_requests import (
    ControlRequest,
    ControlRequests,
)
from penstock.controller.image import ClusterImage
from penstock.controller.isr import alter_partition
from penstock.controller.metadata import (
    BrokerKey,
    Change,
    ControllerEpochRecord,
    ControllerRecord,
    Delete,
    Key,
    PartitionRecord,
    Put,
    Record,
    TopicKey,
    TopicRecord,
)
from penstock.controller.partition_state_machine import NO_LEADER, RECOVERING, ElectionRules
from penstock.controller.reactions import ControllerReactions, ControlResponse
from penstock.controller.received_updates import (
    update_of_leader_and_isr,
    update_of_stop_replica,
    update_of_update_metadata,
)
from penstock.controller.result import ControllerResult
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicId, TopicPartition
from penstock.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from penstock.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from penstock.protocol.messages.stop_replica import StopReplicaRequest
from penstock.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.support.cluster.images import broker, check_committable


class Replica:
    """A replica on a broker's disk, with what the broker knows of its partition."""

    def __init__(self, topic_id: TopicId) -> None:
        self.topic_id = topic_id
        self.log = 0
        self.state: PartitionUpdate | None = None
        """None after a restart, and while the replica is stopped."""
        self.maximal_isr: set[int] = set()
        """The ISR, with members of proposals whose responses were lost."""


class SimulatedBroker:
    """A broker that applies what the controller sends."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.is_up = False
        self.epoch = -1
        self.image = ClusterImage()
        self.controller_epoch = -1
        self.queue: deque[BrokerUpdate | list[ControlRequest]] = deque()
        """Updates, or requests from the controller on another broker."""
        self.replicas: dict[TopicPartition, Replica] = {}
        self.offline: set[TopicPartition] = set()

    def start(self, epoch: int) -> None:
        self.is_up, self.epoch, self.controller_epoch = True, epoch, -1
        self.image = ClusterImage()
        self.queue.clear()
        self.offline.clear()
        for replica in self.replicas.values():
            replica.state = None

    def stop(self) -> None:
        self.is_up = False
        self.queue.clear()

    def receive(self) -> ControlResponse | None:
        """Applies the next update; returns the response, or None if the update is old."""
        received = self.queue.popleft()
        self._partition_errors: dict[TopicPartition, ErrorCode] = {}
        self._stop_errors: dict[TopicPartition, ErrorCode] = {}
        if isinstance(received, BrokerUpdate):
            is_current = self._apply(received, metadata_changes(self.image, received))
        else:
            is_current = all(self._apply_request(request) for request in received)
        if not is_current:
            return None
        return ControlResponse(
            self.broker_id, self.epoch, self._partition_errors, self._stop_errors
        )

    def _apply_request(self, request: ControlRequest) -> bool:
        match request:
            case LeaderAndIsrRequest():
                return self._apply(update_of_leader_and_isr(request), [])
            case StopReplicaRequest():
                return self._apply(update_of_stop_replica(request), [])
            case UpdateMetadataRequest():
                update = update_of_update_metadata(request, self.image)
                return self._apply(update, update.metadata)

    def _apply(self, update: BrokerUpdate, metadata: Sequence[Change]) -> bool:
        """Returns whether the update is current."""
        is_stale = update.controller_epoch < self.controller_epoch
        if is_stale or update.broker_epoch != self.epoch:
            return False
        self.controller_epoch = update.controller_epoch
        for partition in update.partitions:
            self._partition_errors[partition.record.key] = self._apply_state(partition)
        if update.is_full:
            assigned = {partition.record.key for partition in update.partitions}
            for key in self.replicas.keys() - assigned:
                del self.replicas[key]
        self.image.apply(metadata)
        for stop in update.stops:
            error = self._stop(stop.key, stop.leader_epoch, stop.delete)
            if stop.delete:
                self._stop_errors[stop.key] = error
        return True

    def _apply_state(self, update: PartitionUpdate) -> ErrorCode:
        key = update.record.key
        replica = self.replicas.get(key)
        if key in self.offline:
            if not update.is_new:
                return ErrorCode.KAFKA_STORAGE_ERROR
            self.offline.discard(key)
            replica = None  # a new replica is created in another directory
        elif replica is not None and replica.state is None and replica.topic_id != update.topic_id:
            replica = None  # it was removed while the broker was down
        if replica is None:
            replica = self.replicas[key] = Replica(update.topic_id)
        assert replica.topic_id == update.topic_id, "a replica of a topic that was deleted"
        state = replica.state
        if state is None or update.record.leader_epoch > state.record.leader_epoch:
            replica.state = update
            replica.maximal_isr = set(update.record.isr)
        return ErrorCode.NONE

    def _stop(self, key: TopicPartition, leader_epoch: int, delete: bool) -> ErrorCode:
        if key in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        replica = self.replicas.get(key)
        if replica is not None:
            if replica.state is not None and leader_epoch >= 0:
                assert leader_epoch >= replica.state.record.leader_epoch, "a fenced StopReplica"
            replica.state = None
            if delete:
                del self.replicas[key]
        return ErrorCode.NONE


class Acknowledged(NamedTuple):
    """The records of a partition that were acknowledged to producers."""

    topic_id: TopicId
    records: int


class SimulatedCluster:
    """The store, the controller and the brokers. Every event ends with all reactions done.

    The controller's own broker applies updates at once, the others when they are delivered.
    """

    def __init__(self, broker_ids: Sequence[int]) -> None:
        self.image = ClusterImage()
        self.store: dict[Key, Record] = {}
        self.brokers = {broker_id: SimulatedBroker(broker_id) for broker_id in broker_ids}
        self.reactions = ControllerReactions()
        self.unclean_topics: set[str] = set()
        self.is_unclean_requested = False
        self.acknowledged: dict[TopicPartition, Acknowledged] = {}
        self.leaders: dict[tuple[TopicId, int, int], int] = {}
        """The leader of each topic id, partition and leader epoch."""
        self.unclean_epochs: dict[tuple[TopicId, int], int] = {}
        """The leader epoch of the last unclean election, by topic id and partition."""
        self.is_merging = False
        """Whether the updates that wait for a broker are merged."""
        self._version = 0
        self._is_started = False
        self._responses: deque[ControlResponse] = deque()

    @property
    def base_rules(self) -> ElectionRules:
        return ElectionRules(self.unclean_topics.__contains__)

    @property
    def rules(self) -> ElectionRules:
        return self.reactions.rules(self.base_rules)

    # --- the host of the controller

    def start_controller(self, broker_id: int) -> None:
        """A new controller, which knows only what is stored."""
        self.image = ClusterImage()
        self.image.apply(map(Put, self.store.values()))
        self.reactions = ControllerReactions()
        self._responses.clear()
        claim: list[Change] = [
            Put(ControllerEpochRecord(self.image.controller_epoch + 1)),
            Put(ControllerRecord(broker_id, 0)),
        ]
        self._is_started = False
        self._store_and_apply(claim)
        self.react()
        self._is_started = True
        self._send(full_updates(self.image))
        self.react()

    def commit(self, result: ControllerResult[Any]) -> None:
        """Commits a decision and everything that follows from it."""
        self.write(result.changes, result.stops)

    def write(self, changes: Sequence[Change], stops: ReplicaStops | None = None) -> None:
        """Commits changes of the controller, or of another process."""
        self._commit(changes, stops)
        self.react()

    def react(self) -> None:
        for _ in range(20):
            while self._responses:
                self.reactions.observe_response(self.image, self._responses.popleft())
            if not self.reactions.are_pending:
                return
            result = self.reactions.decide(self.image, self.base_rules)
            again = self.reactions.decide(self.image, self.base_rules)
            assert result == again, "decisions are pure"
            self._commit(result.changes, result.stops, result.response.changed_replicas)
            self.reactions.finish(result.response)
            refreshed = result.response.refreshed
            self._send({broker_id: full_update(self.image, broker_id) for broker_id in refreshed})
        raise AssertionError("the controller reacts to its own reactions forever")

    def _commit(
        self,
        changes: Sequence[Change],
        stops: ReplicaStops | None,
        changed_replicas: Collection[TopicPartition] = (),
    ) -> None:
        check_committable(changes)
        updates = broker_updates(
            self.image, changes, stops, self.reactions.awaiting, changed_replicas
        )
        self._store_and_apply(changes)
        self._send(updates)

    def _store_and_apply(self, changes: Sequence[Change]) -> None:
        self.reactions.observe(self.image, changes)
        for change in changes:
            if isinstance(change, Delete):
                assert change.key in self.store, f"{change.key} does not exist"
                del self.store[change.key]
                if isinstance(change.key, TopicKey):
                    self._check_deleted(change.key.topic)
                continue
            record = change.record
            previous = self.store.get(record.key)
            self.store[record.key] = record
            if isinstance(record, PartitionRecord):
                assert previous is None or isinstance(previous, PartitionRecord)
                self._check_step(previous, record)
        self.image.apply(changes)

    def _send(self, updates: dict[int, BrokerUpdate]) -> None:
        if not self._is_started:
            return
        requests = ControlRequests(self.image, "PLAINTEXT", self.reactions.offline_replicas)
        for broker_id, update in updates.items():
            receiver = self.brokers[broker_id]
            if broker_id == self.image.controller_id:
                receiver.queue.append(update)
                response = receiver.receive()
                if response is not None:
                    self._responses.append(response)
            elif receiver.is_up and receiver.epoch == update.broker_epoch:
                self._enqueue(receiver, requests.of(update))

    def _enqueue(self, receiver: SimulatedBroker, requests: list[ControlRequest]) -> None:
        """What waits for a broker is merged, as the controller's channels do."""
        waiting = receiver.queue[-1] if receiver.queue else None
        merged = merge(waiting, requests) if isinstance(waiting, list) and self.is_merging else None
        if merged is None:
            receiver.queue.append(requests)
        else:
            receiver.queue[-1] = merged

    def deliver(self, broker_id: int) -> None:
        """Lets a broker apply its next update, and the controller its response."""
        response = self.brokers[broker_id].receive()
        if response is not None:
            self._responses.append(response)
            self.react()

    def deliver_all(self) -> None:
        while waiting := [b.broker_id for b in self.brokers.values() if b.queue]:
            for broker_id in waiting:
                self.deliver(broker_id)

    # --- brokers

    def start_broker(self, broker_id: int, lost_records: int = 0) -> None:
        """Registers a broker; one that is up has restarted before its failure was noticed.

        It has lost records that it had not flushed, unless nobody else has them.
        """
        self._version += 1
        starting = self.brokers[broker_id]
        starting.start(self._version)
        for key, replica in starting.replicas.items():
            if self._has_others_in_sync(key, broker_id):
                replica.log = max(replica.log - lost_records, 0)
        self.write([Put(broker(broker_id, self._version))])

    def _has_others_in_sync(self, key: TopicPartition, broker_id: int) -> bool:
        state = self.image.partitions.get(key)
        if state is None or broker_id not in state.isr:
            return True
        offline = self.reactions.offline_replicas.get(key, frozenset())
        return any(
            member != broker_id and member in self.image.brokers and member not in offline
            for member in state.isr
        )

    def lose_session(self, broker_id: int) -> None:
        """The store takes a broker for dead, but it works on with what it knows."""
        losing = self.brokers[broker_id]
        if losing.is_up and broker_id in self.image.brokers:
            losing.queue.clear()
            self.write([Delete(BrokerKey(broker_id))])

    def register_again(self, broker_id: int) -> None:
        """A broker that has lost its session registers without a restart."""
        returning = self.brokers[broker_id]
        if returning.is_up and broker_id not in self.image.brokers:
            self._version += 1
            returning.epoch = self._version
            self.write([Put(broker(broker_id, self._version))])

    def stop_brokers(self, broker_ids: Sequence[int], has_controller: bool = True) -> None:
        """The sessions of brokers end, noticed by the controller or while there is none."""
        changes: list[Change] = []
        for broker_id in broker_ids:
            self.brokers[broker_id].stop()
            if BrokerKey(broker_id) in self.store:
                changes.append(Delete(BrokerKey(broker_id)))
        if has_controller:
            self.write(changes)
        else:
            for broker_id in broker_ids:
                self.store.pop(BrokerKey(broker_id), None)

    def live(self) -> list[int]:
        """The brokers that are registered."""
        return [broker_id for broker_id in self.brokers if BrokerKey(broker_id) in self.store]

    # --- leaders

    def believed_leaders(self) -> list[tuple[SimulatedBroker, Replica, PartitionUpdate]]:
        """The replicas that their brokers take for leaders; some of them may be fenced."""
        return [
            (holder, replica, replica.state)
            for holder in self.brokers.values()
            if holder.is_up
            for replica in holder.replicas.values()
            if replica.state is not None and replica.state.record.leader == holder.broker_id
        ]

    def produce(self, holder: SimulatedBroker, leader: Replica, state: PartitionUpdate) -> None:
        """Appends a record, which is acknowledged if the whole ISR follows this leader."""
        key = state.record.key
        if key in holder.offline:
            return
        leader.log += 1
        members: list[Replica] = [leader]
        for member in leader.maximal_isr - {holder.broker_id}:
            follower = self._follower(member, key, state)
            if follower is None:
                return
            members.append(follower)
        for follower in members:
            follower.log = leader.log
        if state.record.leader_epoch < self.unclean_epochs.get((leader.topic_id, key.partition), 0):
            return  # an unclean election has given up what the old leader acknowledges
        known = self.acknowledged.get(key)
        if known is not None and known.topic_id == leader.topic_id:
            assert leader.log > known.records, "a leader overwrites acknowledged records"
        self.acknowledged[key] = Acknowledged(leader.topic_id, leader.log)

    def _follower(
        self, broker_id: int, key: TopicPartition, leader: PartitionUpdate
    ) -> Replica | None:
        """The replica that follows this leader in its epoch."""
        holder = self.brokers[broker_id]
        replica = holder.replicas.get(key)
        if not holder.is_up or key in holder.offline or replica is None or replica.state is None:
            return None
        record = replica.state.record
        is_following = (record.leader, record.leader_epoch) == (
            leader.record.leader,
            leader.record.leader_epoch,
        )
        return replica if is_following else None

    def propose_isr(
        self,
        holder: SimulatedBroker,
        leader: Replica,
        state: PartitionUpdate,
        members: set[int],
        *,
        is_response_lost: bool = False,
    ) -> ErrorCode:
        """Proposes the members that follow this leader, which catch up before."""
        key = state.record.key
        isr = [holder.broker_id]
        for member in sorted(members - {holder.broker_id}):
            follower = self._follower(member, key, state)
            if follower is not None:
                follower.log = leader.log
                isr.append(member)
        data = AlterPartitionRequestPartitionData(
            key.partition,
            state.record.leader_epoch,
            [],
            [BrokerState(member, self.brokers[member].epoch) for member in isr],
            0,
            state.record.partition_epoch,
        )
        topic = AlterPartitionRequestTopicData("", leader.topic_id, [data])
        request = AlterPartitionRequest(holder.broker_id, holder.epoch, [topic])
        result = alter_partition(self.image, request, self.rules)
        leader.maximal_isr |= set(isr)
        self.commit(result)
        if result.response.error_code != ErrorCode.NONE:
            return ErrorCode(result.response.error_code)
        (response,) = result.response.topics[0].partitions
        is_current = leader.state is state
        if response.error_code == ErrorCode.NONE and is_current and not is_response_lost:
            assert response.leader_id == holder.broker_id
            if response.leader_epoch == state.record.leader_epoch:
                accepted = replace(
                    state.record,
                    isr=tuple(response.isr),
                    partition_epoch=response.partition_epoch,
                )
                leader.state = state._replace(record=accepted)
                leader.maximal_isr = set(response.isr)
        return ErrorCode(response.error_code)

    # --- what must hold

    def _check_step(self, before: PartitionRecord | None, after: PartitionRecord) -> None:
        assert after.controller_epoch == self.image.controller_epoch
        assert after.isr
        assert len(set(after.isr)) == len(after.isr)
        topic = self.store[TopicKey(after.topic)]
        assert isinstance(topic, TopicRecord)
        if after.leader != NO_LEADER:
            epoch = (topic.topic_id, after.partition, after.leader_epoch)
            leader = self.leaders.setdefault(epoch, after.leader)
            assert leader == after.leader, "two leaders in one epoch"
        if before is None:
            assert (after.leader_epoch, after.partition_epoch) == (0, 0)
            return
        assert after.partition_epoch == before.partition_epoch + 1
        assert after.leader_epoch >= before.leader_epoch, "a leader epoch falls"
        is_recovering = after.leader_recovery_state == RECOVERING
        if is_recovering and after.leader not in (NO_LEADER, *before.isr):
            assert after.topic in self.unclean_topics or self.is_unclean_requested
            assert after.isr == (after.leader,)
            self.unclean_epochs[topic.topic_id, after.partition] = after.leader_epoch
            self._lose_records(after)

    def _lose_records(self, state: PartitionRecord) -> None:
        """An unclean leader lacks acknowledged records; from now on its log counts."""
        acknowledged = self.acknowledged.get(state.key)
        if acknowledged is not None:
            leader = self.brokers[state.leader].replicas.get(state.key)
            records = min(acknowledged.records, 0 if leader is None else leader.log)
            self.acknowledged[state.key] = acknowledged._replace(records=records)

    def _check_deleted(self, topic: str) -> None:
        if not self.image.is_deleting(topic):
            # Only the controller's broker has it, and deletes it even from a failed directory.
            replicas = self.brokers[self.image.controller_id].replicas
            for key in [key for key in replicas if key.topic == topic]:
                del replicas[key]
            return
        for holder in self.brokers.values():
            for key in holder.replicas:
                is_assigned = holder.broker_id in self._replicas_of(key)
                assert key.topic != topic or not is_assigned, f"{key} is deleted too early"

    def _replicas_of(self, key: TopicPartition) -> tuple[int, ...]:
        record = self.image.topics.get(key.topic)
        if record is None or key.partition not in record.assignments:
            return ()
        return record.assignments[key.partition].replicas

    def check(self) -> None:
        """After every event."""
        assert {r.key: r for r in self.image._records()}.keys() == self.store.keys()
        for topic in self.image.topics.values():
            for number, assignment in topic.assignments.items():
                state = self.image.partitions.get(TopicPartition(topic.topic, number))
                if state is None:
                    continue
                assert set(state.isr) <= set(assignment.replicas), "the ISR has other brokers"
                assert len(set(assignment.replicas)) == len(assignment.replicas)
                if not self.image.is_deleting(topic.topic):
                    self._check_leader(topic, state, set(assignment.replicas))

    def _check_leader(self, topic: TopicRecord, state: PartitionRecord, replicas: set[int]) -> None:
        offline = self.reactions.offline_replicas.get(state.key, frozenset())
        live = self.image.brokers.keys() - offline
        if state.leader == NO_LEADER:
            assert not set(state.isr) & live, "a live in-sync replica does not lead"
            assert state.topic not in self.unclean_topics or not replicas & live
            return
        assert state.leader in state.isr, "the leader is not in the ISR"
        assert set(state.isr) <= live, "the ISR has replicas that are down"
        acknowledged = self.acknowledged.get(state.key)
        if acknowledged is not None and acknowledged.topic_id == topic.topic_id:
            for member in state.isr:
                replica = self.brokers[member].replicas.get(state.key)
                records = 0 if replica is None else replica.log
                assert records >= acknowledged.records, "acknowledged records are lost"

    def check_healed(self) -> None:
        """When all brokers are up and have received everything."""
        image = self.image
        assert not image.topic_deletions, "a deletion does not end"
        assert image.reassign_partitions is None, "a reassignment does not end"
        assert image.preferred_election is None
        assert not image.isr_changes
        assert not image.log_dir_events
        assigned: dict[int, dict[TopicPartition, int]] = {b: {} for b in self.brokers}
        for topic in image.topics.values():
            for number, assignment in topic.assignments.items():
                state = image.partitions[TopicPartition(topic.topic, number)]
                assert not assignment.is_reassigning, "a reassignment does not end"
                assert state.leader != NO_LEADER, "a partition is not led"
                assert set(state.isr) == set(assignment.replicas)
                for replica in assignment.replicas:
                    assigned[replica][state.key] = state.leader_epoch
        for holder in self.brokers.values():
            known = {
                key: -1 if replica.state is None else replica.state.record.leader_epoch
                for key, replica in holder.replicas.items()
            }
            assert known == assigned[holder.broker_id], "a broker has other replicas"
            assert holder.image.topics == image.topics
            assert holder.image.partitions == image.partitions
            assert holder.image.brokers.keys() == image.brokers.keys()
