"""`NetworkClient` with brokers that fail in every way: it recovers, or raises a clear error."""

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.client.coordinators import CoordinatorKind, Coordinators
from penstock.client.errors import (
    AuthorizationError,
    ConfigError,
    DisconnectError,
    IllegalStateError,
    KafkaTimeoutError,
    UnknownTopicError,
)
from penstock.client.network import create_network_client
from penstock.client.settings import AdminOptions, resolve
from penstock.core.errors import ErrorCode, UnsupportedVersionError
from penstock.core.system_clock import SystemClock
from penstock.net.client.cluster import Node
from penstock.net.client.network_client import NetworkClient
from penstock.net.client.settings import ConnectionSettings
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Message
from penstock.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.messages.header import RequestHeader
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.support.broker.fake_brokers import FakeBroker, fake_broker
from tests.support.broker.in_process import running_broker

CLOCK = SystemClock()


def soon(ms: int = 5_000) -> int:
    return CLOCK.monotonic_ms() + ms


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@asynccontextmanager
async def network(*addresses: str, **options: object) -> AsyncIterator[NetworkClient]:
    base = {"bootstrap_servers": addresses, "reconnect_backoff_ms": 1, "retry_backoff_ms": 1}
    client = create_network_client(
        resolve(AdminOptions, {**base, "reconnect_backoff_max_ms": 5, **options}), clock=CLOCK
    )
    await client.start()
    try:
        yield client
    finally:
        await client.close()


def metadata(
    *brokers: FakeBroker, leader: int = 0, epoch: int = 0, error: ErrorCode = ErrorCode.NONE
) -> MetadataResponse:
    """Returns a response with these brokers and a topic `t` of one partition."""
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=n, host="127.0.0.1", port=broker.port)
            for n, broker in enumerate(brokers)
        ],
        controller_id=0,
        topics=[
            MetadataResponseTopic(
                name="t",
                topic_id=UUID(int=1),
                error_code=error,
                partitions=[]
                if error
                else [MetadataResponsePartition(leader_id=leader, leader_epoch=epoch)],
            )
        ],
    )


def silence(header: RequestHeader, request: Message) -> None:
    return None


def groups(header: RequestHeader, request: Message) -> Message | None:
    """Responds to every request as ListGroups, with its filter as the error code."""
    assert isinstance(request, ListGroupsRequest)
    return ListGroupsResponse(error_code=int(request.states_filter[0]))


def test_a_real_broker_responds(tmp_path: Path) -> None:
    async def work(address: str) -> None:
        async with network(address) as net:
            cluster = await net.update_metadata()
            assert list(cluster.nodes) == [cluster.controller_id]
            assert net.version_of(-1, ApiKey.METADATA) == 13
            assert net.features_of(-1)["transaction.version"] == 2
            node = await Coordinators(net).find(CoordinatorKind.GROUP, "g", soon())
            assert node == cluster.controller_id

    with running_broker(tmp_path) as broker:
        run(work(broker.bootstrap_servers))


def test_requests_to_a_broker_keep_their_order() -> None:
    async def work() -> None:
        async with fake_broker(groups) as broker, network(broker.address) as net:
            sent = [
                await net.send(-1, ListGroupsRequest(states_filter=[str(n)]), ListGroupsResponse)
                for n in range(50)
            ]
            responses = await asyncio.gather(*sent)
            assert [response.error_code for response in responses] == list(range(50))
            assert broker.connections == 1

    run(work())


def test_a_lost_connection_fails_requests_in_flight_and_the_next_request_reconnects() -> None:
    async def work() -> None:
        async with fake_broker(groups) as broker, network(broker.address) as net:
            groups_request = ListGroupsRequest(states_filter=["7"])
            await net.request(-1, groups_request, ListGroupsResponse)
            broker._respond_with = silence
            waiting = await net.send(-1, groups_request, ListGroupsResponse)
            broker.hang_up()
            with pytest.raises(DisconnectError, match="closed the connection"):
                await waiting
            broker._respond_with = groups
            assert (await net.request(-1, groups_request, ListGroupsResponse)).error_code == 7
            assert broker.connections == 2

    run(work())


def test_the_connection_is_closed_when_a_broker_does_not_respond() -> None:
    """Nobody knows what a silent connection is good for."""

    async def work() -> None:
        async with fake_broker(silence) as broker, network(broker.address) as net:
            first = await net.send(-1, ListGroupsRequest(), ListGroupsResponse, timeout_ms=30)
            second = await net.send(-1, ListGroupsRequest(), ListGroupsResponse)
            with pytest.raises(
                KafkaTimeoutError, match="did not respond to ListGroups within 30 ms"
            ):
                await first
            with pytest.raises(KafkaTimeoutError):
                await second
            assert not net.is_ready(-1)

    run(work())


def test_the_error_of_a_refused_connection_has_the_address() -> None:
    """E6."""

    async def work() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            async with network(f"127.0.0.1:{port}") as net:
                with pytest.raises(DisconnectError, match=rf"{port}: check bootstrap_servers"):
                    await net.update_metadata()

    run(work())


def test_the_error_says_that_an_advertised_address_is_unreachable() -> None:
    """E6: the bootstrap server responds, but the address it advertises is unreachable."""

    async def work() -> None:
        def respond(header: RequestHeader, request: Message) -> Message:
            response = metadata(broker)
            response.brokers[0].port = 1
            return response

        async with fake_broker(respond) as broker, network(broker.address) as net:
            await net.wait_for_topics(["t"], soon())
            with pytest.raises(DisconnectError, match=r"check advertised\.listeners"):
                await net.request(0, MetadataRequest(), MetadataResponse)

    run(work())


def test_a_port_that_does_not_speak_kafka_is_recognised() -> None:
    """E6."""

    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        await reader.read()
        writer.close()

    async def work() -> None:
        server = await asyncio.start_server(hello, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            async with network(f"127.0.0.1:{port}") as net:
                with pytest.raises(DisconnectError, match="is not Kafka's protocol"):
                    await net.request(-1, MetadataRequest(), MetadataResponse)
            await asyncio.sleep(0.01)
        finally:
            server.close()
            await server.wait_closed()

    run(work())


def test_a_dead_bootstrap_server_is_skipped() -> None:
    async def work() -> None:
        def respond(header: RequestHeader, request: Message) -> Message:
            return metadata(broker)

        async with (
            fake_broker(respond) as broker,
            network("127.0.0.1:1", broker.address, "127.0.0.1:2") as net,
        ):
            assert list((await net.update_metadata()).nodes) == [0]

    run(work())


def test_the_bootstrap_servers_are_used_again_when_all_known_brokers_fail() -> None:
    """KIP-899: a cluster that was replaced behind its names."""

    async def work() -> None:
        def respond(header: RequestHeader, request: Message) -> Message:
            response = metadata(broker)
            if moved:
                response.brokers[0].port = 1
            return response

        moved = True
        async with fake_broker(respond) as broker, network(broker.address) as net:
            await net.update_metadata()
            assert net.metadata.cluster.nodes[0].port == 1
            moved = False
            await net.update_metadata()
            assert net.metadata.cluster.nodes[0].port == broker.port

    run(work())


def test_a_topic_that_is_created_late_is_waited_for() -> None:
    async def work() -> None:
        def respond(header: RequestHeader, request: Message) -> Message:
            missing = len(broker.requests) < 3
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if missing else ErrorCode.NONE
            return metadata(broker, error=error)

        async with fake_broker(respond) as broker, network(broker.address) as net:
            cluster = await net.wait_for_topics(["t"], soon())
            assert cluster.partition_count("t") == 1

    run(work())


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UnknownTopicError, "no topic t: create it first"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError, "needs an ACL"),
    ],
)
def test_the_error_of_a_missing_topic_has_its_name_and_a_remedy(
    error: ErrorCode, kind: type[Exception], message: str
) -> None:
    """E3, E5."""

    async def work() -> None:
        def respond(header: RequestHeader, request: Message) -> Message:
            return metadata(broker, error=error)

        async with fake_broker(respond) as broker, network(broker.address) as net:
            with pytest.raises(kind, match=message):
                await net.wait_for_topics(["t"], soon(60))

    run(work())


def test_a_missing_common_version_is_not_retried() -> None:
    """E4."""

    async def work() -> None:
        async with (
            fake_broker(groups, {ApiKey.METADATA: (0, 1)}) as broker,
            network(broker.address) as net,
        ):
            with pytest.raises(UnsupportedVersionError, match="does not support LIST_GROUPS"):
                await net.request_any(ListGroupsRequest(), ListGroupsResponse, deadline_ms=soon())
            assert broker.requests == []

    run(work())


def test_throttling_delays_the_next_request() -> None:
    """X4, KIP-219: the broker responds at once and expects the client to wait."""

    async def work() -> None:
        def respond(header: RequestHeader, request: Message) -> Message:
            return ListGroupsResponse(throttle_time_ms=0 if len(broker.requests) > 1 else 40)

        async with fake_broker(respond) as broker, network(broker.address) as net:
            await net.request(-1, ListGroupsRequest(), ListGroupsResponse)
            started = CLOCK.monotonic_ms()
            assert net.backoff_ms(-1, started) > 0
            assert not net.is_ready(-1)
            await net.request(-1, ListGroupsRequest(), ListGroupsResponse)
            assert CLOCK.monotonic_ms() - started >= 30

    run(work())


def test_a_coordinator_is_cached_until_it_is_forgotten() -> None:
    async def work() -> None:
        def respond(header: RequestHeader, request: Message) -> Message:
            assert isinstance(request, FindCoordinatorRequest)
            if len(broker.requests) == 1:
                coordinator = Coordinator(key="g", error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
            else:
                coordinator = Coordinator(key="g", node_id=4, host="127.0.0.1", port=broker.port)
            return FindCoordinatorResponse(coordinators=[coordinator])

        async with fake_broker(respond) as broker, network(broker.address) as net:
            coordinators = Coordinators(net)
            assert await coordinators.find(CoordinatorKind.GROUP, "g", soon()) == 4
            assert await coordinators.find(CoordinatorKind.GROUP, "g", soon()) == 4
            assert len(broker.requests) == 2
            await net.ready(4)
            coordinators.forget(CoordinatorKind.GROUP, "g", 5)
            assert coordinators.cached(CoordinatorKind.GROUP, "g") == 4
            coordinators.forget(CoordinatorKind.GROUP, "g", 4)
            assert coordinators.cached(CoordinatorKind.GROUP, "g") is None

    run(work())


def test_closing_an_idle_connection_causes_no_backoff() -> None:
    async def work() -> None:
        async with (
            fake_broker(groups) as broker,
            network(broker.address, connections_max_idle_ms=0) as net,
        ):
            groups_request = ListGroupsRequest(states_filter=["0"])
            await net.request(-1, groups_request, ListGroupsResponse)
            net._connections[-1].close_if_idle(CLOCK.monotonic_ms())
            assert not net.is_ready(-1)
            assert net.backoff_ms(-1, CLOCK.monotonic_ms()) == 0
            await net.request(-1, groups_request, ListGroupsResponse)

    run(work())


def test_without_metadata_settings_the_owner_provides_the_brokers() -> None:
    """The way a broker connects to other brokers."""

    async def work() -> None:
        async with fake_broker(groups) as first, fake_broker(groups) as second:
            net = NetworkClient(ConnectionSettings(), clock=CLOCK)
            await net.start()
            request = ListGroupsRequest(states_filter=["3"])
            with pytest.raises(DisconnectError, match="broker 7 is not in the cluster"):
                await net.request(7, request, ListGroupsResponse)
            for broker in (first, second):
                net.metadata.set_nodes({7: Node(7, "127.0.0.1", broker.port)})
                assert (await net.request(7, request, ListGroupsResponse)).error_code == 3
            assert [len(broker.requests) for broker in (first, second)] == [1, 1]
            with pytest.raises(IllegalStateError, match="no metadata settings"):
                await net.update_metadata()
            await net.close()

    run(work())


def test_a_closed_network_client_fails_waiting_and_new_requests() -> None:
    async def work() -> None:
        async with fake_broker(silence) as broker, network(broker.address) as net:
            waiting = await net.send(-1, ListGroupsRequest(), ListGroupsResponse)
            await net.close()
            with pytest.raises(IllegalStateError):
                await waiting
            with pytest.raises(IllegalStateError, match="closed"):
                await net.request(-1, ListGroupsRequest(), ListGroupsResponse)

    run(work())


@pytest.mark.parametrize("address", ["localhost", "localhost:", ":9092", "localhost:99999", "a:b"])
def test_an_invalid_address_is_rejected(address: str) -> None:
    async def work() -> None:
        with pytest.raises(ConfigError, match="must be host:port"):
            create_network_client(
                resolve(AdminOptions, {"bootstrap_servers": address}), clock=CLOCK
            )

    run(work())
