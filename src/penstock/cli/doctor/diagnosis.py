"""Runs the steps of `penstock doctor` in order, up to the first failure.

`probes.py` does the network I/O, `checks.py` judges its results.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import uuid4

from penstock.cli.doctor.checks import (
    Address,
    Problem,
    Service,
    Status,
    Success,
    check_certificate,
    check_clock,
    check_metadata,
    check_topic,
    check_versions,
    explain_advertised,
    explain_missing_login,
    explain_other_service,
    parse_addresses,
)
from penstock.cli.doctor.probes import (
    connect,
    identify,
    linked,
    reachable,
    resolve,
    tls_session,
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
from penstock.core.errors import ErrorCode, KafkaError, nested_text
from penstock.core.ids import TopicPartition
from penstock.core.internal_topics import GROUP_METADATA_TOPIC
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


class StepResult(NamedTuple):
    """The result of a step."""

    step: str
    status: Status
    text: str
    milliseconds: float
    remedy: str | None = None
    code: str | None = None
    details: Mapping[str, object] = {}


class Diagnosis:
    """Runs the steps and reports the result of each as soon as it is known.

    `options` are the keyword arguments of a client.
    """

    def __init__(
        self,
        address: str,
        options: Mapping[str, Any],
        report: Callable[[StepResult], None],
        *,
        topic: str | None,
        read_only: bool,
    ) -> None:
        self._address = address
        self._options = {**options, "bootstrap_servers": address}
        self._report = report
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
        """The broker's timestamp of the record; None if the topic has create times."""

    async def run(self) -> bool:
        """Returns whether no step failed."""
        steps: list[tuple[str, Callable[[], Awaitable[Success | None]]]] = [
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
                if not await self._run_step(name, step):
                    break
        return not self._has_failed

    async def _run_step(self, name: str, step: Callable[[], Awaitable[Success | None]]) -> bool:
        started = time.perf_counter()
        try:
            success = await step()
        except Problem as failure:
            problem = failure
        except KafkaError as error:
            problem = _problem_of(error)
        else:
            if success is not None:
                took_ms = (time.perf_counter() - started) * 1000
                remedy = "; ".join(success.warnings) or None
                self._report(
                    StepResult(
                        name, success.status, success.text, took_ms, remedy, None, success.details
                    )
                )
            return True
        took_ms = (time.perf_counter() - started) * 1000
        self._has_failed = True
        self._report(
            StepResult(
                name, Status.FAILED, problem.cause, took_ms, problem.remedy or None, problem.code
            )
        )
        return False

    # --- connection

    async def _check_address(self) -> Success:
        self._addresses = parse_addresses(self._address)
        text = ",".join(map(str, self._addresses))
        self._options["bootstrap_servers"] = text
        self._settings = settings = resolve_settings(
            CommonOptions, _select_options(CommonOptions, self._options)
        )
        return Success(f"{text}, security.protocol={settings['security_protocol']}")

    @property
    def _first(self) -> Address:
        return self._addresses[0]

    @property
    def _has_tls(self) -> bool:
        return self._settings["security_protocol"].endswith("SSL")

    @property
    def _timeout_s(self) -> float:
        return self._settings["socket_connection_setup_timeout_ms"] / 1000

    async def _check_name(self) -> Success:
        texts = []
        for host, port in self._addresses:
            addresses = await resolve(host, port)
            texts.append(host if addresses == [host] else f"{host} is {_list(addresses)}")
        return Success("; ".join(texts))

    async def _check_connection(self) -> Success:
        reached = [await connect(address, self._timeout_s) for address in self._addresses]
        return Success(f"connected to {_list(reached)}")

    async def _check_tls(self) -> Success | None:
        if not self._has_tls:
            return None
        address, settings = self._first, self._settings
        context = tls_context(settings)
        assert context is not None
        name = server_hostname(address.host)
        try:
            session = await tls_session(address, context, name, self._timeout_s)
        except ssl.SSLCertVerificationError as error:
            raise _problem_of(handshake_error(error, str(address))) from None
        except OSError as error:
            raise await self._explain_tls_failure(error) from None
        certificate, version, cipher = session
        return check_certificate(certificate, version, cipher, datetime.now(UTC))

    async def _explain_tls_failure(self, error: OSError) -> Problem:
        address, protocol = self._first, self._settings["security_protocol"]
        if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
            return _problem_of(handshake_error(error, str(address)))
        if await self._is_plain_kafka():
            return explain_other_service(address, protocol, Service.KAFKA, b"", "")
        service, greeting = await identify(address)
        reason = f"no TLS ({getattr(error, 'reason', None) or str(error) or 'no response'})"
        if service is Service.TLS:
            service = Service.SILENT
        return explain_other_service(address, protocol, service, greeting, reason)

    async def _is_plain_kafka(self) -> bool:
        try:
            async with linked(self._first, self._settings, logs_in=False, tls=False):
                return True
        except KafkaError:
            return False

    async def _check_versions(self) -> Success:
        address, settings = self._first, self._settings
        try:
            async with linked(address, settings, logs_in=False, tls=self._has_tls) as link:
                return check_versions(address, link.connection.api_versions)
        except KafkaError as error:
            if is_fatal(error) or isinstance(error, ConfigError):
                raise
            service, greeting = (Service.SILENT, b"") if self._has_tls else await identify(address)
            raise explain_other_service(
                address, settings["security_protocol"], service, greeting, nested_text(error)
            ) from None

    async def _check_login(self) -> Success:
        address, settings = self._first, self._settings
        if settings["security_protocol"].startswith("SASL_"):
            make = login_factory(settings)
            assert make is not None
            login = make(address.host)
            async with linked(address, settings, logs_in=True, tls=self._has_tls):
                return Success(f"user {login.user} with {login.mechanism}")
        async with linked(address, settings, logs_in=False, tls=self._has_tls) as link:
            version = link.connection.api_versions.newest(ApiKey.SASL_HANDSHAKE)
            if version is not None:
                # A listener with SASL responds with its mechanisms, any other with an error.
                request = SaslHandshakeRequest(mechanism="?")
                timeout_ms = settings["request_timeout_ms"]
                try:
                    response = await link.send(request, version, SaslHandshakeResponse, timeout_ms)
                except KafkaError:
                    return Success("none seems to be required")
                if response.mechanisms:
                    raise explain_missing_login(
                        address, settings["security_protocol"], response.mechanisms
                    )
        return Success("none is required")

    # --- cluster

    @asynccontextmanager
    async def _network(self) -> AsyncIterator[NetworkClient]:
        network = create_network_client(self._settings, clock=SystemClock())
        try:
            yield network
        finally:
            await network.close()

    async def _check_metadata(self) -> Success:
        async with self._network() as network:
            self._metadata = await _fetch_metadata(network, -1, None)
        return check_metadata(self._metadata)

    async def _check_advertised(self) -> Success:
        async with self._network() as network:
            for broker in self._metadata.brokers:
                advertised = Address(broker.host, broker.port)
                try:
                    await reachable(advertised, self._timeout_s)
                    network.add_node(Node(broker.node_id, broker.host, broker.port))
                    metadata = await _fetch_metadata(network, broker.node_id, [])
                except Problem as problem:
                    raise explain_advertised(
                        broker.node_id, advertised, self._first, problem
                    ) from None
                except KafkaError as error:
                    failure = Problem(nested_text(error), "see the message", error.code.name)
                    raise explain_advertised(
                        broker.node_id, advertised, self._first, failure
                    ) from None
                if metadata.cluster_id != self._metadata.cluster_id:
                    raise Problem(
                        f"{advertised}, which broker {broker.node_id} advertises, belongs to "
                        f"another cluster, {metadata.cluster_id}",
                        "correct advertised.listeners of that broker, or the DNS entry",
                        "ADVERTISED_LISTENER",
                    )
        brokers = sorted(self._metadata.brokers, key=lambda broker: broker.node_id)
        return Success(
            "reached "
            + _list(
                [f"broker {broker.node_id} at {broker.host}:{broker.port}" for broker in brokers]
            )
        )

    # --- produce and fetch

    def _admin(self) -> Admin:
        return Admin(**_select_options(AdminOptions, self._options))

    async def _check_topic(self) -> Success:
        if self._topic is None:
            if self._read_only:
                return Success("no topic is given, and --read-only creates none", is_skipped=True)
            return await self._create_topic()
        async with self._network() as network:
            metadata = await _fetch_metadata(network, -1, [self._topic])
        return check_topic(self._topic, metadata.topics[0], await self._min_isr(self._topic))

    async def _create_topic(self) -> Success:
        from penstock.client.admin.model_topics import NewTopic

        name = f"penstock-doctor-{uuid4().hex[:12]}"
        admin = await self._stack.enter_async_context(self._admin())
        # The broker's timestamp allows comparing the clocks.
        new = NewTopic(name, 1, configs={"message.timestamp.type": "LogAppendTime"})
        try:
            await admin.create_topics([new])
        except KafkaError as error:
            raise Problem(
                f"no temporary topic can be created: {nested_text(error)}",
                "name a topic with --topic, or write nothing with --read-only",
                error.code.name,
            ) from None
        self._topic = name
        self._stack.push_async_callback(self._delete_topic, admin, name)
        async with self._network() as network:
            deadline_ms = network.clock.monotonic_ms() + self._settings["default_api_timeout_ms"]
            await network.wait_for_topics([name], deadline_ms)
        min_isr = await self._min_isr(name)
        async with self._network() as network:
            metadata = await _fetch_metadata(network, -1, [name])
        check_topic(name, metadata.topics[0], min_isr)
        return Success(f"{name}, which is deleted at the end")

    async def _delete_topic(self, admin: Admin, name: str) -> None:
        async def delete() -> Success:
            await admin.delete_topics([name])
            return Success(f"{name} is deleted")

        await self._run_step("clean up", delete)

    async def _min_isr(self, topic: str) -> int | None:
        """Returns min.insync.replicas of a topic; None if it cannot be read."""
        from penstock.client.admin.model_configs import ConfigResource
        from penstock.protocol.enums import ConfigResourceType

        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        try:
            async with self._admin() as admin:
                configs = (await admin.describe_configs([resource]))[resource]
        except KafkaError:
            return None
        value = configs["min.insync.replicas"].value if "min.insync.replicas" in configs else None
        return None if value is None else int(value)

    async def _check_produce(self) -> Success:
        if self._read_only or self._topic is None:
            return Success("not tried because of --read-only", is_skipped=True)
        from penstock.client.aio.producer import Producer

        # One attempt, so that its error is reported instead of a timeout after many retries.
        single_attempt = {"retries": 0, "enable_idempotence": False, "acks": "all", "linger_ms": 0}
        options = _select_options(ProducerOptions, {**self._options, **single_attempt})
        options["max_block_ms"] = self._settings["default_api_timeout_ms"]
        started_ms = SystemClock().now_ms()
        async with Producer(**options) as producer:
            future = await producer.send(
                self._topic, _VALUE, partition=0, headers={_GROUP: b""}, timestamp=started_ms
            )
            metadata = await future
        self._sent_ms = (started_ms, SystemClock().now_ms())
        self._written = TopicPartition(metadata.topic, metadata.partition)
        self._offset = metadata.offset
        return Success(f"a record is in {self._written} at offset {metadata.offset}")

    async def _check_fetch(self) -> Success:
        if self._topic is None:
            return Success("there is no topic to read", is_skipped=True)
        from penstock.client.aio.consumer import Consumer

        partition = self._written or TopicPartition(self._topic, 0)
        async with Consumer(**_select_options(ConsumerOptions, self._options)) as consumer:
            if self._written is None:
                low = (await consumer.beginning_offsets([partition]))[partition]
                high = (await consumer.end_offsets([partition]))[partition]
                if low >= high:
                    return Success(f"{partition} can be read; it is empty")
                self._offset = high - 1
            consumer.assign([partition])
            consumer.seek(partition, self._offset)
            timeout_s = self._settings["default_api_timeout_ms"] / 1000
            records = await consumer.poll(timeout_s, 1)
        if not records:
            if self._written is None:
                return Success(f"{partition} can be read; offset {self._offset} has no record")
            raise Problem(
                f"the record at offset {self._offset} of {partition} did not come back within "
                f"{timeout_s:g} s",
                "lagging replicas keep records from consumers: see penstock topic describe",
            )
        record = records[0]
        if self._written is not None and (record.offset, record.value) != (self._offset, _VALUE):
            raise Problem(
                f"offset {self._offset} of {partition} has a record that was not written here",
                "the same address leads to different clusters: compare the DNS entries",
            )
        if self._written is not None and record.timestamp_type == 1:
            self._stamp_ms = record.timestamp
        return Success(f"the record at offset {record.offset} of {partition}")

    async def _check_clock(self) -> Success:
        if self._stamp_ms is None:
            return Success("no timestamp of the broker is available", is_skipped=True)
        return check_clock(self._stamp_ms, *self._sent_ms)

    async def _check_group(self) -> Success:
        exists = any(topic.name == GROUP_METADATA_TOPIC for topic in self._metadata.topics)
        if self._read_only and not exists:
            return Success(f"a request would create {GROUP_METADATA_TOPIC}", is_skipped=True)
        async with self._network() as network:
            deadline_ms = network.clock.monotonic_ms() + self._settings["default_api_timeout_ms"]
            try:
                node = await Coordinators(network).find(CoordinatorKind.GROUP, _GROUP, deadline_ms)
            except KafkaError as error:
                raise _coordinator_problem(error) from None
        return Success(f"broker {node} coordinates group {_GROUP}")


def _coordinator_problem(error: KafkaError) -> Problem:
    if error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
        remedy = (
            "use a group that this user may describe, or grant it: penstock acl add "
            f"--allow-principal User:NAME --group {_GROUP} --operation Describe"
        )
        return Problem(nested_text(error), remedy, error.code.name)
    return Problem(
        nested_text(error),
        f"check {GROUP_METADATA_TOPIC}: it needs as many brokers as "
        "offsets.topic.replication.factor, and a leader for every partition",
        error.code.name,
    )


async def _fetch_metadata(
    network: NetworkClient, node_id: int, topics: list[str] | None
) -> MetadataResponse:
    def make(version: int) -> MetadataRequest:
        requested = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        if version == 0 and requested is None:
            requested = []
        return MetadataRequest(topics=requested, allow_auto_topic_creation=version < 4)

    return await network.request_metadata(node_id, make)


def _problem_of(error: KafkaError) -> Problem:
    cause = f"{error.subject}: {error.cause}" if error.subject else error.cause
    return Problem(cause, error.remedy, error.code.name)


def _select_options(kind: Hashable, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of the options that a kind of client has."""
    names = settings_of(kind)
    return {name: value for name, value in options.items() if name in names}


def _list(names: list[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def run_diagnosis(diagnosis: Diagnosis) -> bool:
    return asyncio.run(diagnosis.run())
