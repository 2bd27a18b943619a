"""Client quotas: how fast clients may go, and how long to hold back one that is faster (X4)."""

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

_REMEMBERED = 10_000

Tag: TypeAlias = tuple[str, str]
"""User and client id that share a meter; empty where the quota is not about the one or other."""

Meter = TypeVar("Meter")


class _Limits:
    """The quotas of one key, and which of them applies to a client.

    From the most specific to the least: user and client id, user and default client, user, default
    user and client id, default user and default client, default user, client id, default client.
    """

    __slots__ = ("_limits", "_remembered")

    def __init__(self) -> None:
        self._limits: dict[tuple[str | None, str | None], float] = {}
        self._remembered: dict[tuple[str, str], tuple[Tag, float] | None] = {}

    def __bool__(self) -> bool:
        return bool(self._limits)

    def put(self, user: str | None, client_id: str | None, limit: float | None) -> None:
        """Set a quota, or remove it where the limit is None."""
        if limit is None:
            self._limits.pop((user, client_id), None)
        else:
            self._limits[user, client_id] = limit
        self._remembered.clear()

    def find(self, user: str, client_id: str) -> tuple[Tag, float] | None:
        """The limit of a client, and with whom it shares it; None where there is none."""
        try:
            return self._remembered[user, client_id]
        except KeyError:
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            found = self._remembered[user, client_id] = self._search(user, client_id)
            return found

    def _search(self, user: str, client_id: str) -> tuple[Tag, float] | None:
        levels: list[tuple[str | None, str | None, Tag]] = []
        for name in (user, DEFAULT_NAME):
            if client_id:  # a client without an id falls under no quota of clients
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
    """What was measured for each tag. What a new meter would do as well is forgotten.

    There are two generations: each `span_ms` the older one goes, and what was not used in between
    with it.
    """

    __slots__ = ("_make", "_older", "_recent", "_rotate_at", "_span_ms", "_spent")

    def __init__(
        self,
        span_ms: int,
        make: Callable[[float, int], Meter],
        spent: Callable[[Meter, int], bool],
    ) -> None:
        self._span_ms = span_ms
        self._make = make
        self._spent = spent
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
        kept = {tag: m for tag, m in self._older.items() if not self._spent(m, now_ms)}
        self._older = {**kept, **self._recent}
        self._recent = {}
        self._rotate_at = now_ms + self._span_ms


def _rate_is_spent(_rate: SampledRate, _now_ms: int) -> bool:
    return True  # unused for as long as all windows: all its samples are over


def _bucket_is_spent(bucket: TokenBucket, now_ms: int) -> bool:
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
        self.meters = _Meters(window_num * window_size_ms, make, _rate_is_spent)
        self.max_throttle_ms = max_throttle_ms

    def record(self, user: str, client_id: str, amount: float, now_ms: int) -> int:
        found = self.limits.find(user, client_id)
        if found is None:
            return 0
        tag, limit = found
        rate = self.meters.get(tag, limit, now_ms)
        rate.record(amount, now_ms)
        throttle_ms = rate.throttle_ms(limit, now_ms)
        if self.max_throttle_ms is not None:
            return min(throttle_ms, self.max_throttle_ms)
        return throttle_ms

    def unrecord(self, user: str, client_id: str, amount: float, now_ms: int) -> None:
        found = self.limits.find(user, client_id)
        if found is not None:
            self.meters.get(found[0], found[1], now_ms).record(-amount, now_ms)


class MutationQuota:
    """The quota on partitions created and deleted, for one request.

    Strict, it refuses all that comes when the quota is used up, and lets all pass before. Otherwise
    it refuses nothing, and only tells how long to hold the client back.
    """

    __slots__ = ("_bucket", "_recorded_ms", "_strict", "_throttle_ms")

    def __init__(self, bucket: TokenBucket | None, strict: bool) -> None:
        """Without a bucket there is no limit."""
        self._bucket = bucket
        self._strict = strict
        self._throttle_ms = 0
        self._recorded_ms = 0

    @property
    def exceeded(self) -> bool:
        """Something was refused."""
        return self._strict and self._throttle_ms > 0

    def record(self, partitions: float, now_ms: int) -> None:
        """Count partitions; `THROTTLING_QUOTA_EXCEEDED` where they must not be touched now."""
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
                    f"the quota {CONTROLLER_MUTATION_RATE} is used up;"
                    f" try again in {self._throttle_ms} ms",
                )
        elif self._strict:
            bucket.take(partitions, now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        """How long the client must still wait."""
        return max(0, self._throttle_ms - (now_ms - self._recorded_ms))


class ClientQuotas:
    """All quotas of the cluster, which `put` and `delete` tell it, and what was used of them.

    `enabled` is False while there is none: then there is no need to ask. All times are milliseconds
    that never go backwards; a result of 0 means that the client need not wait.
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
        # An address stands where a user does otherwise.
        self._connections = _RateQuota(window_num, window_size_ms, max_throttle_ms=window_size_ms)
        self._mutations = _Limits()

        def bucket(rate: float, now_ms: int) -> TokenBucket:
            return TokenBucket(rate, controller_window_num, controller_window_size_ms, now_ms)

        span_ms = controller_window_num * controller_window_size_ms
        self._buckets = _Meters(span_ms, bucket, _bucket_is_spent)
        self._client_limits = {
            PRODUCER_BYTE_RATE: self._produce.limits,
            CONSUMER_BYTE_RATE: self._fetch.limits,
            REQUEST_PERCENTAGE: self._request.limits,
            CONTROLLER_MUTATION_RATE: self._mutations,
        }
        self._ip_limits = {CONNECTION_CREATION_RATE: self._connections.limits}

    # --- what the quotas are

    def put(self, entity: Entity, values: Mapping[str, str]) -> None:
        """These are now all settings of an entity; those that are no quotas do not matter."""
        names = dict(entity)
        quotas = quota_values(values)
        if "ips" in names:
            address = _known_ip(names["ips"])
            self._set(self._ip_limits, address, None, quotas)
        elif names.keys() <= {"users", "clients"} and names:
            self._set(self._client_limits, names.get("users"), names.get("clients"), quotas)

    def delete(self, entity: Entity) -> None:
        """An entity has no settings any more."""
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

    # --- what was used of them

    def record_produce(self, user: str, client_id: str, size: int, now_ms: int) -> int:
        """A client sent records of this many bytes: how many milliseconds must it wait?"""
        return self._produce.record(user, client_id, size, now_ms) if self.enabled else 0

    def record_fetch(self, user: str, client_id: str, size: int, now_ms: int) -> int:
        """A client is about to get this many bytes: how many milliseconds must it wait?

        Where it must wait, for this quota or the one on requests, it gets an empty response, and
        `unrecord_fetch` takes the bytes back.
        """
        return self._fetch.record(user, client_id, size, now_ms) if self.enabled else 0

    def unrecord_fetch(self, user: str, client_id: str, size: int, now_ms: int) -> None:
        """The bytes that `record_fetch` counted are not sent."""
        if self.enabled:
            self._fetch.unrecord(user, client_id, size, now_ms)

    def max_fetch_bytes(self, user: str, client_id: str) -> float:
        """What a client may get at once without having to wait for certain; may be infinite."""
        found = self._fetch.limits.find(user, client_id) if self.enabled else None
        return float("inf") if found is None else found[1] * self._window_ms / 1000

    def record_request(self, user: str, client_id: str, seconds: float, now_ms: int) -> int:
        """A request took this long to handle: how many milliseconds must the client wait?"""
        return self._request.record(user, client_id, seconds * 100, now_ms) if self.enabled else 0

    def record_connection(self, address: str, now_ms: int) -> int:
        """Someone connects: for how many milliseconds must the connection not be taken?

        Where it must wait, it does not count: it is closed after that time.
        """
        if not self.enabled:
            return 0
        quota = self._connections
        throttle_ms = quota.record(address, "", 1, now_ms)
        if throttle_ms:
            quota.unrecord(address, "", 1, now_ms)
        return throttle_ms

    def mutation_quota(self, user: str, client_id: str, strict: bool, now_ms: int) -> MutationQuota:
        """The quota on changes of partitions, for one request.

        It is strict from the version on in which clients know the error: CreateTopics 6,
        CreatePartitions 3, DeleteTopics 5.
        """
        found = self._mutations.find(user, client_id) if self.enabled else None
        if found is None:
            return MutationQuota(None, strict)
        tag, rate = found
        bucket = self._buckets.get(tag, rate, now_ms)
        bucket.rate = rate
        return MutationQuota(bucket, strict)


def _known_ip(name: str) -> str:
    """An address as connections have it; another name, which none has, is left alone."""
    try:
        return name if name == DEFAULT_NAME else canonical_ip(name)
    except ValueError:
        return name
