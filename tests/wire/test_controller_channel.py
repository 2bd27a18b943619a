"""The controller's requests to other brokers over real sockets: order, retries, responses (R6)."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from uuid import UUID

import pytest

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.metadata import controller_channel
from penstock.broker.metadata.controller_channel import ControllerChannelManager, ControlResult
from penstock.broker.workers import Workers
from penstock.controller.broker_updates import (
    BrokerUpdate,
    ReplicaStop,
    broker_updates,
    full_update,
)
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Assignment,
    BrokerKey,
    BrokerRecord,
    Change,
    ControllerEpochRecord,
    ControllerRecord,
    Delete,
    Endpoint,
    PartitionRecord,
    Put,
    SecurityProtocol,
    TopicRecord,
)
from penstock.controller.topics import new_topic
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.core.system_clock import SystemClock
from penstock.net.client import network_client
from penstock.protocol.codec import encode_parts
from penstock.protocol.encoder import Part
from penstock.protocol.fields import Message
from penstock.protocol.messages.header import RequestHeader
from penstock.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from penstock.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from penstock.protocol.messages.update_metadata import UpdateMetadataResponse
from tests.support.broker.fake_brokers import FakeBroker, fake_broker

_TOPIC_ID = UUID(int=1)


def respond(header: RequestHeader, request: Message) -> Message:
    match request:
        case LeaderAndIsrRequest():
            error = LeaderAndIsrPartitionError("", 1, ErrorCode.KAFKA_STORAGE_ERROR)
            done = LeaderAndIsrPartitionError("", 0, ErrorCode.NONE)
            return LeaderAndIsrResponse(topics=[LeaderAndIsrTopicError(_TOPIC_ID, [done, error])])
        case StopReplicaRequest():
            return StopReplicaResponse(partition_errors=[StopReplicaPartitionError("t", 0, 0)])
    return UpdateMetadataResponse()


def names(broker: FakeBroker) -> list[str]:
    return [type(request).__name__.removesuffix("Request") for request in broker.requests]


class _Controller:
    """Broker 0, the controller; it sends its changes to broker 1."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.image = ClusterImage()
        self.image.apply([Put(ControllerRecord(0, 0)), Put(ControllerEpochRecord(7))])
        self.results: list[ControlResult] = []
        config = BrokerConfig.from_properties(settings or {})
        self.channels = ControllerChannelManager(
            config, self.image, SystemClock(), self.results.append, Workers()
        )

    def commit(self, *changes: Change, stops: tuple[ReplicaStop, ...] = ()) -> None:
        updates = broker_updates(self.image, changes, {1: stops})
        self.image.apply(changes)
        for broker_id, update in updates.items():
            if broker_id:
                self.send(update)

    def send(self, update: BrokerUpdate) -> None:
        self.channels.send(self.image.brokers[1], update)

    def register(self, port: int, epoch: int = 1) -> None:
        self.register_with({"PLAINTEXT": port}, epoch)

    def register_with(self, ports: Mapping[str, int], epoch: int) -> None:
        """Registers the broker with these listeners."""
        endpoints = tuple(
            Endpoint(name, "localhost", port, SecurityProtocol.PLAINTEXT)
            for name, port in ports.items()
        )
        self.commit(Put(BrokerRecord(1, endpoints, None, 0, {}, epoch)))
        self.send(full_update(self.image, 1))

    def create(self, topic: str = "t") -> None:
        assignments = {number: Assignment((1,)) for number in range(2)}
        self.commit(
            Put(TopicRecord(topic, _TOPIC_ID, assignments)),
            *(Put(PartitionRecord(topic, number, 1, 0, (1,), 7, 0)) for number in assignments),
        )

    def elect(self, leader_epoch: int) -> None:
        self.commit(Put(PartitionRecord("t", 0, 1, leader_epoch, (1,), 7, leader_epoch)))

    async def wait_for(self, results: int) -> None:
        while len(self.results) < results:
            await asyncio.sleep(0.01)


def run(work: Callable[[_Controller], Awaitable[None]]) -> None:
    async def main() -> None:
        controller = _Controller()
        try:
            await asyncio.wait_for(work(controller), 20)
        finally:
            await controller.channels.close()

    asyncio.run(main())


def test_requests_arrive_in_order_and_errors_come_back() -> None:
    async def work(controller: _Controller) -> None:
        async with fake_broker(respond) as broker:
            controller.register(broker.port)
            await controller.wait_for(1)
            controller.create()
            await controller.wait_for(2)
            controller.commit(stops=(ReplicaStop(TopicPartition("t", 0), 0, delete=True),))
            await controller.wait_for(3)
            full, created_topic = names(broker)[:2], names(broker)[2:4]
            assert full == ["UpdateMetadata", "LeaderAndIsr"]
            assert created_topic == ["LeaderAndIsr", "UpdateMetadata"]
            assert names(broker)[4:] == ["StopReplica"]
            created, stopped = controller.results[1:]
            assert created.partition_errors == {
                TopicPartition("t", 0): ErrorCode.NONE,
                TopicPartition("t", 1): ErrorCode.KAFKA_STORAGE_ERROR,
            }
            assert stopped.stop_errors == {TopicPartition("t", 0): ErrorCode.NONE}
            assert {result.error for result in controller.results} == {ErrorCode.NONE}
            await controller.channels.close()

    run(work)


def test_a_broker_that_cannot_be_reached_gets_the_last_state_when_it_returns() -> None:
    async def work(controller: _Controller) -> None:
        async with fake_broker(respond) as broker:
            controller.register(broker.port)
            await controller.wait_for(1)
            controller.create()
            await controller.wait_for(2)
            port = broker.port
        controller.elect(1)
        while controller.channels._queues[1]._waiting:
            await asyncio.sleep(0.001)  # until the first election is being sent
        for leader_epoch in range(2, 10):
            controller.elect(leader_epoch)
        async with fake_broker(respond, port=port) as broker:
            await controller.wait_for(4)
            await asyncio.sleep(0.1)
            assert names(broker) == ["LeaderAndIsr", "UpdateMetadata"] * 2
            last = broker.requests[2]
            assert isinstance(last, LeaderAndIsrRequest)
            assert last.topic_states[0].partition_states[0].leader_epoch == 9
            await controller.channels.close()

    run(work)


def test_a_broker_that_stops_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """It closes its listeners before its registration is removed."""

    async def work(controller: _Controller) -> None:
        async with fake_broker(respond) as broker:
            controller.register(broker.port)
            await controller.wait_for(1)
        controller.create()
        while controller.channels._queues[1]._waiting:
            await asyncio.sleep(0.001)  # until the first request is being sent
        await asyncio.sleep(0.2)
        controller.commit(Delete(BrokerKey(1)))
        controller.channels.remove(1)

    run(work)
    assert _warnings(caplog) == []


def test_a_broker_that_stays_unreachable_is_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_channel, "_RETRY_DELAY_S", 0.001)

    async def work(controller: _Controller) -> None:
        async with fake_broker(respond) as broker:
            controller.register(broker.port)
            await controller.wait_for(1)
        controller.create()
        while not _warnings(caplog):
            await asyncio.sleep(0.01)
        await controller.channels.close()

    run(work)
    assert "broker 1 did not apply LeaderAndIsrRequest" in _warnings(caplog)[0]


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == controller_channel.__name__ and record.levelno >= logging.WARNING
    ]


def test_a_broker_that_has_left_gets_nothing_more() -> None:
    async def work(controller: _Controller) -> None:
        async with fake_broker(lambda header, request: None) as silent:
            controller.register(silent.port)
            while not silent.requests:
                await asyncio.sleep(0.01)
            controller.commit(Delete(BrokerKey(1)))
            controller.channels.remove(1)
            async with fake_broker(respond) as broker:
                controller.register(broker.port, epoch=2)
                await controller.wait_for(1)
                assert len(silent.requests) == 1
                assert {getattr(request, "broker_epoch", 0) for request in broker.requests} == {2}
                assert controller.results[0].broker_epoch == 2
                await controller.channels.close()

    run(work)


def test_a_controller_that_has_resigned_sends_nothing_more() -> None:
    async def work(controller: _Controller) -> None:
        async with fake_broker(lambda header, request: None) as silent:
            controller.register(silent.port)
            controller.create()
            while not silent.requests:
                await asyncio.sleep(0.01)
            await controller.channels.close()
            await asyncio.sleep(0.2)
            assert len(silent.requests) == 1
            assert controller.results == []

    run(work)


def test_a_request_that_the_broker_cannot_apply_yet_is_sent_again() -> None:
    """It has no session with the store at present, for example, and reads no settings."""
    errors = [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]

    def refuse(header: RequestHeader, request: Message) -> Message:
        if isinstance(request, LeaderAndIsrRequest):
            return LeaderAndIsrResponse(error_code=errors.pop(0))
        return UpdateMetadataResponse()

    async def work(controller: _Controller) -> None:
        async with fake_broker(refuse) as broker:
            controller.register(broker.port)
            await controller.wait_for(1)
            assert names(broker) == ["UpdateMetadata"] + ["LeaderAndIsr"] * 3
            assert controller.results[0].error is ErrorCode.NONE
            await controller.channels.close()

    run(work)


@pytest.mark.parametrize(
    "code", [ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH], ids=lambda c: c.name
)
def test_a_request_that_is_outdated_is_not_sent_again(code: ErrorCode) -> None:
    def refuse(header: RequestHeader, request: Message) -> Message:
        if isinstance(request, LeaderAndIsrRequest):
            return LeaderAndIsrResponse(error_code=code)
        return UpdateMetadataResponse(error_code=code)

    async def work(controller: _Controller) -> None:
        async with fake_broker(refuse) as broker:
            controller.register(broker.port)
            await controller.wait_for(1)
            assert names(broker) == ["UpdateMetadata", "LeaderAndIsr"]
            assert controller.results[0].error is code
            await controller.channels.close()

    run(work)


def test_large_requests_are_encoded_on_a_thread() -> None:
    async def work(controller: _Controller) -> None:
        async with fake_broker(respond) as broker:
            controller.register(broker.port)
            await controller.wait_for(1)
            partitions: list[tuple[int, ...]] = [(0, 1)] * 1500
            changes = new_topic(controller.image, "large", _TOPIC_ID, partitions, {})
            updates = broker_updates(controller.image, changes)
            controller.image.apply(changes)
            loop_thread, threads = threading.get_ident(), set[int]()

            def encode(message: Message, version: int) -> list[Part]:
                threads.add(threading.get_ident())
                return encode_parts(message, version)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(network_client, "encode_parts", encode)
                await asyncio.to_thread(controller.channels.prepare, {1: updates[1]})
                controller.send(updates[1])
                await controller.wait_for(2)
            assert names(broker)[2:] == ["LeaderAndIsr", "UpdateMetadata"]
            assert threads
            assert loop_thread not in threads
            assert len(controller.results[1].partition_errors) == 2
            await controller.channels.close()

    run(work)


def test_requests_are_sent_to_the_control_plane_listener() -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:1,CONTROL://127.0.0.1:2",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
        "control.plane.listener.name": "CONTROL",
    }

    async def work(_: _Controller) -> None:
        controller = _Controller(settings)
        async with fake_broker(respond) as data, fake_broker(respond) as control:
            controller.register_with({"PLAINTEXT": data.port, "CONTROL": control.port}, 1)
            await controller.wait_for(1)
            assert names(control) == ["UpdateMetadata", "LeaderAndIsr"]
            assert names(data) == []
            await controller.channels.close()

    run(work)
