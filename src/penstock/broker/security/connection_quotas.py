"""Limits on the rate of new connections: of the broker, of a listener, of an address (X4).

Above `max.connection.creation.rate` a listener pauses until the rate is within the limit again. A
connection above the quota of its address (`connection_creation_rate`) is closed after the throttle
time: a client that is closed at once would only reconnect sooner.
"""

from collections.abc import Mapping

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.component_config import new_quotas
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import DEFAULT_ENTITY
from penstock.core.clock import Clock
from penstock.net.server.limits import UNLIMITED
from penstock.security.quota_rate import SampledRate

_LIMIT = "max.connection.creation.rate"


def protected_listener(config: BrokerConfig) -> str | None:
    """Returns the inter-broker listener, which limits of the whole broker do not affect.

    Returns None if it is the only listener, because then clients use it too.
    """
    return config.inter_broker_listener if len(config.listeners) > 1 else None


class ConnectionQuotas:
    """The `ConnectionThrottle` of the listeners; the image has the quotas of addresses."""

    def __init__(self, config: BrokerConfig, image: ClusterImage, clock: Clock) -> None:
        self._config = config
        self._image = image
        self._clock = clock
        self._quotas = new_quotas(config)
        self._applied: dict[str, Mapping[str, str]] = {}
        """The configs of addresses that `_quotas` has."""
        self._window_ms = config.int("quota.window.size.seconds") * 1000
        self._protected = protected_listener(config)
        self._rates: dict[str | None, SampledRate] = {}
        """By listener; None stands for the whole broker."""
        self.limits: dict[str | None, int] = {}
        self.reconfigure()

    def reconfigure(self) -> None:
        """Applies changed settings; the rates of limits that stay are kept."""
        limits: dict[str | None, int] = {None: self._config.int(_LIMIT)}
        for spec in self._config.listeners:
            of_listener = self._config.listener_value(spec.name, _LIMIT)
            assert isinstance(of_listener, int)
            limits[spec.name] = of_listener
        self.limits = {name: most for name, most in limits.items() if most < UNLIMITED}
        self._rates = {name: self._rates.get(name) or self._new_rate() for name in self.limits}

    def _new_rate(self) -> SampledRate:
        return SampledRate(self._config.int("quota.window.num"), self._window_ms)

    def accept_delay_ms(self, listener: str) -> int:
        """Counts a connection; returns how long its listener pauses, at most one quota window."""
        now_ms = self._clock.monotonic_ms()
        wait_ms = 0
        for name in self._limits_of(listener):
            rate, most = self._rates[name], self.limits[name]
            rate.record(1, now_ms)
            wait_ms = max(wait_ms, rate.throttle_ms(most, now_ms) if most else self._window_ms)
        return min(wait_ms, self._window_ms)

    def close_delay_ms(self, listener: str, ip: str) -> int:
        """Returns 0 to admit the connection, or in how many ms it is closed without counting."""
        now_ms = self._clock.monotonic_ms()
        for address in (DEFAULT_ENTITY, ip):
            self._update_quota(address)
        keep_ms = self._quotas.record_connection(ip, now_ms)
        if keep_ms > 0:
            for name in self._limits_of(listener):
                self._rates[name].record(-1, now_ms)
        return keep_ms

    def _limits_of(self, listener: str) -> list[str | None]:
        """Returns the names of the limits that apply to a listener."""
        names = (listener,) if listener == self._protected else (None, listener)
        return [name for name in names if name in self.limits]

    def _update_quota(self, address: str) -> None:
        """Applies the quota of an address if it has changed since the last connection."""
        values = self._image.config("ips", address)
        if values is self._applied.get(address) or not (values or address in self._applied):
            return
        self._quotas.put((("ips", address),), values)
        if values:
            self._applied[address] = values
        else:
            del self._applied[address]
