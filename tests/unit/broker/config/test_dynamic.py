"""Settings that change while the broker runs."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.broker_settings import BROKER_SETTINGS
from penstock.broker.config.settings import ConfigError

ENCRYPTED_BY_KAFKA = (
    "cipherAlgorithm:AES/CBC/PKCS5Padding,initializationVector:AAAA,keyLength:128,"
    "passwordLength:6,encryptedPassword:AAAA,salt:AAAA,iterations:4096,"
    "keyFactoryAlgorithm:PBKDF2WithHmacSHA512"
)


def config(**settings: str) -> BrokerConfig:
    return BrokerConfig.from_properties({name.replace("_", "."): s for name, s in settings.items()})


def refusal(broker: BrokerConfig, name: str, text: str, *, per_broker: bool = True) -> str:
    with pytest.raises(ConfigError) as refused:
        broker.validate_dynamic({name: text}, per_broker=per_broker)
    assert refused.value.name == name
    return refused.value.message


def test_settings_of_the_broker_win_over_the_cluster_default_and_the_file() -> None:
    broker = config(message_max_bytes="1")
    assert broker.set_dynamic({"message.max.bytes": "2"}, {}) == {"message.max.bytes"}
    assert broker.int("message.max.bytes") == 2
    changed = broker.set_dynamic({"message.max.bytes": "2"}, {"message.max.bytes": "3"})
    assert changed == {"message.max.bytes"}
    assert broker.int("message.max.bytes") == 3
    assert broker.set_dynamic({"message.max.bytes": "4"}, {"message.max.bytes": "3"}) == set()
    assert broker.set_dynamic({}, {}) == {"message.max.bytes"}
    assert broker.int("message.max.bytes") == 1


def test_the_version_increases_with_each_change() -> None:
    broker = config()
    versions = [broker.version]
    for default in ({"num.io.threads": "9"}, {"num.io.threads": "9"}, {}):
        broker.set_dynamic(default, {})
        versions.append(broker.version)
    assert versions == [0, 1, 1, 2]


def test_a_value_equal_to_the_default_is_no_change() -> None:
    assert config().set_dynamic({"num.io.threads": "8"}, {}) == set()


def test_a_dynamic_setting_replaces_its_synonyms() -> None:
    """S4: a dynamic log.retention.ms replaces the settings of the file in other units."""
    broker = config(log_retention_minutes="7", log_retention_hours="5")
    changed = broker.set_dynamic({"log.retention.ms": "1000"}, {})
    assert changed == {"log.retention.ms", "log.retention.minutes", "log.retention.hours"}
    assert broker.value("log.retention.minutes") is None
    broker.set_dynamic({}, {})
    assert (broker.value("log.retention.ms"), broker.int("log.retention.minutes")) == (None, 7)


@pytest.mark.parametrize(
    ("default", "per_broker", "line"),
    [
        ({"num.io.threads": "many"}, {}, "num.io.threads: 'many' is invalid"),
        ({}, {"broker.rack": "r"}, "broker.rack: cannot change while the broker runs"),
        ({}, {"ssl.keystore.type": "PEM"}, "can only change for a single listener"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, {}, "is a setting of single brokers"),
        ({}, {"colour": "red"}, "colour: no such setting"),
        (
            {},
            {"listener.name.plaintext.ssl.keystore.password": ENCRYPTED_BY_KAFKA},
            "is encrypted by Kafka, with password.encoder.secret",
        ),
    ],
)
def test_invalid_stored_settings_are_ignored(
    caplog: pytest.LogCaptureFixture,
    default: dict[str, str],
    per_broker: dict[str, str],
    line: str,
) -> None:
    broker = config()
    with caplog.at_level(logging.ERROR):
        changed = broker.set_dynamic(default | {"background.threads": "12"}, per_broker)
    assert changed == {"background.threads"}
    (record,) = caplog.messages
    assert line in record


def test_incompatible_settings_are_not_applied(caplog: pytest.LogCaptureFixture) -> None:
    broker = config(log_cleaner_max_compaction_lag_ms="10")
    with caplog.at_level(logging.ERROR):
        assert broker.set_dynamic({"log.cleaner.min.compaction.lag.ms": "11"}, {}) == set()
    assert broker.int("log.cleaner.min.compaction.lag.ms") == 0
    assert "stored settings are not applied" in caplog.text


def test_a_stored_number_of_threads_is_not_limited_at_the_start() -> None:
    broker = config()
    assert broker.set_dynamic({"num.io.threads": "64"}, {}) == {"num.io.threads"}


def test_subscribers_are_notified_of_their_settings() -> None:
    broker = config()
    notifications: list[tuple[str, set[str]]] = []
    broker.subscribe("log.", lambda names: notifications.append(("prefix", set(names))))
    end = broker.subscribe(
        ["max.connections", "num.io.threads"],
        lambda names: notifications.append(("names", set(names))),
    )
    broker.set_dynamic(
        {"log.retention.ms": "1", "max.connections": "5", "compression.type": "lz4"}, {}
    )
    assert notifications == [("prefix", {"log.retention.ms"}), ("names", {"max.connections"})]
    notifications.clear()
    end()
    broker.set_dynamic({"log.retention.ms": "1"}, {})
    assert notifications == []
    broker.set_dynamic({}, {})
    assert notifications == [("prefix", {"log.retention.ms"})]


def test_a_subscriber_sees_the_new_value() -> None:
    broker = config()
    values: list[int] = []
    broker.subscribe("max.connections", lambda names: values.append(broker.int("max.connections")))
    broker.set_dynamic({}, {"max.connections": "5"})
    assert values == [5]


def test_valid_changes_are_accepted() -> None:
    broker = config(listeners="SSL://:9092")
    broker.validate_dynamic({"log.retention.ms": "5", "num.io.threads": "16"}, per_broker=False)
    broker.validate_dynamic(
        {
            "listener.name.ssl.ssl.keystore.location": "new.pem",
            "listener.name.ssl.ssl.key.password": "secret",
            "listener.name.other.sasl.enabled.mechanisms": "PLAIN",
        },
        per_broker=True,
    )
    broker.validate_dynamic({"listener.name.ssl.max.connections": "5"}, per_broker=False)
    assert broker.version == 0
    assert broker.int("num.io.threads") == 8


@pytest.mark.parametrize(
    ("name", "text", "expected_error"),
    [
        ("broker.rack", "r", "set it in server.properties and restart the broker"),
        ("log.retention.hours", "5", "cannot change while the broker runs"),
        ("ssl.keystore.location", "x", "set listener.name.<listener in lower case>.ssl.keystore"),
        ("listener.name.plaintext.sasl.enabled.mechanisms", "PLAIN", "while the listener is open"),
        ("log.retension.ms", "5", "did you mean log.retention.ms?"),
        ("log.retention.ms", "5 days", "must be a whole number"),
        ("log.retention.ms", "0", "at least 1"),
        ("num.io.threads", "17", "must be between 4 and 16"),
        ("num.io.threads", "3", "must be between 4 and 16"),
        ("log.cleaner.threads", "0", "must be between 1 and 2"),
        ("log.local.retention.ms", "604800001", "must be 0 to 604800000"),
        ("listeners", "PLAINTEXT://:1", "cannot change while the broker runs"),
    ],
)
def test_changes_that_are_rejected(name: str, text: str, expected_error: str) -> None:
    assert expected_error in refusal(config(), name, text)


@pytest.mark.parametrize(
    "name", ["sasl.enabled.mechanisms", "listener.name.ssl.ssl.keystore.type", "listeners"]
)
def test_settings_of_single_brokers_cannot_be_a_cluster_default(name: str) -> None:
    text = "PLAINTEXT://127.0.0.1:9092" if name == "listeners" else "PEM"
    assert "set it for a broker id" in refusal(config(), name, text, per_broker=False)


def test_validation_includes_stored_settings() -> None:
    broker = config()
    broker.set_dynamic({"log.cleaner.min.compaction.lag.ms": "100"}, {})
    max_lag = {"log.cleaner.max.compaction.lag.ms": "50"}
    with pytest.raises(ConfigError, match=r"100 is more than log\.cleaner\.max\.compaction"):
        broker.validate_dynamic(max_lag, per_broker=True)
    broker.validate_dynamic(max_lag | {"log.cleaner.min.compaction.lag.ms": "10"}, per_broker=True)


NAMES = st.sampled_from(
    [*BROKER_SETTINGS, "listener.name.plaintext.ssl.key.password", "colour", "listener.name.x.y"]
)
TEXTS = st.sampled_from(["", "0", "1", "-1", "5000", "true", "PLAIN", "0.5", "a,b", "delete"])


@given(st.dictionaries(NAMES, TEXTS, max_size=6), st.dictionaries(NAMES, TEXTS, max_size=6))
def test_any_stored_settings_are_applied_or_ignored(
    default: dict[str, str], per_broker: dict[str, str]
) -> None:
    """The subscribers receive exactly the names that changed."""
    broker = config(log_retention_hours="5")
    before = {name: broker.text(name) for name in BROKER_SETTINGS}
    changed = broker.set_dynamic(default, per_broker)
    after = {name: broker.text(name) for name in BROKER_SETTINGS}
    assert {name for name in BROKER_SETTINGS if before[name] != after[name]} == {
        name for name in changed if name in BROKER_SETTINGS
    }
    for name in BROKER_SETTINGS:
        broker.value(name)
