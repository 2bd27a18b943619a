"""Rules for dynamic settings: which may change while the broker runs, and how, as in Kafka."""

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
"""Keys and certificates, which are dynamic only with a listener prefix."""

_CLUSTER_WIDE_PER_LISTENER = (
    "max.connections",
    "max.connection.creation.rate",
    "num.network.threads",
)
"""Settings with a listener prefix that may also be defaults of all brokers."""

_ENCRYPTED_FIELDS = ("encryptedPassword:", "passwordLength:", "keyLength:")
"""Fields in a password as Kafka stores it in ZooKeeper."""

_THREAD_COUNTS = (
    "num.io.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "num.network.threads",
    "log.cleaner.threads",
)


def check_dynamic(name: str, text: str, *, per_broker: bool) -> None:
    """Raises ConfigError if this setting cannot be stored for a broker, or for all brokers."""
    setting = setting_of(name)
    if setting is None:
        raise ConfigError(f"no such setting{nearest(name, BROKER_SETTINGS)}", name)
    base = listener_base(name)
    if base is None and setting.dynamic is Dynamic.READ_ONLY:
        raise ConfigError(
            "cannot change while the broker runs",
            name,
            remedy="set it in server.properties and restart the broker",
        )
    if base is None and name in ONLY_PER_LISTENER:
        raise ConfigError(
            "can only change for a single listener",
            name,
            remedy=f"set listener.name.<listener in lower case>.{name}",
        )
    setting.parse(text)
    if setting.sensitive and all(field in text for field in _ENCRYPTED_FIELDS):
        raise ConfigError(
            "is encrypted by Kafka, with password.encoder.secret; Penstock cannot decrypt it",
            name,
            remedy="set it in server.properties, or set the password again",
        )
    if not per_broker and _is_per_broker(name):
        raise ConfigError(
            "is a setting of single brokers",
            name,
            remedy="set it for a broker id, not as the default",
        )


def _is_per_broker(name: str) -> bool:
    base = listener_base(name)
    if base is not None:
        return base[1] not in _CLUSTER_WIDE_PER_LISTENER
    return BROKER_SETTINGS[name].dynamic is Dynamic.PER_BROKER


def apply(texts: dict[str, str], overrides: Mapping[str, str]) -> None:
    """Adds overrides to the settings; each one also removes its synonyms.

    So a dynamic `log.retention.hours` takes effect although the file has `log.retention.ms`, which
    would have precedence in the same source.
    """
    for name, text in overrides.items():
        if listener_base(name) is None:
            for synonym in family_of(name):
                texts.pop(synonym, None)
        texts[name] = text


def check_steps(before: BrokerValues, after: BrokerValues) -> None:
    """Raises ConfigError for a change that is too large for one step."""
    for name in _THREAD_COUNTS:
        old, new = before.int(name), after.int(name)
        if new != old and not max(1, old // 2) <= new <= old * 2:
            raise ConfigError(
                f"{new} is invalid: must be between {max(1, old // 2)} and "
                f"{old * 2}, half and double of the current value",
                name,
            )
    _check_local_retention(before, after, "log.local.retention.bytes", _retention_bytes)
    _check_local_retention(before, after, "log.local.retention.ms", retention_ms)


def _retention_bytes(values: BrokerValues) -> int:
    return values.int("log.retention.bytes")


def _check_local_retention(
    before: BrokerValues, after: BrokerValues, name: str, retention: Callable[[BrokerValues], int]
) -> None:
    local, total = after.int(name), retention(after)
    if (local, total) == (before.int(name), retention(before)):
        return
    if total > -1 and local != -2 and not 0 <= local <= total:
        raise ConfigError(
            (f"{local} is invalid: must be 0 to {total}, the total retention, or -2 for it"),
            name,
        )


def changes_running_listener(
    name: str, before: Mapping[str, str], after: Mapping[str, str], running: frozenset[str]
) -> bool:
    """Returns whether a read-only setting of an open listener would change."""
    base = listener_base(name)
    return (
        base is not None
        and base[0] in running
        and base[1] not in (*ONLY_PER_LISTENER, *_CLUSTER_WIDE_PER_LISTENER)
        and before.get(name) != after.get(name)
    )
