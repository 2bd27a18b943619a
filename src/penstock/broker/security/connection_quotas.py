"""How fast clients may connect: to the broker, to a listener, from one address (X4).

Beyond `max.connection.creation.rate` a listener waits until the rate is within the limit again.
Who is beyond the quota of its address (`connection_creation_rate`) is kept waiting for as long, and
then closed: at once it would only come back the sooner.
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
    """The listener of brokers, which limits of the whole broker do not hold up.

    None where it is the only one: clients use it then.
    """
    return config.inter_broker_listener if len(config.listeners) > 1 else None


class ConnectionQuotas:
    """Counts those that connect, for `net.acceptor`: it is a `ConnectionThrottle`.

    The quotas of addresses are those that the image has.
    """

    def __init__(self, config: BrokerConfig, image: ClusterImage, clock: Clock) -> None:
        self._config = config
        self._image = image
        self._clock = clock
        self._quotas = new_quotas(config)
        self._known: dict[str, Mapping[str, str]] = {}
        """The settings of addresses that `_quotas` has heard of."""
        self._window_ms = config.int("quota.window.size.seconds") * 1000
        self._protected = protected_listener(config)
        self._rates: dict[str | None, SampledRate] = {}
        """By listener; None is the whole broker."""
        self.limits: dict[str | None, int] = {}
        self.reconfigure()

    def reconfigure(self) -> None:
        """The settings may have changed."""
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
        """One connects: how many ms its listener waits. Never more than a window of the quotas."""
        now_ms = self._clock.monotonic_ms()
        wait_ms = 0
        for name in self._counting(listener):
            rate, most = self._rates[name], self.limits[name]
            rate.record(1, now_ms)
            wait_ms = max(wait_ms, rate.throttle_ms(most, now_ms) if most else self._window_ms)
        return min(wait_ms, self._window_ms)

    def close_delay_ms(self, listener: str, ip: str) -> int:
        """Its turn has come: 0, or how many ms until it is closed; then it does not count."""
        now_ms = self._clock.monotonic_ms()
        for address in (DEFAULT_ENTITY, ip):
            self._follow(address)
        keep_ms = self._quotas.record_connection(ip, now_ms)
        if keep_ms > 0:
            for name in self._counting(listener):
                self._rates[name].record(-1, now_ms)
        return keep_ms

    def _counting(self, listener: str) -> list[str | None]:
        """The limits that hold for a listener."""
        names = (listener,) if listener == self._protected else (None, listener)
        return [name for name in names if name in self.limits]

    def _follow(self, address: str) -> None:
        """The quota of an address may have changed since somebody connected from it."""
        values = self._image.config("ips", address)
        if values is self._known.get(address) or not (values or address in self._known):
            return
        self._quotas.put((("ips", address),), values)
        if values:
            self._known[address] = values
        else:
            del self._known[address]
