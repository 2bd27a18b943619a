"""Requests from broker to broker, and to the controller, over real sockets (X1)."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.inter_broker.client import InterBrokerClient
from penstock.broker.inter_broker.controller_client import ControllerClient
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    BrokerRecord,
    ControllerRecord,
    Endpoint,
    Put,
    SecurityProtocol,
)
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.system_clock import SystemClock
from penstock.net.client.errors import AuthenticationError, DisconnectError
from penstock.protocol.fields import Message
from penstock.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from penstock.protocol.messages.header import RequestHeader
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.security.scram_credential import ScramMechanism
from tests.support.broker.certificates import make_identity, simple_name
from tests.support.broker.fake_brokers import FakeBroker, fake_broker
from tests.support.broker.in_process import running_broker
from tests.support.broker.logins import set_password

CLOCK = SystemClock()


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 20))


def record(broker_id: int, port: int, listener: str = "PLAINTEXT") -> BrokerRecord:
    endpoint = Endpoint(listener, "localhost", port, SecurityProtocol.PLAINTEXT)
    return BrokerRecord(broker_id, (endpoint,), None, 0, {}, 1)


def groups(header: RequestHeader, request: Message) -> Message:
    return ListGroupsResponse()


async def list_groups(client: InterBrokerClient, broker_id: int) -> ListGroupsResponse:
    return await client.request(broker_id, ListGroupsRequest(), ListGroupsResponse)


# --- InterBrokerClient


def test_addresses_follow_the_image() -> None:
    async def work() -> None:
        image = ClusterImage()
        client = InterBrokerClient(BrokerConfig.from_properties({}), image, CLOCK)
        async with fake_broker(groups) as first, fake_broker(groups) as second:
            with pytest.raises(DisconnectError, match="broker 2 is not up"):
                await list_groups(client, 2)
            for broker in (first, second):
                image.apply([Put(record(2, broker.port))])
                await list_groups(client, 2)
            assert [len(broker.requests) for broker in (first, second)] == [1, 1]
            image.apply([Put(record(2, second.port, "OTHER"))])
            with pytest.raises(DisconnectError, match="has no listener PLAINTEXT"):
                await list_groups(client, 2)
            await client.close()
            with pytest.raises(DisconnectError, match="is stopping"):
                await list_groups(client, 2)

    run(work())


def test_a_connection_that_is_closed_fails_its_requests() -> None:
    async def work() -> None:
        image = ClusterImage()
        client = InterBrokerClient(BrokerConfig.from_properties({}), image, CLOCK)
        async with fake_broker(lambda header, request: None) as broker:
            image.apply([Put(record(2, broker.port))])
            response = await client.send(2, ListGroupsRequest(), ListGroupsResponse)
            client.disconnect(2, "broker 2 has left the cluster")
            with pytest.raises(DisconnectError, match="has left"):
                await response
            await client.close()

    run(work())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_brokers_log_in_over_tls(tmp_path: Path, mechanism: str) -> None:
    """Two brokers share their settings: the one's client logs in to the other's listener."""
    authority = make_identity(simple_name("authority"))
    identity = make_identity(simple_name("broker"), authority)
    module = {
        "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
        "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    }[mechanism]
    users = 'user_admin="admin-secret" user_kafka="kafka-secret"' if mechanism == "PLAIN" else ""
    jaas = f'{module} required username="kafka" password="kafka-secret" {users};'
    setting = f"listener.name.sasl_ssl.{mechanism.lower()}.sasl.jaas.config"
    settings = {
        "listeners": "PLAINTEXT://localhost:0,SASL_SSL://localhost:0",
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        setting: jaas,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": identity.key_pem(),
        "ssl.keystore.certificate.chain": identity.certificate_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.certificate_pem,
        "listener.name.sasl_ssl.ssl.client.auth": "required",
        "connection.failed.authentication.delay.ms": "0",
    }
    with running_broker(tmp_path, settings) as broker:
        if mechanism != "PLAIN":
            with broker.connect() as admin:
                set_password(admin, ScramMechanism.SCRAM_SHA_512, "kafka", "kafka-secret")
        port = next(a.port for a in broker.addresses if a.listener == "SASL_SSL")

        async def work() -> None:
            image = ClusterImage()
            image.apply([Put(record(2, port, "SASL_SSL"))])
            config = BrokerConfig.from_properties(settings)
            client = InterBrokerClient(config, image, CLOCK)
            assert (await list_groups(client, 2)).error_code == 0
            client.reconfigure()
            client.disconnect(2, "a new connection uses the new keys")
            assert (await list_groups(client, 2)).error_code == 0
            await client.close()
            wrong = jaas.replace('password="kafka-secret"', 'password="wrong"')
            stranger = InterBrokerClient(
                BrokerConfig.from_properties({**settings, setting: wrong}), image, CLOCK
            )
            with pytest.raises(AuthenticationError):
                await list_groups(stranger, 2)
            await stranger.close()

        run(work())


# --- ControllerClient


def ids(header: RequestHeader, request: Message) -> Message:
    return AllocateProducerIdsResponse(producer_id_start=1000, producer_id_len=1000)


class _Brokers:
    """Broker 1, whose client is under test, and what it learns about the others."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.network = InterBrokerClient(BrokerConfig.from_properties({}), self.image, CLOCK)
        self.local_requests: list[Message] = []
        self.local_error: KafkaError | None = None
        self.client = ControllerClient(1, self.image, self.network, self._handle, CLOCK)

    async def _handle(self, message: Message) -> Message:
        self.local_requests.append(message)
        if self.local_error is not None:
            raise self.local_error
        return AllocateProducerIdsResponse(producer_id_start=5, producer_id_len=1000)

    def add(self, broker_id: int, broker: FakeBroker) -> None:
        self.image.apply([Put(record(broker_id, broker.port))])

    def elect(self, broker_id: int) -> None:
        self.image.apply([Put(ControllerRecord(broker_id, 0))])

    async def allocate(self, timeout_ms: int | None = None) -> int:
        response = await self.client.send(
            AllocateProducerIdsRequest(1, 1), AllocateProducerIdsResponse, timeout_ms=timeout_ms
        )
        return response.producer_id_start


def test_the_controller_handles_its_own_requests_in_process() -> None:
    async def work() -> None:
        brokers = _Brokers()
        brokers.elect(1)
        assert await brokers.allocate() == 5
        brokers.local_error = KafkaError(ErrorCode.POLICY_VIOLATION, "no")
        with pytest.raises(KafkaError, match="no"):
            await brokers.allocate()

    run(work())


def test_a_request_waits_for_a_controller() -> None:
    async def work() -> None:
        brokers = _Brokers()
        with pytest.raises(KafkaError) as error:
            await brokers.allocate(timeout_ms=20)
        assert error.value.code is ErrorCode.NOT_CONTROLLER
        async with fake_broker(ids) as other:
            brokers.add(2, other)
            request = asyncio.ensure_future(brokers.allocate())
            await asyncio.sleep(0.1)
            assert not request.done()
            brokers.elect(2)
            assert await request == 1000
            await brokers.network.close()

    run(work())


def test_a_request_follows_the_controller_to_another_broker() -> None:
    """The old one is away or has resigned: the request is sent again to the new one."""

    async def work() -> None:
        brokers = _Brokers()

        def resigned(header: RequestHeader, request: Message) -> Message:
            return AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)

        async with fake_broker(resigned) as old, fake_broker(ids) as new:
            brokers.add(2, old)
            brokers.add(3, new)
            for unable in (2, 4, 1):
                brokers.elect(unable)
                brokers.local_error = KafkaError(ErrorCode.NOT_CONTROLLER, "resigned")
                request = asyncio.ensure_future(brokers.allocate())
                attempts = {2: old.requests, 1: brokers.local_requests}.get(unable)
                while attempts is not None and len(attempts) < 2:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.01)
                assert not request.done()
                brokers.elect(3)
                assert await request == 1000
            await brokers.network.close()

    run(work())


def test_a_request_does_not_wait_for_a_silent_controller_that_was_replaced() -> None:
    """It is paused or cut off, and its connection stays open."""

    async def work() -> None:
        brokers = _Brokers()
        async with fake_broker(lambda header, request: None) as old, fake_broker(ids) as new:
            brokers.add(2, old)
            brokers.add(3, new)
            brokers.elect(2)
            request = asyncio.ensure_future(brokers.allocate())
            while not old.requests:
                await asyncio.sleep(0.01)
            brokers.elect(3)
            async with asyncio.timeout(60):
                assert await request == 1000
            await brokers.network.close()

    run(work())
