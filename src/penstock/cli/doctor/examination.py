"""The steps of `penstock doctor`, one after the other, up to the first thing that is wrong."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import uuid4

from penstock.cli.doctor.probes import (
    connect,
    identify,
    linked,
    reachable,
    resolve,
    tls_session,
)
from penstock.cli.doctor.steps import (
    Address,
    Found,
    Kind,
    Status,
    Trouble,
    check_certificate,
    check_clock,
    check_metadata,
    check_topic,
    check_versions,
    explain_advertised,
    explain_stranger,
    parse_addresses,
    wants_login,
)
from penstock.client.aio.admin import Admin
from penstock.client.coordinators import CoordinatorKind, Coordinators
from penstock.client.errors import ConfigError
from penstock.client.network import create_network_client
from penstock.client.security import login_factory, tls_context
from penstock.client.settings import (
    AdminOptions,
    CommonOptions,
    ConsumerOptions,
    ProducerOptions,
    settings_of,
)
from penstock.client.settings import resolve as resolve_settings
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.core.system_clock import SystemClock
from penstock.net.client.cluster import Node
from penstock.net.client.connection import is_fatal
from penstock.net.client.network_client import NetworkClient
from penstock.net.client.node_connection import server_hostname
from penstock.net.client.tls_errors import handshake_error
from penstock.protocol.api_key import ApiKey
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_GROUP: Final = "penstock-doctor"
_VALUE: Final = b"penstock doctor"
_OFFSETS_TOPIC: Final = "__consumer_offsets"


class Finding(NamedTuple):
    """How a step went."""

    step: str
    status: Status
    text: str
    milliseconds: float
    todo: str | None = None
    code: str | None = None
    details: Mapping[str, object] = {}


class Examination:
    """Walks through the steps and tells of each as soon as it is done.

    `options` are those of a client, `settings` the same, resolved.
    """

    def __init__(
        self,
        address: str,
        options: Mapping[str, Any],
        tell: Callable[[Finding], None],
        *,
        topic: str | None,
        read_only: bool,
    ) -> None:
        self._address = address
        self._options = {**options, "bootstrap_servers": address}
        self._tell = tell
        self._topic = topic
        self._read_only = read_only
        self._settings: CommonOptions = {}
        self._addresses: list[Address] = []
        self._metadata = MetadataResponse()
        self._stack = AsyncExitStack()
        self._has_failed = False
        self._written: TopicPartition | None = None
        self._offset = -1
        self._sent_ms = (0, 0)
        self._stamp_ms: int | None = None
        """The broker's own time of the record, where the topic has it."""

    async def run(self) -> bool:
        """Whether all is well."""
        steps: list[tuple[str, Callable[[], Awaitable[Found | None]]]] = [
            ("address", self._check_address),
            ("name", self._check_name),
            ("connection", self._check_connection),
            ("TLS", self._check_tls),
            ("versions", self._check_versions),
            ("login", self._check_login),
            ("metadata", self._check_metadata),
            ("advertised listeners", self._check_advertised),
            ("topic", self._check_topic),
            ("produce", self._check_produce),
            ("fetch", self._check_fetch),
            ("clock", self._check_clock),
            ("group coordinator", self._check_group),
        ]
        async with self._stack:
            for name, step in steps:
                if not await self._do(name, step):
                    break
        return not self._has_failed

    async def _do(self, name: str, step: Callable[[], Awaitable[Found | None]]) -> bool:
        started = time.perf_counter()
        try:
            found = await step()
        except Trouble as trouble:
            failed = (trouble.cause, trouble.todo, trouble.code)
        except KafkaError as error:
            wrong = _trouble(error)
            failed = (wrong.cause, wrong.todo, wrong.code)
        else:
            if found is not None:
                took = (time.perf_counter() - started) * 1000
                todo = "; ".join(found.warnings) or None
                self._tell(Finding(name, found.status, found.text, took, todo, None, found.details))
            return True
        took = (time.perf_counter() - started) * 1000
        self._has_failed = True
        cause, todo, code = failed
        self._tell(Finding(name, Status.FAILED, cause, took, todo or None, code))
        return False

    # Until there is a connection

    async def _check_address(self) -> Found:
        self._addresses = parse_addresses(self._address)
        text = ",".join(map(str, self._addresses))
        self._options["bootstrap_servers"] = text
        self._settings = settings = resolve_settings(
            CommonOptions, _fitting(CommonOptions, self._options)
        )
        return Found(f"{text}, security.protocol={settings['security_protocol']}")

    @property
    def _first(self) -> Address:
        return self._addresses[0]

    @property
    def _has_tls(self) -> bool:
        return self._settings["security_protocol"].endswith("SSL")

    @property
    def _timeout_s(self) -> float:
        return self._settings["socket_connection_setup_timeout_ms"] / 1000

    async def _check_name(self) -> Found:
        texts = []
        for each in self._addresses:
            found = await resolve(each.host, each.port)
            texts.append(each.host if found == [each.host] else f"{each.host} is {_list(found)}")
        return Found("; ".join(texts))

    async def _check_connection(self) -> Found:
        reached = [await connect(each, self._timeout_s) for each in self._addresses]
        return Found(f"connected to {_list(reached)}")

    async def _check_tls(self) -> Found | None:
        if not self._has_tls:
            return None
        address, settings = self._first, self._settings
        context = tls_context(settings)
        assert context is not None
        name = server_hostname(address.host)
        try:
            found = await tls_session(address, context, name, self._timeout_s)
        except ssl.SSLCertVerificationError as error:
            failure = handshake_error(error, str(address))
            raise _trouble(failure) from None
        except OSError as error:
            raise await self._no_tls(error) from None
        certificate, version, cipher = found
        return check_certificate(certificate, version, cipher, datetime.now(UTC))

    async def _no_tls(self, error: OSError) -> Trouble:
        address, protocol = self._first, self._settings["security_protocol"]
        if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
            return _trouble(handshake_error(error, str(address)))
        if await self._is_plain_kafka():
            return explain_stranger(address, protocol, Kind.KAFKA, b"", "")
        kind, said = await identify(address)
        why = f"no TLS ({getattr(error, 'reason', None) or str(error) or 'no answer'})"
        if kind is Kind.TLS:
            kind = Kind.SILENT
        return explain_stranger(address, protocol, kind, said, why)

    async def _is_plain_kafka(self) -> bool:
        try:
            async with linked(self._first, self._settings, logs_in=False, tls=False):
                return True
        except KafkaError:
            return False

    async def _check_versions(self) -> Found:
        address, settings = self._first, self._settings
        try:
            async with linked(address, settings, logs_in=False, tls=self._has_tls) as link:
                return check_versions(address, link.connection.api_versions)
        except KafkaError as error:
            if is_fatal(error) or isinstance(error, ConfigError):
                raise
            kind, said = (Kind.SILENT, b"") if self._has_tls else await identify(address)
            raise explain_stranger(
                address, settings["security_protocol"], kind, said, error.message
            ) from None

    async def _check_login(self) -> Found:
        address, settings = self._first, self._settings
        if settings["security_protocol"].startswith("SASL_"):
            make = login_factory(settings)
            assert make is not None
            login = make(address.host)
            async with linked(address, settings, logs_in=True, tls=self._has_tls):
                return Found(f"user {login.user} with {login.mechanism}")
        async with linked(address, settings, logs_in=False, tls=self._has_tls) as link:
            served = link.connection.api_versions
            version = served.newest(ApiKey.SASL_HANDSHAKE)
            if version is not None:
                # A listener that wants a login says which; any other that it wants none.
                ask = SaslHandshakeRequest(mechanism="?")
                timeout_ms = settings["request_timeout_ms"]
                try:
                    answer = await link.send(ask, version, SaslHandshakeResponse, timeout_ms)
                except KafkaError:
                    return Found("none is wanted, as far as can be seen")
                if answer.mechanisms:
                    raise wants_login(address, settings["security_protocol"], answer.mechanisms)
        return Found("none is wanted")

    # The cluster

    @asynccontextmanager
    async def _network(self) -> AsyncIterator[NetworkClient]:
        network = create_network_client(self._settings, clock=SystemClock())
        try:
            yield network
        finally:
            await network.close()

    async def _check_metadata(self) -> Found:
        async with self._network() as network:
            self._metadata = answer = await _ask_metadata(network, -1, None)
        return check_metadata(answer)

    async def _check_advertised(self) -> Found:
        async with self._network() as network:
            for broker in self._metadata.brokers:
                advertised = Address(broker.host, broker.port)
                try:
                    await reachable(advertised, self._timeout_s)
                    network.add_node(Node(broker.node_id, broker.host, broker.port))
                    answer = await _ask_metadata(network, broker.node_id, [])
                except Trouble as trouble:
                    raise explain_advertised(
                        broker.node_id, advertised, self._first, trouble
                    ) from None
                except KafkaError as error:
                    why = Trouble(error.message, "see the message", error.code.name)
                    raise explain_advertised(broker.node_id, advertised, self._first, why) from None
                if answer.cluster_id != self._metadata.cluster_id:
                    raise Trouble(
                        f"{advertised}, the address that broker {broker.node_id} gives, belongs to "
                        f"another cluster, {answer.cluster_id}",
                        "correct advertised.listeners of that broker, or the name's entry in DNS",
                        "ADVERTISED_LISTENER",
                    )
        brokers = sorted(self._metadata.brokers, key=lambda each: each.node_id)
        told = [f"broker {each.node_id} at {each.host}:{each.port}" for each in brokers]
        return Found("reached " + _list(told))

    # A record there and back

    def _admin(self) -> Admin:
        return Admin(**_fitting(AdminOptions, self._options))

    async def _check_topic(self) -> Found:
        if self._topic is None:
            if self._read_only:
                return Found("none is named, and --read-only creates none", is_skipped=True)
            return await self._create_topic()
        async with self._network() as network:
            answer = await _ask_metadata(network, -1, [self._topic])
        return check_topic(self._topic, answer.topics[0], await self._min_isr(self._topic))

    async def _create_topic(self) -> Found:
        from penstock.client.admin.model_topics import NewTopic

        name = f"penstock-doctor-{uuid4().hex[:12]}"
        admin = await self._stack.enter_async_context(self._admin())
        # With the broker's own time, so that clocks can be compared.
        new = NewTopic(name, 1, configs={"message.timestamp.type": "LogAppendTime"})
        try:
            await admin.create_topics([new])
        except KafkaError as error:
            raise Trouble(
                f"no topic can be created for a try: {error.message}",
                "name one with --topic, or leave records out with --read-only",
                error.code.name,
            ) from None
        self._topic = name
        self._stack.push_async_callback(self._delete_topic, admin, name)
        async with self._network() as network:
            deadline_ms = network.clock.monotonic_ms() + self._settings["default_api_timeout_ms"]
            await network.wait_for_topics([name], deadline_ms)
        min_isr = await self._min_isr(name)
        async with self._network() as network:
            answer = await _ask_metadata(network, -1, [name])
        check_topic(name, answer.topics[0], min_isr)
        return Found(f"{name}, to be deleted in the end")

    async def _delete_topic(self, admin: Admin, name: str) -> None:
        async def delete() -> Found:
            await admin.delete_topics([name])
            return Found(f"{name} is deleted")

        await self._do("clean up", delete)

    async def _min_isr(self, topic: str) -> int | None:
        """None where it cannot be asked for; producing tells then."""
        from penstock.client.admin.model_configs import ConfigResource, ConfigResourceType

        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        try:
            async with self._admin() as admin:
                configs = (await admin.describe_configs([resource]))[resource]
        except KafkaError:
            return None
        value = configs["min.insync.replicas"].value if "min.insync.replicas" in configs else None
        return None if value is None else int(value)

    async def _check_produce(self) -> Found:
        if self._read_only or self._topic is None:
            return Found("not tried, because of --read-only", is_skipped=True)
        from penstock.client.aio.producer import Producer

        # One attempt, so that the first reason is told and not the end of all retries.
        given = {"retries": 0, "enable_idempotence": False, "acks": "all", "linger_ms": 0}
        options = _fitting(ProducerOptions, {**self._options, **given})
        options["max_block_ms"] = self._settings["default_api_timeout_ms"]
        before = SystemClock().now_ms()
        async with Producer(**options) as producer:
            future = await producer.send(
                self._topic, _VALUE, partition=0, headers={_GROUP: b""}, timestamp=before
            )
            sent = await future
        self._sent_ms = (before, SystemClock().now_ms())
        self._written = TopicPartition(sent.topic, sent.partition)
        self._offset = sent.offset
        return Found(f"a record is in {sent.topic}-{sent.partition} at offset {sent.offset}")

    async def _check_fetch(self) -> Found:
        if self._topic is None:
            return Found("there is no topic to read", is_skipped=True)
        from penstock.client.aio.consumer import Consumer

        partition = self._written or TopicPartition(self._topic, 0)
        async with Consumer(**_fitting(ConsumerOptions, self._options)) as consumer:
            if self._written is None:
                low = (await consumer.beginning_offsets([partition]))[partition]
                high = (await consumer.end_offsets([partition]))[partition]
                if low >= high:
                    return Found(f"{partition} can be read; it is empty")
                self._offset = high - 1
            consumer.assign([partition])
            consumer.seek(partition, self._offset)
            timeout_s = self._settings["default_api_timeout_ms"] / 1000
            records = await consumer.poll(timeout_s, 1)
        if not records:
            if self._written is None:
                return Found(f"{partition} can be read; offset {self._offset} has no record")
            raise Trouble(
                f"the record at offset {self._offset} of {partition} did not come back within "
                f"{timeout_s:g} s",
                "replicas that lag keep records from readers: see penstock topic describe",
            )
        record = records[0]
        if self._written is not None and (record.offset, record.value) != (self._offset, _VALUE):
            raise Trouble(
                f"offset {self._offset} of {partition} has another record than was written",
                "clients reach different clusters under the same address: compare their DNS",
            )
        if self._written is not None and record.timestamp_type == 1:
            self._stamp_ms = record.timestamp
        return Found(f"the record at offset {record.offset} of {partition}")

    async def _check_clock(self) -> Found:
        if self._stamp_ms is None:
            return Found("no time of the broker's is in sight", is_skipped=True)
        return check_clock(self._stamp_ms, *self._sent_ms)

    async def _check_group(self) -> Found:
        known = any(each.name == _OFFSETS_TOPIC for each in self._metadata.topics)
        if self._read_only and not known:
            return Found(f"asking would create {_OFFSETS_TOPIC}", is_skipped=True)
        async with self._network() as network:
            deadline_ms = network.clock.monotonic_ms() + self._settings["default_api_timeout_ms"]
            try:
                node = await Coordinators(network).find(CoordinatorKind.GROUP, _GROUP, deadline_ms)
            except KafkaError as error:
                raise _group_trouble(error) from None
        return Found(f"broker {node} coordinates group {_GROUP}")


def _group_trouble(error: KafkaError) -> Trouble:
    if error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
        todo = (
            "groups of this user may be others; give it the right: penstock acl add "
            f"--allow-principal User:NAME --group {_GROUP} --operation Describe"
        )
        return Trouble(error.message, todo, error.code.name)
    return Trouble(
        error.message,
        f"look at {_OFFSETS_TOPIC}: it needs as many brokers as offsets.topic.replication.factor, "
        "and a leader for every partition",
        error.code.name,
    )


async def _ask_metadata(
    network: NetworkClient, node_id: int, topics: list[str] | None
) -> MetadataResponse:
    def make(version: int) -> MetadataRequest:
        named = None if topics is None else [MetadataRequestTopic(name=each) for each in topics]
        if version == 0 and named is None:
            named = []
        return MetadataRequest(topics=named, allow_auto_topic_creation=version < 4)

    return await network.request_metadata(node_id, make)


def _trouble(error: KafkaError) -> Trouble:
    cause, _, todo = error.message.partition(": ")
    return Trouble(cause, todo, error.code.name)


def _fitting(kind: Hashable, options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that a client has."""
    known = settings_of(kind)
    return {name: value for name, value in options.items() if name in known}


def _list(items: list[str]) -> str:
    return ", ".join(dict.fromkeys(items))


def run_examination(examination: Examination) -> bool:
    return asyncio.run(examination.run())
