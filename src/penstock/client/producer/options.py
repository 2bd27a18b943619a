"""Resolves the settings of a producer and checks that they fit together."""

from collections.abc import Mapping
from itertools import count

from penstock.client.errors import ConfigError
from penstock.client.settings import ProducerOptions, resolve

_client_numbers = count(1)
_MAX_IN_FLIGHT = 5
"""A broker detects duplicates among the last five batches of a producer."""


def producer_settings(options: Mapping[str, object]) -> ProducerOptions:
    """Returns all settings. Raises ConfigError for settings that contradict each other."""
    settings = resolve(ProducerOptions, options)
    settings["acks"] = _acks(settings["acks"])
    settings["enable_idempotence"] = _idempotence(settings, options)
    minimum = min(settings["linger_ms"] + settings["request_timeout_ms"], 2**31 - 1)
    if settings["delivery_timeout_ms"] < minimum:
        if "delivery_timeout_ms" in options:
            raise ConfigError(
                f"`delivery_timeout_ms`={settings['delivery_timeout_ms']} is too short: it must be "
                f"at least `linger_ms` + `request_timeout_ms`, which is {minimum}"
            )
        settings["delivery_timeout_ms"] = minimum
    settings["batch_size"] = max(1, settings["batch_size"])
    if not settings["client_id"]:
        name = settings["transactional_id"]
        settings["client_id"] = f"producer-{next(_client_numbers) if name is None else name}"
    return settings


def _acks(value: str | int) -> int:
    match value:
        case "all" | "-1" | -1:
            return -1
        case "0" | 0:
            return 0
        case "1" | 1:
            return 1
    raise ConfigError(f"acks={value!r}: it must be 0, 1 or 'all'")


def _idempotence(settings: ProducerOptions, options: Mapping[str, object]) -> bool:
    is_explicit = options.get("enable_idempotence") is not None
    is_enabled = settings["enable_idempotence"] if is_explicit else True
    in_flight = settings["max_in_flight_requests_per_connection"]
    problem = None
    if settings["retries"] == 0:
        problem = "retries=0: retries must be allowed"
    elif settings["acks"] != -1:
        problem = f"acks={settings['acks']}: it must be 'all'"
    if is_enabled and problem is not None:
        if is_explicit or settings["transactional_id"] is not None:
            name = "enable_idempotence" if is_explicit else "transactional_id"
            raise ConfigError(f"`{name}` contradicts {problem}")
        is_enabled = False
    if is_enabled and in_flight > _MAX_IN_FLIGHT:
        raise ConfigError(
            f"`max_in_flight_requests_per_connection`={in_flight}: with idempotence at most "
            f"{_MAX_IN_FLIGHT}",
            remedy="lower it, or set `enable_idempotence`=False",
        )
    if not is_enabled and settings["transactional_id"] is not None:
        raise ConfigError("`transactional_id` needs `enable_idempotence`")
    return is_enabled
