"""The settings of a producer, made to fit each other."""

from collections.abc import Mapping
from itertools import count

from penstock.client.errors import ConfigError
from penstock.client.settings import ProducerOptions, resolve

_numbers = count(1)
_MAX_IN_FLIGHT = 5
"""A broker remembers the last so many batches of a producer, and tells retries by them."""


def producer_settings(given: Mapping[str, object]) -> ProducerOptions:
    """All settings. ConfigError where some do not go together."""
    settings = resolve(ProducerOptions, given)
    settings["acks"] = _acks(settings["acks"])
    settings["enable_idempotence"] = _idempotence(settings, given)
    needed = min(settings["linger_ms"] + settings["request_timeout_ms"], 2**31 - 1)
    if settings["delivery_timeout_ms"] < needed:
        if "delivery_timeout_ms" in given:
            raise ConfigError(
                f"delivery_timeout_ms={settings['delivery_timeout_ms']} is too short: it must be "
                f"at least linger_ms + request_timeout_ms, which is {needed}"
            )
        settings["delivery_timeout_ms"] = needed
    settings["batch_size"] = max(1, settings["batch_size"])
    if not settings["client_id"]:
        name = settings["transactional_id"]
        settings["client_id"] = f"producer-{next(_numbers) if name is None else name}"
    return settings


def _acks(given: str | int) -> int:
    match given:
        case "all" | "-1" | -1:
            return -1
        case "0" | 0:
            return 0
        case "1" | 1:
            return 1
    raise ConfigError(f"acks={given!r}: it must be 0, 1 or 'all'")


def _idempotence(settings: ProducerOptions, given: Mapping[str, object]) -> bool:
    asked = given.get("enable_idempotence") is not None
    enabled = settings["enable_idempotence"] if asked else True
    in_flight = settings["max_in_flight_requests_per_connection"]
    problem = None
    if settings["retries"] == 0:
        problem = "retries=0: there must be some"
    elif settings["acks"] != -1:
        problem = f"acks={settings['acks']}: it must be 'all'"
    if enabled and problem is not None:
        if asked or settings["transactional_id"] is not None:
            what = "enable_idempotence" if asked else "transactional_id"
            raise ConfigError(f"{what} does not go with {problem}")
        enabled = False
    if enabled and in_flight > _MAX_IN_FLIGHT:
        raise ConfigError(
            f"max_in_flight_requests_per_connection={in_flight}: with idempotence at most "
            f"{_MAX_IN_FLIGHT}; lower it, or set enable_idempotence=False"
        )
    if not enabled and settings["transactional_id"] is not None:
        raise ConfigError("transactional_id needs enable_idempotence")
    return enabled
