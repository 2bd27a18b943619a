"""Client quotas of requests (X4): records usage and returns throttle times."""

from collections.abc import Iterable

from penstock.broker.request import Request
from penstock.controller.metadata import Change, ConfigKey, ConfigRecord, Delete, Put
from penstock.core.clock import Clock
from penstock.security.quotas import ClientQuotas, MutationQuota

_KINDS = frozenset({"users", "clients", "ips"})


class ClientQuotaManager:
    """The quotas of the clients behind requests.

    The `record_…` methods return how many milliseconds the client is throttled; 0 means not at all.
    """

    def __init__(self, limits: ClientQuotas, clock: Clock) -> None:
        self.limits = limits
        self._clock = clock

    def apply(self, changes: Iterable[Change]) -> None:
        """Applies changed quotas of users, client ids and addresses."""
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
        """A throttled client receives no records, so their bytes do not count."""
        if not self.limits.enabled:
            return 0
        user, client_id = request.session.principal.name, request.client_id
        now_ms = self._clock.monotonic_ms()
        throttle_ms = self.limits.record_fetch(user, client_id, size, now_ms)
        if throttle_ms > 0:
            self.limits.unrecord_fetch(user, client_id, size, now_ms)
        return throttle_ms

    def fetch_room(self, request: Request, room: int) -> int:
        """Returns `room`, or less if the client's quota never allows so many bytes at once."""
        if not self.limits.enabled:
            return room
        most = self.limits.max_fetch_bytes(request.session.principal.name, request.client_id)
        return int(min(room, most))

    def record_request_time(self, request: Request, seconds: float) -> int:
        """Records the time that a request took in the event loop."""
        user, client_id = request.session.principal.name, request.client_id
        return self.limits.record_request(user, client_id, seconds, self._clock.monotonic_ms())

    def mutation_quota(self, request: Request, first_strict_version: int) -> MutationQuota:
        """Returns the quota on created and deleted partitions, for one request."""
        return self.limits.mutation_quota(
            request.session.principal.name,
            request.client_id,
            request.version >= first_strict_version,
            self._clock.monotonic_ms(),
        )
