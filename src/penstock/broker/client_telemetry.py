"""Client telemetry (KIP-714): metrics subscriptions, and the metrics that clients push.

Subscriptions are the settings of `client-metrics` resources. A client pushes the metrics of all
subscriptions that match it, at the shortest of their intervals; without a subscription it pushes
nothing. Pushed metrics go to a `TelemetryReceiver`. Kafka needs a plugin for that; Penstock always
has a receiver, which keeps the latest push of each client.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from uuid import UUID

from crc32c import crc32c

from penstock.broker.config.client_metrics_config import CLIENT_METRICS_SETTINGS
from penstock.broker.coordinator.topic_patterns import matcher
from penstock.broker.request import Request
from penstock.controller.image import ClusterImage
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.push_telemetry import PushTelemetryRequest
from penstock.records.compress import Compression
from penstock.storage.checkpoint.checkpoint_files import uuid_text

DEFAULT_INTERVAL_MS = 300_000
COMPRESSION_TYPES = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
"""The compression types that clients may use, the preferred one first."""

_ALL_METRICS = "*"
_MAX_INSTANCES = 16_384
_RESERVED_IDS = (ZERO_UUID, UUID(int=1))
_NEVER = -(1 << 62)


class Push(NamedTuple):
    """Metrics of one client: OpenTelemetry's MetricsData, decompressed but not parsed."""

    client_instance_id: UUID
    client: Mapping[str, str]
    """The properties that subscriptions can match: `client_id`, `client_software_name`…"""
    metrics: bytes
    received_ms: int
    terminating: bool


class TelemetryReceiver(Protocol):
    """Receives pushed metrics. An exception makes the response INVALID_RECORD."""

    def export(self, push: Push) -> None: ...


class LatestPushes:
    """The last push of each client, limited to a number of clients and of bytes."""

    def __init__(self, max_clients: int = 1000, max_bytes: int = 8 << 20) -> None:
        self.pushes: OrderedDict[UUID, Push] = OrderedDict()
        """By client instance id, the most recent push at the end."""
        self._max_clients = max_clients
        self._max_bytes = max_bytes
        self._bytes = 0

    def export(self, push: Push) -> None:
        previous = self.pushes.pop(push.client_instance_id, None)
        if previous is not None:
            self._bytes -= len(previous.metrics)
        self.pushes[push.client_instance_id] = push
        self._bytes += len(push.metrics)
        while len(self.pushes) > self._max_clients or self._bytes > self._max_bytes:
            self._bytes -= len(self.pushes.popitem(last=False)[1].metrics)


@dataclass(slots=True)
class ClientInstance:
    """A client: its subscription, and the times of its requests."""

    client: Mapping[str, str]
    version: int
    metrics: list[str]
    push_interval_ms: int
    subscription_id: int
    last_get_ms: int = _NEVER
    last_push_ms: int = _NEVER
    may_push_early: bool = False
    """The first push after a subscription may be early: clients spread their first pushes."""
    last_error: ErrorCode = ErrorCode.NONE
    terminating: bool = False

    def try_get(self, now_ms: int) -> bool:
        """Records a request for the subscription; returns False if it is too early."""
        if self.last_error not in _RETRY_AT_ONCE:
            last_ms = max(self.last_get_ms, self.last_push_ms)
            if now_ms - last_ms < self.push_interval_ms:
                return False
        self.last_get_ms = now_ms
        self.may_push_early = True
        return True

    def try_push(self, now_ms: int) -> bool:
        """Records a push; returns False if it is too early."""
        if not self.may_push_early and now_ms - self.last_push_ms < self.push_interval_ms:
            return False
        self.may_push_early = False
        self.last_push_ms = now_ms
        return True


_RETRY_AT_ONCE = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


class _Subscription(NamedTuple):
    metrics: list[str]
    interval_ms: int
    criteria: list[tuple[str, Callable[[str], bool]]]

    def matches(self, client: Mapping[str, str]) -> bool:
        return all(matches(client.get(name, "")) for name, matches in self.criteria)


@dataclass(slots=True)
class ClientTelemetry:
    """Subscriptions and pushes of all clients; `new_id` returns random client instance ids."""

    image: ClusterImage
    max_bytes: int
    """`telemetry.max.bytes`: the limit of a push, compressed."""
    new_id: Callable[[], UUID]
    receiver: TelemetryReceiver = field(default_factory=LatestPushes)
    _version: int = 0
    _read_version: int = -1
    _subscriptions: list[_Subscription] = field(default_factory=list)
    _instances: OrderedDict[UUID, ClientInstance] = field(default_factory=OrderedDict)

    @property
    def has_subscriptions(self) -> bool:
        return bool(self._read_subscriptions())

    def subscriptions_changed(self) -> None:
        """Matches clients with the new subscriptions from their next request on."""
        self._version += 1

    def subscribe(
        self, instance_id: UUID, client: Mapping[str, str], now_ms: int
    ) -> tuple[UUID, ClientInstance]:
        """Returns a client's id and subscription; THROTTLING_QUOTA_EXCEEDED if it is too early."""
        if instance_id == ZERO_UUID:
            instance_id = self._generate_id()
        instance = self._instance(instance_id, client)
        if not instance.try_get(now_ms):
            raise _throttling_error(instance)
        instance.last_error = ErrorCode.NONE
        return instance_id, instance

    def check_push(
        self, body: PushTelemetryRequest, client: Mapping[str, str], now_ms: int
    ) -> ClientInstance:
        """Returns the client that pushes; KafkaError if the push is not allowed."""
        if body.client_instance_id in _RESERVED_IDS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "a push needs the client instance id that GetTelemetrySubscriptions returned",
            )
        instance = self._instance(body.client_instance_id, client)
        try:
            self._check(body, instance, now_ms)
        except KafkaError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.terminating = body.terminating
        instance.last_error = ErrorCode.NONE
        return instance

    def _check(self, body: PushTelemetryRequest, instance: ClientInstance, now_ms: int) -> None:
        if instance.terminating:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "the client has already sent its terminating push"
            )
        if not instance.try_push(now_ms) and not body.terminating:
            raise _throttling_error(instance)
        if body.subscription_id != instance.subscription_id:
            raise KafkaError(
                ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
                "the subscriptions have changed",
                remedy="send GetTelemetrySubscriptions again",
            )
        if body.compression_type not in (Compression.NONE, *COMPRESSION_TYPES):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"compression type {body.compression_type} is unknown",
            )
        if len(body.metrics) > self.max_bytes:
            raise KafkaError(
                ErrorCode.TELEMETRY_TOO_LARGE,
                f"a push of {len(body.metrics)} bytes exceeds telemetry.max.bytes={self.max_bytes}",
            )

    def _generate_id(self) -> UUID:
        while True:
            instance_id = self.new_id()
            if instance_id not in self._instances and instance_id not in _RESERVED_IDS:
                return instance_id

    def _instance(self, instance_id: UUID, client: Mapping[str, str]) -> ClientInstance:
        instance = self._instances.get(instance_id)
        if instance is None or instance.version < self._version:
            # After a change of subscriptions a client starts over and may send requests at once.
            instance = self._instances[instance_id] = self._new_instance(instance_id, client)
        self._instances.move_to_end(instance_id)
        if len(self._instances) > _MAX_INSTANCES:
            self._instances.popitem(last=False)
        return instance

    def _new_instance(self, instance_id: UUID, client: Mapping[str, str]) -> ClientInstance:
        client = {"client_instance_id": uuid_text(instance_id), **client}
        matches = [entry for entry in self._read_subscriptions() if entry.matches(client)]
        metrics = sorted({metric for entry in matches for metric in entry.metrics})
        if _ALL_METRICS in metrics:
            metrics = [_ALL_METRICS]
        interval_ms = min((DEFAULT_INTERVAL_MS, *(entry.interval_ms for entry in matches)))
        subscription_id = crc32c(f"{metrics}{interval_ms}".encode()) ^ instance_id.int
        return ClientInstance(
            client,
            self._version,
            metrics,
            interval_ms,
            ((subscription_id + (1 << 31)) & 0xFFFF_FFFF) - (1 << 31),
        )

    def _read_subscriptions(self) -> list[_Subscription]:
        if self._read_version != self._version:
            self._read_version = self._version
            self._subscriptions = [
                _subscription(record.values)
                for key, record in self.image.configs.items()
                if key.entity[0][0] == "client-metrics"
            ]
        return self._subscriptions


def _subscription(values: Mapping[str, str]) -> _Subscription:
    def list_setting(name: str) -> list[str]:
        value = CLIENT_METRICS_SETTINGS[name].parse(values.get(name, ""))
        return value if isinstance(value, list) else []

    interval = CLIENT_METRICS_SETTINGS["interval.ms"].parse(
        values.get("interval.ms", str(DEFAULT_INTERVAL_MS))
    )
    pairs = (criterion.partition("=") for criterion in list_setting("match"))
    return _Subscription(
        list_setting("metrics"),
        interval if isinstance(interval, int) else DEFAULT_INTERVAL_MS,
        [(name.strip(), matcher(pattern.strip())) for name, _, pattern in pairs],
    )


def _throttling_error(instance: ClientInstance) -> KafkaError:
    return KafkaError(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        f"the request is too early: the interval of this client is {instance.push_interval_ms} ms",
    )


def client_properties(request: Request) -> dict[str, str]:
    """Returns the properties, beside the instance id, by which subscriptions match a client."""
    session = request.session
    return {
        "client_id": request.client_id,
        "client_software_name": session.client_software_name,
        "client_software_version": session.client_software_version,
        "client_source_address": session.host,
        "client_source_port": session.connection_id.rpartition(":")[2],
    }
