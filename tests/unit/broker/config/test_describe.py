"""Settings of a broker in DescribeConfigs."""

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.entry import ConfigEntry, Synonym
from penstock.protocol.enums import ConfigSource, ConfigType

BROKER = ConfigSource.DYNAMIC_BROKER_CONFIG
CLUSTER = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
STATIC = ConfigSource.STATIC_BROKER_CONFIG
DEFAULT = ConfigSource.DEFAULT_CONFIG


def described(config: BrokerConfig, name: str) -> ConfigEntry:
    entry = config.describe(name)
    assert entry is not None
    return entry


def test_sources_and_types_have_the_numbers_of_the_protocol() -> None:
    assert [source.value for source in ConfigSource] == list(range(9))
    assert [kind.value for kind in ConfigType] == list(range(10))


def test_a_value_with_its_synonyms_of_all_sources() -> None:
    config = BrokerConfig.from_properties({"message.max.bytes": "2"})
    config.set_dynamic({"message.max.bytes": "3"}, {"message.max.bytes": "4"})
    entry = described(config, "message.max.bytes")
    assert (entry.value, entry.source, entry.type) == ("4", BROKER, ConfigType.INT)
    assert (entry.sensitive, entry.read_only) == (False, False)
    name = "message.max.bytes"
    assert entry.synonyms == (
        Synonym(name, "4", BROKER),
        Synonym(name, "3", CLUSTER),
        Synonym(name, "2", STATIC),
        Synonym(name, "1048588", DEFAULT),
    )
    assert entry.doc is not None


def test_synonyms_follow_in_the_order_of_precedence() -> None:
    config = BrokerConfig.from_properties({"log.retention.hours": "24"})
    entry = described(config, "log.retention.ms")
    assert (entry.value, entry.source, entry.synonyms) == (None, DEFAULT, ())
    config.set_dynamic({"log.retention.ms": "5"}, {})
    assert described(config, "log.retention.ms").synonyms == (
        Synonym("log.retention.ms", "5", CLUSTER),
        Synonym("log.retention.hours", "24", STATIC),
        Synonym("log.retention.hours", "168", DEFAULT),
    )


def test_values_are_formatted_as_in_kafka() -> None:
    config = BrokerConfig.from_properties(
        {"log.preallocate": "TRUE", "log.cleanup.policy": "compact , delete"}
    )
    assert described(config, "log.preallocate").value == "true"
    assert described(config, "log.cleanup.policy").value == "compact,delete"


def test_secrets_are_not_shown() -> None:
    name = "listener.name.l.plain.sasl.jaas.config"
    config = BrokerConfig.from_properties({"ssl.key.password": "hush", name: "hush"})
    config.set_dynamic({}, {"listener.name.l.ssl.key.password": "hush"})
    entries = config.describe_all(["ssl.key.password", name, "listener.name.l.ssl.key.password"])
    assert [entry.sensitive for entry in entries] == [True, True, True]
    assert "hush" not in repr(config.describe_all()) + repr(config.describe_default())


def test_values_of_unknown_settings_are_not_shown() -> None:
    config = BrokerConfig.from_properties({"confluent.license": "hush"})
    entry = described(config, "confluent.license")
    assert (entry.value, entry.sensitive, entry.type) == (None, True, ConfigType.UNKNOWN)
    assert config.describe("colour") is None


def test_only_dynamic_settings_can_be_written() -> None:
    config = BrokerConfig.from_properties({})
    assert described(config, "broker.rack").read_only is True
    assert described(config, "max.connections").read_only is False


def test_all_settings_of_kafka_are_listed_and_others_if_they_are_set() -> None:
    config = BrokerConfig.from_properties({"zookeeper.connect": "h:1"})
    names = [entry.name for entry in config.describe_all()]
    assert names == sorted(names)
    assert {"num.partitions", "process.roles", "zookeeper.connect"} <= set(names)
    assert not {"zookeeper.set.acl", "producer.id.expiration.check.interval.ms"} & set(names)
    assert [entry.name for entry in config.describe_all(["node.id", "x"])] == ["node.id"]


def test_the_cluster_default() -> None:
    config = BrokerConfig.from_properties({"message.max.bytes": "2"})
    assert config.describe_default() == []
    config.set_dynamic({"message.max.bytes": "3", "max.connections": "9"}, {"max.connections": "8"})
    bytes_, connections = sorted(config.describe_default(), key=lambda entry: entry.value or "")
    assert (bytes_.name, bytes_.value, bytes_.source) == ("message.max.bytes", "3", CLUSTER)
    assert connections.synonyms == (Synonym("max.connections", "9", CLUSTER),)
    assert [entry.name for entry in config.describe_default(["max.connections"])] == [
        "max.connections"
    ]
