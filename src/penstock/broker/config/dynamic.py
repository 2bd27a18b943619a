"""Which settings may change while the broker runs, and to what (as Kafka's brokers decide it)."""

from collections.abc import Callable, Mapping

from penstock.broker.config.broker_settings import (
    BROKER_SETTINGS,
    family_of,
    listener_base,
    setting_of,
)
from penstock.broker.config.checks import retention_ms
from penstock.broker.config.settings import ConfigError, Dynamic, nearest
from penstock.broker.config.values import BrokerValues

ONLY_PER_LISTENER = (
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
)
"""Keys and certificates can be exchanged for one listener at a time."""

_OF_ANY_LISTENER = ("max.connections", "max.connection.creation.rate", "num.network.threads")
"""Settings of a listener that the cluster's default may contain too."""

_THREADS = (
    "num.io.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "num.network.threads",
    "log.cleaner.threads",
)


def check_dynamic(name: str, text: str, *, per_broker: bool) -> None:
    """ConfigError if this one setting cannot be stored for a broker, or for all of them."""
    setting = setting_of(name)
    if setting is None:
        raise ConfigError(f"{name}: no such setting{nearest(name, BROKER_SETTINGS)}", name)
    based = listener_base(name)
    if based is None and setting.dynamic is Dynamic.READ_ONLY:
        raise ConfigError(
            f"{name}: cannot change while the broker runs; "
            "set it in server.properties and start the broker again",
            name,
        )
    if based is None and name in ONLY_PER_LISTENER:
        raise ConfigError(
            f"{name}: can change for one listener at a time; "
            f"set listener.name.<listener in lower case>.{name}",
            name,
        )
    setting.parse(text)
    if not per_broker and _belongs_to_a_broker(name):
        raise ConfigError(
            f"{name}: each broker has its own; set it for a broker id, not as the default", name
        )


def _belongs_to_a_broker(name: str) -> bool:
    based = listener_base(name)
    if based is not None:
        return based[1] not in _OF_ANY_LISTENER
    return BROKER_SETTINGS[name].dynamic is Dynamic.PER_BROKER


def apply(texts: dict[str, str], overrides: Mapping[str, str]) -> None:
    """Puts overrides in. What is set anew replaces the other names of its family.

    `log.retention.hours` set while the broker runs counts, even though the file has
    `log.retention.ms`, which would win in the same place.
    """
    for name, text in overrides.items():
        if listener_base(name) is None:
            for other in family_of(name):
                texts.pop(other, None)
        texts[name] = text


def check_steps(before: BrokerValues, after: BrokerValues) -> None:
    """What a change must not do in one step."""
    for name in _THREADS:
        old, new = before.int(name), after.int(name)
        if new != old and not max(1, old // 2) <= new <= old * 2:
            raise ConfigError(
                f"{name}: {new} will not do: must be between {max(1, old // 2)} and {old * 2}, "
                "half and double of what it is, in one step",
                name,
            )
    _check_local(before, after, "log.local.retention.bytes", _retention_bytes)
    _check_local(before, after, "log.local.retention.ms", retention_ms)


def _retention_bytes(values: BrokerValues) -> int:
    return values.int("log.retention.bytes")


def _check_local(
    before: BrokerValues, after: BrokerValues, name: str, retention: Callable[[BrokerValues], int]
) -> None:
    local, whole = after.int(name), retention(after)
    if (local, whole) == (before.int(name), retention(before)):
        return
    if whole > -1 and local != -2 and not 0 <= local <= whole:
        raise ConfigError(
            f"{name}: {local} will not do: at most {whole}, which is kept in all, or -2 for that",
            name,
        )


def changes_running_listener(
    name: str, before: Mapping[str, str], after: Mapping[str, str], running: frozenset[str]
) -> bool:
    """Whether a setting of a listener that is open would change, which it cannot."""
    based = listener_base(name)
    return (
        based is not None
        and based[0] in running
        and based[1] not in (*ONLY_PER_LISTENER, *_OF_ANY_LISTENER)
        and before.get(name) != after.get(name)
    )
