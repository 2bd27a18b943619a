"""Client quotas: limits by user, client id and address, and throttle times (X4)."""

from collections.abc import Callable, Mapping
from typing import Generic, TypeAlias, TypeVar

from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.quota_entities import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT_NAME,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Entity,
    canonical_ip,
    quota_values,
)
from penstock.security.quota_rate import SampledRate, TokenBucket

_MAX_CACHED = 10_000

Tag: TypeAlias = tuple[str, str]
"""User and client id that share a meter; empty if the quota does not depend on it."""

Meter = TypeVar("Meter")


class _Limits:
    """The quotas of one key, and the one that applies to a client.

    From the most specific to the least: user and client id, user and default client, user, default
    user and client id, default user and default client, default user, client id, default client.
    """

    __slots__ = ("_cache", "_limits")

    def __init__(self) -> None:
        self._limits: dict[tuple[str | None, str | None], float] = {}
        self._cache: dict[tuple[str, str], tuple[Tag, float] | None] = {}

    def __bool__(self) -> bool:
        return bool(self._limits)

    def put(self, user: str | None, client_id: str | None, limit: float | None) -> None:
        """Sets a quota, or removes it if the limit is None."""
        if limit is None:
            self._limits.pop((user, client_id), None)
        else:
            self._limits[user, client_id] = limit
        self._cache.clear()

    def find(self, user: str, client_id: str) -> tuple[Tag, float] | None:
        """Returns the tag and the limit of a client; None if it has no quota."""
        try:
            return self._cache[user, client_id]
        except KeyError:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            match = self._cache[user, client_id] = self._search(user, client_id)
            return match

    def _search(self, user: str, client_id: str) -> tuple[Tag, float] | None:
        levels: list[tuple[str | None, str | None, Tag]] = []
        for name in (user, DEFAULT_NAME):
            if client_id:  # quotas of client ids do not apply to a client without one
                levels.append((name, client_id, (user, client_id)))
                levels.append((name, DEFAULT_NAME, (user, client_id)))
            levels.append((name, None, (user, "")))
        if client_id:
            levels.append((None, client_id, ("", client_id)))
            levels.append((None, DEFAULT_NAME, ("", client_id)))
        for level_user, level_client, tag in levels:
            limit = self._limits.get((level_user, level_client))
            if limit is not None:
                return tag, limit
        return None


class _Meters(Generic[Meter]):
    """The meters by tag. Meters in their initial state are dropped.

    There are two generations: every `span_ms` the older one is dropped, with the meters that were
    not used in between.
    """

    __slots__ = ("_is_initial", "_make", "_older", "_recent", "_rotate_at", "_span_ms")

    def __init__(
        self,
        span_ms: int,
        make: Callable[[float, int], Meter],
        is_initial: Callable[[Meter, int], bool],
    ) -> None:
        self._span_ms = span_ms
        self._make = make
        self._is_initial = is_initial
        self._recent: dict[Tag, Meter] = {}
        self._older: dict[Tag, Meter] = {}
        self._rotate_at = 0

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def clear(self) -> None:
        self._recent = {}
        self._older = {}

    def get(self, tag: Tag, limit: float, now_ms: int) -> Meter:
        if now_ms >= self._rotate_at:
            self._rotate(now_ms)
        meter = self._recent.get(tag)
        if meter is None:
            meter = self._older.pop(tag, None)
            if meter is None:
                meter = self._make(limit, now_ms)
            self._recent[tag] = meter
        return meter

    def _rotate(self, now_ms: int) -> None:
        in_use = {tag: m for tag, m in self._older.items() if not self._is_initial(m, now_ms)}
        self._older = {**in_use, **self._recent}
        self._recent = {}
        self._rotate_at = now_ms + self._span_ms


def _is_initial_rate(_rate: SampledRate, _now_ms: int) -> bool:
    return True  # unused for as long as all windows, so all samples have expired


def _is_initial_bucket(bucket: TokenBucket, now_ms: int) -> bool:
    return bucket.tokens(now_ms) >= bucket.burst


class _RateQuota:
    """Quotas on amounts per second."""

    __slots__ = ("limits", "max_throttle_ms", "meters")

    def __init__(
        self, window_num: int, window_size_ms: int, max_throttle_ms: int | None = None
    ) -> None:
        def make(_limit: float, _now_ms: int) -> SampledRate:
            return SampledRate(window_num, window_size_ms)

        self.limits = _Limits()
        self.meters = _Meters(window_num * window_size_ms, make, _is_initial_rate)
        self.max_throttle_ms = max_throttle_ms

    def record(self, user: str, client_id: str, amount: float, now_ms: int) -> int:
        match = self.limits.find(user, client_id)
        if match is None:
            return 0
        tag, limit = match
        rate = self.meters.get(tag, limit, now_ms)
        rate.record(amount, now_ms)
        throttle_ms = rate.throttle_ms(limit, now_ms)
        if self.max_throttle_ms is not None:
            return min(throttle_ms, self.max_throttle_ms)
        return throttle_ms

    def unrecord(self, user: str, client_id: str, amount: float, now_ms: int) -> None:
        match = self.limits.find(user, client_id)
        if match is not None:
            self.meters.get(*match, now_ms).record(-amount, now_ms)


class MutationQuota:
    """The quota on created and deleted partitions, for one request.

    A strict quota refuses everything once it is exhausted. Otherwise nothing is refused, and the
    client is only throttled.
    """

    __slots__ = ("_bucket", "_recorded_ms", "_strict", "_throttle_ms")

    def __init__(self, bucket: TokenBucket | None, strict: bool) -> None:
        """Without a bucket there is no quota."""
        self._bucket = bucket
        self._strict = strict
        self._throttle_ms = 0
        self._recorded_ms = 0

    def record(self, partitions: float, now_ms: int) -> None:
        """Counts partitions; raises THROTTLING_QUOTA_EXCEEDED if a strict quota is exhausted."""
        bucket = self._bucket
        if bucket is None:
            return
        if not self._strict:
            bucket.take(partitions, now_ms)
        if bucket.tokens(now_ms) < 0:
            self._throttle_ms = bucket.throttle_ms(now_ms)
            self._recorded_ms = now_ms
            if self._strict:
                raise KafkaError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                    f"the quota {CONTROLLER_MUTATION_RATE} is exhausted;"
                    f" try again in {self._throttle_ms} ms",
                )
        elif self._strict:
            bucket.take(partitions, now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        """Returns the rest of the throttle time."""
        return max(0, self._throttle_ms - (now_ms - self._recorded_ms))


class ClientQuotas:
    """All quotas of the cluster, which `put` and `delete` maintain, and their usage.

    `enabled` is False while there are none. All times are monotonic milliseconds. The `record_…`
    methods return the throttle time; 0 means that the client is not throttled.
    """

    def __init__(
        self,
        window_num: int = 11,
        window_size_ms: int = 1000,
        controller_window_num: int = 11,
        controller_window_size_ms: int = 1000,
    ) -> None:
        """`quota.window.*` and `controller.quota.window.*`."""
        self.enabled = False
        self._window_ms = (window_num - 1) * window_size_ms
        self._produce = _RateQuota(window_num, window_size_ms)
        self._fetch = _RateQuota(window_num, window_size_ms)
        self._request = _RateQuota(window_num, window_size_ms, max_throttle_ms=window_size_ms)
        # The address takes the place of the user.
        self._connections = _RateQuota(window_num, window_size_ms, max_throttle_ms=window_size_ms)
        self._mutations = _Limits()

        def bucket(rate: float, now_ms: int) -> TokenBucket:
            return TokenBucket(rate, controller_window_num, controller_window_size_ms, now_ms)

        span_ms = controller_window_num * controller_window_size_ms
        self._buckets = _Meters(span_ms, bucket, _is_initial_bucket)
        self._client_limits = {
            PRODUCER_BYTE_RATE: self._produce.limits,
            CONSUMER_BYTE_RATE: self._fetch.limits,
            REQUEST_PERCENTAGE: self._request.limits,
            CONTROLLER_MUTATION_RATE: self._mutations,
        }
        self._ip_limits = {CONNECTION_CREATION_RATE: self._connections.limits}

    # --- quotas

    def put(self, entity: Entity, values: Mapping[str, str]) -> None:
        """Replaces the quotas of an entity by those among its configs."""
        names = dict(entity)
        quotas = quota_values(values)
        if "ips" in names:
            address = _canonical_or_text(names["ips"])
            self._set(self._ip_limits, address, None, quotas)
        elif names.keys() <= {"users", "clients"} and names:
            self._set(self._client_limits, names.get("users"), names.get("clients"), quotas)

    def delete(self, entity: Entity) -> None:
        """Removes the quotas of an entity."""
        self.put(entity, {})

    def _set(
        self,
        limits: Mapping[str, _Limits],
        user: str | None,
        client_id: str | None,
        quotas: Mapping[str, float],
    ) -> None:
        for key, limit in limits.items():
            limit.put(user, client_id, quotas.get(key))
        for quota in (self._produce, self._fetch, self._request, self._connections):
            if not quota.limits:
                quota.meters.clear()
        if not self._mutations:
            self._buckets.clear()
        everything = (*self._client_limits.values(), *self._ip_limits.values())
        self.enabled = any(everything)

    # --- usage

    def record_produce(self, user: str, client_id: str, size: int, now_ms: int) -> int:
        """Records that a client sent so many bytes of records."""
        return self._produce.record(user, client_id, size, now_ms) if self.enabled else 0

    def record_fetch(self, user: str, client_id: str, size: int, now_ms: int) -> int:
        """Records that a client is about to receive so many bytes.

        If it is throttled, it receives no records, and `unrecord_fetch` takes the bytes back.
        """
        return self._fetch.record(user, client_id, size, now_ms) if self.enabled else 0

    def unrecord_fetch(self, user: str, client_id: str, size: int, now_ms: int) -> None:
        """Takes bytes back that `record_fetch` counted and that are not sent."""
        if self.enabled:
            self._fetch.unrecord(user, client_id, size, now_ms)

    def max_fetch_bytes(self, user: str, client_id: str) -> float:
        """Returns how many bytes a client may receive at once within its quota; may be infinite."""
        match = self._fetch.limits.find(user, client_id) if self.enabled else None
        return float("inf") if match is None else match[1] * self._window_ms / 1000

    def record_request(self, user: str, client_id: str, seconds: float, now_ms: int) -> int:
        """Records the time that a request took."""
        return self._request.record(user, client_id, seconds * 100, now_ms) if self.enabled else 0

    def record_connection(self, address: str, now_ms: int) -> int:
        """Records a new connection. A throttled one does not count; it is closed afterwards."""
        if not self.enabled:
            return 0
        quota = self._connections
        throttle_ms = quota.record(address, "", 1, now_ms)
        if throttle_ms:
            quota.unrecord(address, "", 1, now_ms)
        return throttle_ms

    def mutation_quota(self, user: str, client_id: str, strict: bool, now_ms: int) -> MutationQuota:
        """Returns the quota on created and deleted partitions, for one request.

        It is strict from the version in which clients know the error: CreateTopics 6,
        CreatePartitions 3, DeleteTopics 5.
        """
        match = self._mutations.find(user, client_id) if self.enabled else None
        if match is None:
            return MutationQuota(None, strict)
        tag, rate = match
        bucket = self._buckets.get(tag, rate, now_ms)
        bucket.rate = rate
        return MutationQuota(bucket, strict)


def _canonical_or_text(name: str) -> str:
    """Returns the canonical form of an address; any other text is unchanged."""
    try:
        return name if name == DEFAULT_NAME else canonical_ip(name)
    except ValueError:
        return name
