"""Followers of a broker under test that are raw Fetch requests, and a controller that obeys.

with replicated_topic(broker, client, "t") as topic, topic.follower(7) as follower:
    topic.send(b"value")
    follower.fetch(1)
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self, TypeVar
from uuid import UUID

from msgspec.structs import replace

from penstock.broker.broker import Broker
from penstock.broker.replica.replica import Replica
from penstock.controller.metadata import BrokerRecord
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from penstock.protocol.messages.fetch import FetchRequest
from tests.support.broker.in_process import TIMEOUT_S, RunningBroker, WireClient
from tests.support.protocol.requests import (
    batch_of,
    fetch_request,
    make_topic,
    partitions_of,
    produce_request,
)

FOLLOWERS = (7, 8)
VERSION = 12
T = TypeVar("T")


class SimulatedController:
    """Responds to AlterPartition in place of the controller, when the test allows it."""

    def __init__(self) -> None:
        self.proposals: list[list[int]] = []
        self.error = ErrorCode.NONE
        self.is_open = threading.Event()
        self.is_open.set()

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                isr = [member.broker_id for member in partition.new_isr_with_epochs]
                self.proposals.append(isr)
                partitions.append(
                    AlterPartitionResponsePartitionData(
                        partition.partition_index,
                        self.error,
                        request.broker_id,
                        partition.leader_epoch,
                        isr,
                        partition_epoch=partition.partition_epoch + 1,
                    )
                )
            topics.append(
                AlterPartitionResponseTopicData(topic.topic_name, topic.topic_id, partitions)
            )
        while not self.is_open.is_set():
            await asyncio.sleep(0.001)
        return AlterPartitionResponse(topics=topics)


class ReplicatedTopic:
    """A topic whose partitions have replicas on the broker under test and on `FOLLOWERS`."""

    def __init__(
        self,
        broker: RunningBroker,
        name: str,
        topic_id: UUID,
        controller: SimulatedController,
    ) -> None:
        self.broker = broker
        self.name = name
        self.topic_id = topic_id
        self.controller = controller
        self.leader_id = broker.app.broker.broker_id

    def call(self, function: Callable[[Replica], T], partition: int = 0) -> T:
        """Runs a function with the replica, on the thread of the broker."""
        return self.broker.call(lambda inside: function(inside.replicas.find(self.name, partition)))

    def set_state(
        self,
        *,
        partition: int = 0,
        leader: int | None = None,
        isr: tuple[int, ...] | None = None,
        replicas: tuple[int, ...] | None = None,
        bump_epoch: bool = True,
    ) -> None:
        """Applies a new state as if it came from the controller."""
        everyone = (self.leader_id, *FOLLOWERS)

        def apply(replica: Replica) -> None:
            state = replica.partition
            assert replica.apply_state(
                leader=self.leader_id if leader is None else leader,
                leader_epoch=state.leader_epoch + bump_epoch,
                partition_epoch=state.partition_epoch + 1,
                isr=everyone if isr is None else isr,
                replicas=everyone if replicas is None else replicas,
            )

        self.call(apply, partition)

    @property
    def high_watermark(self) -> int:
        return self.call(lambda replica: replica.log.high_watermark)

    @property
    def leader_epoch(self) -> int:
        return self.call(lambda replica: replica.partition.leader_epoch)

    @property
    def isr(self) -> tuple[int, ...]:
        return self.call(lambda replica: replica.partition.isr)

    @contextmanager
    def follower(self, broker_id: int) -> Iterator["Follower"]:
        with self.broker.connect() as client:
            yield Follower(self, broker_id, client)


class Follower:
    """A broker that fetches one partition."""

    def __init__(self, topic: ReplicatedTopic, broker_id: int, client: WireClient) -> None:
        self.topic = topic
        self.broker_id = broker_id
        self.client = client

    def request(
        self, offset: int, *, version: int = VERSION, log_start_offset: int = 0, **options: Any
    ) -> FetchRequest:
        topic: str | UUID = self.topic.topic_id if version >= 13 else self.topic.name
        request = fetch_request({topic: {0: offset}}, **options)
        for partition in request.topics[0].partitions:
            partition.log_start_offset = log_start_offset
        if version >= 15:
            request.replica_state.replica_id = self.broker_id
        else:
            request.replica_id = self.broker_id
        return request

    def fetch(self, offset: int, *, version: int = VERSION, **options: Any) -> Any:
        """Fetches from an offset, which says that the follower has everything below it."""
        response = self.client.request(self.request(offset, version=version, **options), version)
        (data,) = partitions_of(response).values()
        return data


@contextmanager
def replicated_topic(
    broker: RunningBroker,
    client: WireClient,
    name: str,
    *,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
    isr: tuple[int, ...] | None = None,
    racks: Mapping[int, str] | None = None,
) -> Iterator[ReplicatedTopic]:
    """Creates a topic that the broker leads with two followers."""
    topic_id = make_topic(client, name, partitions, configs)
    with with_followers(
        broker, name, topic_id, partitions=partitions, isr=isr, racks=racks
    ) as topic:
        yield topic


@contextmanager
def with_followers(
    broker: RunningBroker,
    name: str,
    topic_id: UUID,
    *,
    partitions: int = 1,
    isr: tuple[int, ...] | None = None,
    racks: Mapping[int, str] | None = None,
) -> Iterator[ReplicatedTopic]:
    """Tells the broker that it leads an existing topic with two followers."""
    controller = SimulatedController()

    def add_brokers(inside: Broker) -> Any:
        own = inside.image.brokers[inside.broker_id]
        for broker_id in FOLLOWERS:
            rack = (racks or {}).get(broker_id)
            record: BrokerRecord = replace(own, broker_id=broker_id, rack=rack, epoch=0)
            inside.image.brokers[broker_id] = record
        proposals = inside.isr_manager._proposals
        previous, proposals.send = proposals.send, controller.alter_partition
        return previous

    deadline = time.monotonic() + TIMEOUT_S
    while broker.call(lambda inside: len(inside.replicas.by_topic.get(name, ()))) < partitions:
        assert time.monotonic() < deadline, f"{name} has no replicas"
        time.sleep(0.01)
    previous = broker.call(add_brokers)
    topic = ReplicatedTopic(broker, name, topic_id, controller)
    for partition in range(partitions):
        topic.set_state(partition=partition, isr=isr)
    try:
        yield topic
    finally:
        controller.is_open.set()
        for partition in range(partitions):
            topic.set_state(partition=partition, leader=FOLLOWERS[0])

        def remove_brokers(inside: Broker) -> None:
            for broker_id in FOLLOWERS:
                inside.image.brokers.pop(broker_id, None)
            inside.isr_manager._proposals.send = previous

        broker.call(remove_brokers)


class PendingProduce:
    """A Produce whose response the test reads later."""

    def __init__(self, client: WireClient, topic: str, *values: bytes, **options: Any) -> None:
        self._client = client
        self._version = options.pop("version", 9)
        timeout_ms = options.pop("timeout_ms", 20_000)
        self._request = produce_request(topic, batch_of(*values), **options)
        self._request.timeout_ms = timeout_ms
        client.send(self._request, self._version)

    def result(self) -> Any:
        response: Any = self._client.receive(self._request, self._version)
        return response.responses[0].partition_responses[0]

    def is_waiting(self) -> bool:
        """Whether no response arrives for a while."""
        self._client.sock.settimeout(0.15)
        try:
            self._client.sock.recv(1, 2)  # MSG_PEEK
        except TimeoutError:
            return True
        finally:
            self._client.sock.settimeout(20)
        return False

    def __enter__(self) -> Self:
        return self
