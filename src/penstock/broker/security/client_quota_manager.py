"""Client quotas (X4), asked in the words of the handlers."""

from collections.abc import Iterable

from penstock.broker.request import Request
from penstock.controller.metadata import Change, ConfigKey, ConfigRecord, Delete, Put
from penstock.core.clock import Clock
from penstock.security.quotas import ClientQuotas, MutationQuota

_KINDS = frozenset({"users", "clients", "ips"})


class ClientQuotaManager:
    """How long a client must wait, in milliseconds, after what it did; 0 where it need not."""

    def __init__(self, limits: ClientQuotas, clock: Clock) -> None:
        self.limits = limits
        self._clock = clock

    def apply(self, changes: Iterable[Change]) -> None:
        """Follows the settings of users, client ids and addresses."""
        for change in changes:
            match change:
                case Put(ConfigRecord(entity, values)) if _KINDS.issuperset(dict(entity)):
                    self.limits.put(entity, values)
                case Delete(ConfigKey(entity)) if _KINDS.issuperset(dict(entity)):
                    self.limits.delete(entity)

    def record_produce(self, request: Request) -> int:
        if not self.limits.enabled:
            return 0
        user, client_id = request.session.principal.name, request.client_id
        return self.limits.record_produce(user, client_id, request.size, self._clock.monotonic_ms())

    def record_fetch(self, request: Request, size: int) -> int:
        """Where the client must wait, it gets nothing, and so the bytes do not count."""
        if not self.limits.enabled:
            return 0
        user, client_id = request.session.principal.name, request.client_id
        now_ms = self._clock.monotonic_ms()
        throttle_ms = self.limits.record_fetch(user, client_id, size, now_ms)
        if throttle_ms > 0:
            self.limits.unrecord_fetch(user, client_id, size, now_ms)
        return throttle_ms

    def fetch_room(self, request: Request, room: int) -> int:
        """`room`, or fewer bytes where the client's quota could never allow so many at once."""
        if not self.limits.enabled:
            return room
        most = self.limits.max_fetch_bytes(request.session.principal.name, request.client_id)
        return int(min(room, most))

    def record_request_time(self, request: Request, seconds: float) -> int:
        """A request took this much of the broker's time."""
        user, client_id = request.session.principal.name, request.client_id
        return self.limits.record_request(user, client_id, seconds, self._clock.monotonic_ms())

    def mutation_quota(self, request: Request, first_strict_version: int) -> MutationQuota:
        """The quota on partitions made and deleted, for one request."""
        return self.limits.mutation_quota(
            request.session.principal.name,
            request.client_id,
            request.version >= first_strict_version,
            self._clock.monotonic_ms(),
        )
