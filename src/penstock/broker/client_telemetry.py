"""Metrics that clients push (KIP-714): who is asked for which, how often, and who gets them.

Subscriptions are the settings of `client-metrics` resources. A client is asked for what all
subscriptions that match it name together, at the shortest of their intervals. What it pushes goes
to a `TelemetryReceiver`. Kafka serves this only with a plugin that receives; here there always is
one, which keeps the latest of each client, so it is always served. Without subscriptions a client
is asked for nothing and pushes nothing.
"""

import base64
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from uuid import UUID

from crc32c import crc32c

from penstock.broker.config.client_metrics_config import CLIENT_METRICS_SETTINGS
from penstock.broker.request import Request
from penstock.controller.image import ClusterImage
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.push_telemetry import PushTelemetryRequest
from penstock.records.compress import Compression

DEFAULT_INTERVAL_MS = 300_000
COMPRESSION_TYPES = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
"""What clients may compress with, the best first."""

_ALL_METRICS = "*"
_MAX_INSTANCES = 16_384
_RESERVED_IDS = (ZERO_UUID, UUID(int=1))
_NEVER = -(1 << 62)


class Push(NamedTuple):
    """What a client told: OpenTelemetry's MetricsData, unpacked but not parsed."""

    client_instance_id: UUID
    client: Mapping[str, str]
    """Who it is, by the names that a subscription can match: `client_id` and so on."""
    metrics: bytes
    received_ms: int
    terminating: bool


class TelemetryReceiver(Protocol):
    """Who gets what clients push. An exception is the client's INVALID_RECORD."""

    def export(self, push: Push) -> None: ...


class LatestPushes:
    """Keeps the last push of each client, of so many clients and bytes at most."""

    def __init__(self, max_clients: int = 1000, max_bytes: int = 8 << 20) -> None:
        self.pushes: OrderedDict[UUID, Push] = OrderedDict()
        """The one that pushed last is at the end."""
        self._max_clients = max_clients
        self._max_bytes = max_bytes
        self._bytes = 0

    def export(self, push: Push) -> None:
        known = self.pushes.pop(push.client_instance_id, None)
        if known is not None:
            self._bytes -= len(known.metrics)
        self.pushes[push.client_instance_id] = push
        self._bytes += len(push.metrics)
        while len(self.pushes) > self._max_clients or self._bytes > self._max_bytes:
            self._bytes -= len(self.pushes.popitem(last=False)[1].metrics)


@dataclass(slots=True)
class Instance:
    """One client, what it is asked for, and when it was heard of."""

    client: Mapping[str, str]
    version: int
    metrics: list[str]
    push_interval_ms: int
    subscription_id: int
    last_get_ms: int = _NEVER
    last_push_ms: int = _NEVER
    may_push_early: bool = False
    """The first push after a subscription may come early: clients spread them."""
    last_error: ErrorCode = ErrorCode.NONE
    terminating: bool = False

    def may_get(self, now_ms: int) -> bool:
        if self.last_error not in _MAY_ASK_AGAIN:
            last_ms = max(self.last_get_ms, self.last_push_ms)
            if now_ms - last_ms < self.push_interval_ms:
                return False
        self.last_get_ms = now_ms
        self.may_push_early = True
        return True

    def may_push(self, now_ms: int) -> bool:
        if not self.may_push_early and now_ms - self.last_push_ms < self.push_interval_ms:
            return False
        self.may_push_early = False
        self.last_push_ms = now_ms
        return True


_MAY_ASK_AGAIN = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


class _Subscription(NamedTuple):
    metrics: list[str]
    interval_ms: int
    patterns: list[tuple[str, re.Pattern[str]]]

    def matches(self, client: Mapping[str, str]) -> bool:
        return all(pattern.fullmatch(client.get(name, "")) for name, pattern in self.patterns)


@dataclass(slots=True)
class ClientTelemetry:
    """Answers both APIs; `new_id` draws ids for clients that have none yet."""

    image: ClusterImage
    max_bytes: int
    """`telemetry.max.bytes`: of a push, as it is sent."""
    new_id: Callable[[], UUID]
    receiver: TelemetryReceiver = field(default_factory=LatestPushes)
    _version: int = 0
    _read_version: int = -1
    _subscriptions: list[_Subscription] = field(default_factory=list)
    _instances: OrderedDict[UUID, Instance] = field(default_factory=OrderedDict)

    @property
    def is_wanted(self) -> bool:
        """Whether there is a subscription at all."""
        return bool(self._read())

    def subscriptions_changed(self) -> None:
        """Clients that ask or push from now on are looked at anew."""
        self._version += 1

    def subscribe(
        self, instance_id: UUID, client: Mapping[str, str], now_ms: int
    ) -> tuple[UUID, Instance]:
        """What a client is asked for, and its id; THROTTLING where it asks too often."""
        if instance_id == ZERO_UUID:
            instance_id = self._draw_id()
        instance = self._instance(instance_id, client)
        if not instance.may_get(now_ms):
            raise _throttled(instance)
        instance.last_error = ErrorCode.NONE
        return instance_id, instance

    def check_push(
        self, body: PushTelemetryRequest, client: Mapping[str, str], now_ms: int
    ) -> Instance:
        """The client that pushes; KafkaError where it may not."""
        if body.client_instance_id in _RESERVED_IDS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "a push needs the client instance id that GetTelemetrySubscriptions gave",
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

    def _check(self, body: PushTelemetryRequest, instance: Instance, now_ms: int) -> None:
        if instance.terminating:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "the client said before that it pushed for the last time"
            )
        if not instance.may_push(now_ms) and not body.terminating:
            raise _throttled(instance)
        if body.subscription_id != instance.subscription_id:
            raise KafkaError(
                ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
                "the subscriptions have changed: ask with GetTelemetrySubscriptions again",
            )
        if body.compression_type not in (Compression.NONE, *COMPRESSION_TYPES):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"compression type {body.compression_type} is not known",
            )
        if len(body.metrics) > self.max_bytes:
            raise KafkaError(
                ErrorCode.TELEMETRY_TOO_LARGE,
                f"{len(body.metrics)} bytes are more than telemetry.max.bytes={self.max_bytes}",
            )

    def _draw_id(self) -> UUID:
        while True:
            drawn = self.new_id()
            if drawn not in self._instances and drawn not in _RESERVED_IDS:
                return drawn

    def _instance(self, instance_id: UUID, client: Mapping[str, str]) -> Instance:
        known = self._instances.get(instance_id)
        if known is None or known.version < self._version:
            # One whose subscriptions have changed starts afresh, and may ask at once.
            known = self._instances[instance_id] = self._new_instance(instance_id, client)
        self._instances.move_to_end(instance_id)
        if len(self._instances) > _MAX_INSTANCES:
            self._instances.popitem(last=False)
        return known

    def _new_instance(self, instance_id: UUID, client: Mapping[str, str]) -> Instance:
        client = {"client_instance_id": uuid_text(instance_id), **client}
        matching = [each for each in self._read() if each.matches(client)]
        metrics = sorted({metric for each in matching for metric in each.metrics})
        if _ALL_METRICS in metrics:
            metrics = [_ALL_METRICS]
        interval_ms = min((DEFAULT_INTERVAL_MS, *(each.interval_ms for each in matching)))
        subscription_id = crc32c(f"{metrics}{interval_ms}".encode()) ^ instance_id.int
        return Instance(
            client,
            self._version,
            metrics,
            interval_ms,
            ((subscription_id + (1 << 31)) & 0xFFFF_FFFF) - (1 << 31),
        )

    def _read(self) -> list[_Subscription]:
        if self._read_version != self._version:
            self._read_version = self._version
            self._subscriptions = [
                _subscription(record.values)
                for key, record in self.image.configs.items()
                if key.entity[0][0] == "client-metrics"
            ]
        return self._subscriptions


def _subscription(values: Mapping[str, str]) -> _Subscription:
    def items(name: str) -> list[str]:
        value = CLIENT_METRICS_SETTINGS[name].parse(values.get(name, ""))
        return value if isinstance(value, list) else []

    interval = CLIENT_METRICS_SETTINGS["interval.ms"].parse(
        values.get("interval.ms", str(DEFAULT_INTERVAL_MS))
    )
    pairs = (item.partition("=") for item in items("match"))
    return _Subscription(
        items("metrics"),
        interval if isinstance(interval, int) else DEFAULT_INTERVAL_MS,
        [(name.strip(), re.compile(pattern.strip())) for name, _, pattern in pairs],
    )


def _throttled(instance: Instance) -> KafkaError:
    return KafkaError(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        f"the client is asked once in {instance.push_interval_ms} ms, and this came sooner",
    )


def client_of(request: Request) -> dict[str, str]:
    """What subscriptions can match a client by, beside its instance id."""
    session = request.session
    return {
        "client_id": request.client_id,
        "client_software_name": session.client_software_name,
        "client_software_version": session.client_software_version,
        "client_source_address": session.host,
        "client_source_port": session.connection_id.rpartition(":")[2],
    }


def uuid_text(value: UUID) -> str:
    """An id as Kafka writes it."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
