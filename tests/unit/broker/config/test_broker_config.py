"""The broker's settings from a file: which are accepted, which are rejected, and the warnings."""

import pytest

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.broker_settings import BROKER_SETTINGS
from penstock.broker.config.checks import connection_overrides
from penstock.broker.config.settings import ConfigError

KRAFT_FILE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
    "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "log.dirs": "/tmp/kraft-combined-logs",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}

ZOOKEEPER_FILE = {
    "broker.id": "3",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "log.dirs": "/tmp/kafka-logs",
    "num.partitions": "1",
    "zookeeper.connect": "localhost:2181",
    "zookeeper.connection.timeout.ms": "18000",
    "group.initial.rebalance.delay.ms": "0",
    "inter.broker.protocol.version": "3.9",
    "log.message.format.version": "3.0-IV1",
    "control.plane.listener.name": "CONTROL",
    "listeners": "PLAINTEXT://:9092,CONTROL://:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://h:9092,CONTROL://h:9094",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin;User:kafka",
    "allow.everyone.if.no.acl.found": "true",
    "confluent.support.metrics.enable": "false",
}


def refusal(**settings: str) -> str:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_properties({name.replace("_", "."): s for name, s in settings.items()})
    assert "\n" not in refused.value.message
    return refused.value.message


def test_defaults_without_settings() -> None:
    config = BrokerConfig.from_properties({})
    assert config.list("log.dirs") == ["./penstock-data"]
    assert (config.int("node.id"), config.int("broker.id")) == (0, 0)
    assert config.int("message.max.bytes") == 1_048_588
    assert config.float("log.cleaner.min.cleanable.ratio") == 0.5
    assert config.bool("auto.create.topics.enable") is True
    assert config.str("compression.type") == "producer"
    assert config.text("log.retention.hours") == "168"
    assert config.text("log.retention.ms") is None
    assert config.value("log.retention.ms") is None
    assert config.value("ssl.key.password") is None
    assert config.is_set("num.partitions") is False
    assert config.warnings() == []


def test_the_described_replication_of_internal_topics_is_kafkas_default() -> None:
    """The limit by the number of live brokers applies when the topic is created."""
    config = BrokerConfig.from_properties({})
    for name, value in (
        ("offsets.topic.replication.factor", 3),
        ("transaction.state.log.replication.factor", 3),
        ("transaction.state.log.min.isr", 2),
    ):
        assert config.int(name) == value
        assert "capped" in BROKER_SETTINGS[name].doc or "never more" in BROKER_SETTINGS[name].doc


def test_kafkas_own_file_of_a_combined_node_is_accepted() -> None:
    config = BrokerConfig.from_properties(KRAFT_FILE, hostname="h")
    assert [spec.name for spec in config.listeners] == ["PLAINTEXT"]
    assert [str(spec) for spec in config.advertised] == ["PLAINTEXT://localhost:9092"]
    assert (config.int("node.id"), config.int("broker.id")) == (1, 1)
    assert config.int("offsets.topic.replication.factor") == 1
    (line,) = config.warnings()
    names = config.without_effect()
    assert line == f"{len(names)} settings have no effect in Penstock: {', '.join(names)}"
    assert {"process.roles", "controller.listener.names", "num.io.threads"} <= set(names)
    assert not {"listeners", "node.id", "log.dirs", "log.retention.hours"} & set(names)


def test_a_file_for_zookeeper_mode_is_accepted() -> None:
    config = BrokerConfig.from_properties(ZOOKEEPER_FILE)
    assert config.int("node.id") == 3
    assert [spec.name for spec in config.listeners] == ["PLAINTEXT", "CONTROL"]
    assert config.str("super.users") == "User:admin;User:kafka"
    assert "zookeeper.connect" not in config.without_effect()
    assert "confluent.support.metrics.enable" in config.without_effect()
    assert "super.users" not in config.without_effect()


def test_a_single_setting_without_effect() -> None:
    config = BrokerConfig.from_properties({"num.io.threads": "4"})
    assert config.warnings() == ["1 setting has no effect in Penstock: num.io.threads"]


@pytest.mark.parametrize("name", list(BROKER_SETTINGS))
def test_every_setting_is_accepted_with_its_default(name: str) -> None:
    default = BROKER_SETTINGS[name].default
    if default is not None:
        config = BrokerConfig.from_properties({name: default})
        assert config.value(name) == BROKER_SETTINGS[name].default_value()
    else:
        assert BrokerConfig.from_properties({}).value(name) is None


@pytest.mark.parametrize(
    ("settings", "node"),
    [
        ({"broker.id": "5"}, 5),
        ({"node.id": "6"}, 6),
        ({"node.id": "7", "broker.id": " 7"}, 7),
        ({"broker.id": "-1"}, 0),
        ({"broker.id": "-1", "node.id": "4"}, 4),
    ],
)
def test_node_id_and_broker_id_are_synonyms(settings: dict[str, str], node: int) -> None:
    config = BrokerConfig.from_properties(settings)
    assert (config.int("node.id"), config.int("broker.id")) == (node, node)


def test_log_dir_is_used_if_log_dirs_is_not_set() -> None:
    assert BrokerConfig.from_properties({"log.dir": "a"}).list("log.dirs") == ["a"]
    configured = BrokerConfig.from_properties({"log.dir": "a", "log.dirs": "b, c"})
    assert configured.list("log.dirs") == ["b", "c"]


def test_the_error_of_an_unknown_name_suggests_the_nearest() -> None:
    message = refusal(log_retension_ms="1")
    assert message == "log.retension.ms: no such setting; did you mean log.retention.ms?"
    assert refusal(zzz="1") == "zzz: no such setting"
    assert "no such setting" in refusal(listener_name_plaintext_colour="red")


def test_the_error_of_an_invalid_value_has_the_valid_ones() -> None:
    assert refusal(num_partitions="0") == "num.partitions: '0' is invalid: must be at least 1"
    with pytest.raises(ConfigError, match="must be at least 0"):
        BrokerConfig.from_properties({"listener.name.plaintext.max.connections": "-1"})


@pytest.mark.parametrize(
    ("settings", "expected_error"),
    [
        ({"node_id": "1", "broker_id": "2"}, "differs from broker.id"),
        ({"log_retention_ms": "0"}, "at least 1, or -1 for no limit"),
        ({"log_retention_hours": "0"}, "log.retention.hours: 0 is invalid"),
        ({"log_roll_ms": "0"}, "at least 1"),
        ({"log_roll_jitter_ms": "-1"}, "at least 0"),
        ({"log_cleaner_dedupe_buffer_size": "1048576"}, "more than 1 MiB"),
        ({"log_cleaner_threads": "200"}, "each of the 200"),
        (
            {"log_cleaner_min_compaction_lag_ms": "9", "log_cleaner_max_compaction_lag_ms": "8"},
            "9 is more than log.cleaner.max.compaction.lag.ms, which is 8",
        ),
        ({"queued_max_request_bytes": "1000"}, "more than queued.max.request.bytes"),
        ({"max_connections_per_ip": "0"}, "or set max.connections.per.ip.overrides"),
        ({"max_connections_per_ip_overrides": "10.0.0.1"}, "must be host:count"),
        ({"connections_max_idle_ms": "100"}, "less than connections.max.idle.ms"),
        ({"replica_fetch_wait_max_ms": "40000"}, "more than replica.socket.timeout.ms"),
        ({"replica_lag_time_max_ms": "400"}, "more than replica.lag.time.max.ms"),
        ({"replica_selector_class": "org.example.Nearest"}, "RackAwareReplicaSelector"),
        ({"group_consumer_heartbeat_interval_ms": "4000"}, "group.consumer.heartbeat.interval.ms"),
        ({"group_share_max_session_timeout_ms": "1000"}, "group.share.max.session.timeout.ms"),
        ({"group_max_session_timeout_ms": "10"}, "more than group.max.session.timeout.ms"),
        ({"group_streams_num_standby_replicas": "3"}, "group.streams.max.standby.replicas"),
        ({"authorizer_class_name": "org.example.Mine"}, "StandardAuthorizer"),
    ],
)
def test_incompatible_settings_are_refused(settings: dict[str, str], expected_error: str) -> None:
    assert expected_error in refusal(**settings)


OF_KAFKA_3_9 = """
auto.include.jmx.reporter broker.id.generation.enable control.plane.listener.name
delegation.token.master.key
eligible.leader.replicas.enable group.coordinator.new.enable group.share.enable
group.share.max.groups inter.broker.protocol.version leader.imbalance.per.broker.percentage
log.message.downconversion.enable log.message.format.version
log.message.timestamp.difference.max.ms metadata.log.segment.min.bytes
offsets.commit.required.acks password.encoder.cipher.algorithm password.encoder.iterations
password.encoder.key.length password.encoder.keyfactory.algorithm password.encoder.old.secret
password.encoder.secret reserved.broker.max.id zookeeper.clientCnxnSocket zookeeper.connect
zookeeper.connection.timeout.ms zookeeper.max.in.flight.requests
zookeeper.metadata.migration.enable zookeeper.metadata.migration.min.batch.size
zookeeper.session.timeout.ms zookeeper.set.acl zookeeper.ssl.cipher.suites
zookeeper.ssl.client.enable zookeeper.ssl.crl.enable zookeeper.ssl.enabled.protocols
zookeeper.ssl.endpoint.identification.algorithm zookeeper.ssl.keystore.location
zookeeper.ssl.keystore.password zookeeper.ssl.keystore.type zookeeper.ssl.ocsp.enable
zookeeper.ssl.protocol zookeeper.ssl.truststore.location zookeeper.ssl.truststore.password
zookeeper.ssl.truststore.type
"""


@pytest.mark.parametrize("name", OF_KAFKA_3_9.split())
def test_settings_of_kafka_3_are_accepted(name: str) -> None:
    assert BROKER_SETTINGS[name].old is True


def test_a_session_timeout_must_exceed_the_heartbeat_interval() -> None:
    assert "must be more than group.share.heartbeat.interval.ms" in refusal(
        group_share_min_session_timeout_ms="1",
        group_share_session_timeout_ms="5000",
    )


def test_connections_of_single_addresses() -> None:
    config = BrokerConfig.from_properties(
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "10.0.0.1:5, h:0,::1:7"}
    )
    assert connection_overrides(config) == {"10.0.0.1": 5, "h": 0, "::1": 7}


def test_values_from_config_providers_are_refused() -> None:
    with pytest.raises(ConfigError, match="write the value itself") as refused:
        BrokerConfig.from_properties(
            {
                "config.providers": "file",
                "config.providers.file.class": "org.apache.kafka.FileConfigProvider",
                "ssl.key.password": "${file:/run/secrets:key}",
            }
        )
    assert refused.value.name == "ssl.key.password"
    plain = BrokerConfig.from_properties({"ssl.key.password": "${file:x}"})
    assert plain.value("ssl.key.password") == "${file:x}"


def test_a_listener_has_its_own_settings_or_those_of_all() -> None:
    """X1, X2: by listener and mechanism, by listener, for all, by default."""
    config = BrokerConfig.from_properties(
        {
            "ssl.keystore.location": "all.pem",
            "listener.name.inside.ssl.keystore.location": "inside.pem",
            "sasl.jaas.config": "for all",
            "listener.name.inside.sasl.jaas.config": "inside",
            "listener.name.inside.scram-sha-256.sasl.jaas.config": "scram",
            "listener.name.inside.max.connections": "7",
        }
    )
    assert config.listener_setting("INSIDE", "ssl.keystore.location") == "inside.pem"
    assert config.listener_setting("OUTSIDE", "ssl.keystore.location") == "all.pem"
    assert config.listener_setting("INSIDE", "ssl.keystore.type") == "JKS"
    assert config.listener_setting("INSIDE", "ssl.truststore.location") is None
    jaas = "sasl.jaas.config"
    assert config.listener_setting("INSIDE", jaas, "SCRAM-SHA-256") == "scram"
    assert config.listener_setting("INSIDE", jaas, "PLAIN") == "inside"
    assert config.listener_setting("OUTSIDE", jaas, "PLAIN") == "for all"
    assert config.listener_value("INSIDE", "max.connections") == 7
    assert config.listener_value("OUTSIDE", "max.connections") == 2**31 - 1


def test_reading_an_undefined_setting_is_an_error() -> None:
    config = BrokerConfig.from_properties({})
    for read in (config.text, config.int, config.value, config.is_set):
        with pytest.raises(KeyError):
            read("no.such.name")
    with pytest.raises(KeyError):
        config.listener_setting("PLAINTEXT", "no.such.name")


def test_reading_a_setting_as_another_type_is_an_error() -> None:
    config = BrokerConfig.from_properties({})
    for read, name in (
        (config.int, "auto.create.topics.enable"),
        (config.int, "log.retention.ms"),
        (config.float, "num.partitions"),
        (config.bool, "num.partitions"),
        (config.str, "log.dirs"),
        (config.list, "compression.type"),
    ):
        with pytest.raises(TypeError, match=name):
            read(name)
