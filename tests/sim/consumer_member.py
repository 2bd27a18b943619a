"""A simulated member of the consumer protocol that reconciles like a real client.

It begins to read a partition only when no heartbeat is in flight and the last one had a response.
The coordinator assumes that a member does not own a partition that its heartbeat does not name, and
may assign it to another member before the response arrives.
"""

from collections.abc import Callable
from uuid import UUID

from penstock.core.errors import ErrorCode
from penstock.protocol.fields import Message
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.offset_commit import OffsetCommitResponse
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.sim.consumer_simulation import GROUP, REBALANCE_MS, Simulation
from tests.support.coordinator.groups import commit_errors, commit_request

HEARTBEAT_MS = 1_000
REQUEST_TIMEOUT_MS = 2_000
Subscription = tuple[list[str] | None, str | None]
"""Topic names and a pattern."""


class Consumer:
    def __init__(
        self,
        simulation: Simulation,
        member_id: str,
        instance: str | None,
        subscription: Subscription,
    ) -> None:
        self.simulation = simulation
        self.alive = True
        self.member_id = member_id
        self.instance = instance
        self.subscription = subscription
        self.epoch = 0
        self.owned: dict[tuple[UUID, int], int] = {}
        self.assigned: set[tuple[UUID, int]] = set()
        self.mute_until = 0
        """Until this time the member sends nothing, but continues reading."""
        self.slow = False
        """Whether the member exceeds its rebalance timeout when it revokes partitions."""
        self._full = True
        self._owned_changed = False
        self._beating = False
        self._answered = False
        self._ready: dict[tuple[UUID, int], int] = {}
        """Assigned partitions that the member does not read yet, with their offsets."""
        self._busy = False
        self._committing = False
        simulation.owners.append(self)
        self._beat()
        self._commit_soon()

    # --- requests

    def _request(
        self, request: Message, version: int, then: Callable[[Message | None], None]
    ) -> None:
        """Calls `then` with the response, or with None after the request timeout."""
        done = False

        def on_response(response: Message | None) -> None:
            nonlocal done
            if self.alive and not done:
                done = True
                then(response)

        self.simulation.call(request, version, self.member_id, on_response)
        self.simulation.later(REQUEST_TIMEOUT_MS, lambda: on_response(None))

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.simulation.later(delay_ms, lambda: action() if self.alive else None)

    # --- heartbeats

    def _beat(self) -> None:
        self._later(HEARTBEAT_MS, self._beat)
        self._send()

    def _send(self) -> None:
        if self._beating or self.simulation.now < self.mute_until:
            return
        self._beating = True
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance,
        )
        if self.epoch == 0 or self._full:
            names, regex = self.subscription
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = names or []
            request.subscribed_topic_regex = regex or ""
        if self.epoch == 0 or self._full or self._owned_changed:
            by_topic: dict[UUID, list[int]] = {}
            for topic_id, partition in self.owned:
                by_topic.setdefault(topic_id, []).append(partition)
            request.topic_partitions = [
                ConsumerGroupHeartbeatRequestTopicPartitions(t, p) for t, p in by_topic.items()
            ]
        self._full = self._owned_changed = False
        self._request(request, 1, self._beaten)

    def _beaten(self, response: Message | None) -> None:
        self._beating = self._answered = False
        if response is None:
            self._full = True
            return
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        match ErrorCode(response.error_code):
            case ErrorCode.NONE:
                assert response.member_epoch >= self.epoch, "the member's epoch fell"
                self.epoch = response.member_epoch
                if response.assignment is not None:
                    self.assigned = {
                        (topic.topic_id, partition)
                        for topic in response.assignment.topic_partitions
                        for partition in topic.partitions
                    }
                self._answered = True
                self._begin()
                self._reconcile()
            case ErrorCode.FENCED_MEMBER_EPOCH | ErrorCode.UNKNOWN_MEMBER_ID:
                self._forget()
            case ErrorCode.GROUP_ID_NOT_FOUND:
                self._forget()
            case ErrorCode.FENCED_INSTANCE_ID:
                self.alive = False
            case _:
                self._full = True

    def _forget(self) -> None:
        self.epoch = 0
        self.owned.clear()
        self.assigned.clear()
        self._ready.clear()

    # --- reconciliation

    def _reconcile(self) -> None:
        if self._busy or self.owned.keys() == self.assigned:
            return
        self._busy = True
        if self.owned.keys() - self.assigned:
            longest = 2 * REBALANCE_MS if self.slow else 2_000
            self._later(self.simulation.random.randrange(1, longest), self._release)
        else:
            self._acquire()

    def _release(self) -> None:
        if self._committing:
            self._later(100, self._release)
            return
        self._busy = False
        for partition in self.owned.keys() - self.assigned:
            del self.owned[partition]
        self._owned_changed = True
        self._send()
        self._reconcile()

    def _acquire(self) -> None:
        """Fetches the committed offsets of new partitions before it reads them."""
        new_partitions = self.assigned - self.owned.keys()
        epoch = self.epoch
        topics: dict[str, OffsetFetchRequestTopics] = {}
        for topic_id, partition in sorted(new_partitions):
            name = self.simulation.topics.topic_name(topic_id) or ""
            topic = topics.setdefault(name, OffsetFetchRequestTopics(name))
            topic.partition_indexes.append(partition)
        group = OffsetFetchRequestGroup(GROUP, self.member_id, epoch, list(topics.values()))

        def fetched(response: Message | None) -> None:
            self._busy = False
            if response is None or epoch != self.epoch:
                return
            assert isinstance(response, OffsetFetchResponse)
            result = response.groups[0]
            if result.error_code:
                return
            for topic in result.topics:
                topic_id = self.simulation.topics.topic_id(topic.name)
                assert topic_id is not None
                for partition in topic.partitions:
                    self._ready[topic_id, partition.partition_index] = partition.committed_offset
            self._begin()

        self._request(OffsetFetchRequest(groups=[group]), 9, fetched)

    def _begin(self) -> None:
        if self._beating or not self._answered or not self._ready:
            return
        for partition in self._ready.keys() & self.assigned:
            self.owned[partition] = self._ready[partition]
        self._ready.clear()
        self._owned_changed = True

    # --- reading

    def _commit_soon(self) -> None:
        self._later(self.simulation.random.randrange(200, 1_500), self._commit)

    def _commit(self) -> None:
        if not self.owned or not self.epoch or self._committing:
            self._commit_soon()
            return
        self._committing = True
        offsets = {}
        for topic_id, partition in self.owned:
            self.owned[topic_id, partition] += 1 + self.simulation.random.randrange(3)
            name = self.simulation.topics.topic_name(topic_id) or ""
            offsets[name, partition] = self.owned[topic_id, partition]
        request = commit_request(
            offsets, group=GROUP, member_id=self.member_id, generation=self.epoch
        )

        def done(response: Message | None) -> None:
            self._committing = False
            self._commit_soon()
            if response is not None:
                assert isinstance(response, OffsetCommitResponse)
                assert ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC not in commit_errors(response)

        self._request(request, 9, done)

    # --- changes

    def subscribe(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self._full = True

    def stop(self, *, leave: bool) -> None:
        """Crashes or leaves; a static member leaves temporarily."""
        self.alive = False
        self.owned.clear()
        if leave and self.epoch > 0 and not self._committing:
            request = ConsumerGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=self.member_id,
                member_epoch=-1 if self.instance is None else -2,
                instance_id=self.instance,
            )
            self.simulation.call(request, 1, self.member_id, lambda response: None)
