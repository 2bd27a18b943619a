"""How fast clients may connect: to the broker, to a listener, from one address (X4).

A client that connects beyond `max.connection.creation.rate` is let in, but served only when the
rate is within the limit again. One beyond the quota of its address (`connection_creation_rate`) is
kept waiting for as long, and then left: closed at once it would only come back the sooner.
"""

import asyncio
from collections.abc import Mapping

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.settings import new_quotas
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import DEFAULT_ENTITY
from penstock.core.clock import Clock
from penstock.net.connection import Connection
from penstock.net.limits import UNLIMITED
from penstock.security.quota_rate import SampledRate

_LIMIT = "max.connection.creation.rate"


class ConnectionRates:
    """Counts those that connect. The quotas of addresses are those that the image has."""

    def __init__(self, config: BrokerConfig, image: ClusterImage, clock: Clock) -> None:
        self._config = config
        self._image = image
        self._clock = clock
        self._quotas = new_quotas(config)
        self._known: dict[str, Mapping[str, str]] = {}
        """The settings of addresses that `_quotas` has heard of."""
        self._window_ms = config.int("quota.window.size.seconds") * 1000
        self._rates: dict[str | None, SampledRate] = {}
        """By listener; None is the whole broker."""
        self.limits: dict[str | None, int] = {}
        self.reconfigure()

    def reconfigure(self) -> None:
        """The settings may have changed."""
        whole = self._config.int(_LIMIT)
        limits: dict[str | None, int] = {None: whole}
        for spec in self._config.listeners:
            of_listener = self._config.listener_value(spec.name, _LIMIT)
            if isinstance(of_listener, int) and of_listener != whole:
                limits[spec.name] = of_listener
        self.limits = {name: most for name, most in limits.items() if most < UNLIMITED}
        self._rates = {name: self._rates.get(name) or self._new_rate() for name in self.limits}

    def _new_rate(self) -> SampledRate:
        return SampledRate(self._config.int("quota.window.num"), self._window_ms)

    def admit(self, connection: Connection) -> None:
        """A client has connected: it may have to wait, or to go."""
        now_ms = self._clock.monotonic_ms()
        peer = connection.peer
        for address in (DEFAULT_ENTITY, peer.host):
            self._follow(address)
        wait_ms = self._quotas.record_connection(peer.host, now_ms)
        if wait_ms > 0:
            connection.hold()
            asyncio.get_running_loop().call_later(
                wait_ms / 1000,
                connection.close,
                f"the quota connection_creation_rate of {peer.host} is used up: raise it, or "
                f"connect less often",
            )
            return
        for name in (None, peer.listener):
            rate = self._rates.get(name)
            if rate is not None:
                rate.record(1, now_ms)
                wait_ms = rate.throttle_ms(max(self.limits[name], 1), now_ms)
                connection.throttle(min(wait_ms, self._window_ms))

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
