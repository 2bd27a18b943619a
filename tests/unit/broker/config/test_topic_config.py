"""Settings of topics, with the broker's defaults, also in DescribeConfigs (S4)."""

import pytest

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.entry import ConfigEntry, Synonym
from penstock.broker.config.settings import ConfigError
from penstock.broker.config.topic_config import (
    TOPIC_SETTINGS,
    TOPIC_SYNONYMS,
    TopicConfig,
    describe_topic,
    topic_config,
    validate_topic_configs,
)
from penstock.core.errors import ErrorCode
from penstock.protocol.enums import ConfigSource, ConfigType
from penstock.storage.log_config import SETTINGS as LOG_SETTINGS
from penstock.storage.log_config import LogConfig

MINUTE = 60_000
HOUR = 60 * MINUTE


def broker(**settings: str) -> BrokerConfig:
    return BrokerConfig.from_properties({name.replace("_", "."): s for name, s in settings.items()})


def refusal(name: str, text: str) -> str:
    with pytest.raises(ConfigError) as refused:
        validate_topic_configs({name: text}, broker())
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    return refused.value.message


def test_the_defaults_are_those_of_kafka() -> None:
    assert topic_config(broker(), {}) == TopicConfig(LogConfig(), 1, False, (), ())


def test_every_setting_of_a_log_is_a_topic_setting_with_a_synonym() -> None:
    assert set(LOG_SETTINGS) <= set(TOPIC_SYNONYMS) <= set(TOPIC_SETTINGS)


def test_a_topic_inherits_the_settings_of_the_broker() -> None:
    """S4: global and per topic."""
    config = broker(
        log_segment_bytes="2000000",
        message_max_bytes="5",
        log_cleanup_policy="compact,delete",
        min_insync_replicas="2",
        unclean_leader_election_enable="true",
        compression_type="zstd",
        log_cleaner_min_cleanable_ratio="0.25",
        log_preallocate="true",
    )
    topic = topic_config(config, {})
    assert topic.log.segment_bytes == 2_000_000
    assert topic.log.max_message_bytes == 5
    assert topic.log.cleanup_policy == frozenset({"compact", "delete"})
    assert (topic.log.compression_type, topic.log.min_cleanable_dirty_ratio) == ("zstd", 0.25)
    assert (topic.min_insync_replicas, topic.unclean_leader_election_enable) == (2, True)
    assert topic.log.preallocate is True


def test_the_settings_of_a_topic_win() -> None:
    own = {
        "retention.ms": "5",
        "min.insync.replicas": "3",
        "unclean.leader.election.enable": "true",
        "leader.replication.throttled.replicas": "0:1, 1:2",
        "follower.replication.throttled.replicas": "*",
        "internal.segment.bytes": "100",
        "colour": "a setting of a version yet to come",
    }
    topic = topic_config(broker(log_retention_ms="7", min_insync_replicas="2"), own)
    assert (topic.log.retention_ms, topic.min_insync_replicas) == (5, 3)
    assert topic.unclean_leader_election_enable is True
    assert topic.leader_replication_throttled_replicas == ("0:1", "1:2")
    assert topic.follower_replication_throttled_replicas == ("*",)
    assert topic.log.segment_bytes == 100


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 168 * HOUR),
        ({"log_retention_hours": "2"}, 2 * HOUR),
        ({"log_retention_hours": "2", "log_retention_minutes": "3"}, 3 * MINUTE),
        ({"log_retention_minutes": "3", "log_retention_ms": "4"}, 4),
        ({"log_retention_hours": "-1"}, -1),
        ({"log_retention_minutes": "-1"}, -1),
        ({"log_retention_ms": "-5"}, -1),
    ],
)
def test_retention_can_be_set_in_three_units(settings: dict[str, str], expected: int) -> None:
    """S4: the finest unit wins, and a negative number means unlimited."""
    assert topic_config(broker(**settings), {}).log.retention_ms == expected


def test_other_settings_in_several_units() -> None:
    config = broker(
        log_roll_hours="3", log_roll_jitter_hours="1", log_flush_scheduler_interval_ms="9"
    )
    log = topic_config(config, {}).log
    assert (log.segment_ms, log.segment_jitter_ms, log.flush_ms) == (3 * HOUR, HOUR, 9)
    finer = topic_config(broker(log_roll_hours="3", log_roll_ms="5"), {}).log
    assert finer.segment_ms == 5


def test_a_changed_setting_of_the_broker_applies_to_its_topics() -> None:
    config = broker(log_retention_hours="1")
    before = topic_config(config, {"segment.ms": "5"})
    assert topic_config(config, {"segment.ms": "5"}) is before
    config.set_dynamic({"log.retention.ms": "1000"}, {})
    after = topic_config(config, {"segment.ms": "5"})
    assert (before.log.retention_ms, after.log.retention_ms) == (HOUR, 1000)


def test_two_brokers_do_not_share_cached_settings() -> None:
    first, second = broker(log_retention_ms="1"), broker(log_retention_ms="2")
    assert [topic_config(config, {}).log.retention_ms for config in (first, second, first)] == [
        1,
        2,
        1,
    ]


def test_the_cache_has_a_limit() -> None:
    config = broker()
    first = topic_config(config, {"retention.ms": "0"})
    for number in range(1, 4200):
        topic_config(config, {"retention.ms": str(number)})
    second = topic_config(config, {"retention.ms": "0"})
    assert second == first
    assert second is not first


@pytest.mark.parametrize(
    ("name", "text", "expected_error"),
    [
        ("retenton.ms", "1", "no such topic setting; did you mean retention.ms?"),
        ("retention.ms", "soon", "'soon' is invalid: must be a whole number"),
        ("retention.ms", "-2", "must be at least -1"),
        ("segment.bytes", "1024", "must be at least 1048576"),
        ("segment.index.bytes", "23", "must be at least 24"),
        ("cleanup.policy", "purge", "one of compact, delete"),
        ("min.insync.replicas", "0", "must be at least 1"),
        ("remote.storage.enable", "true", "Penstock has no remote storage"),
        ("leader.replication.throttled.replicas", "1", "partition:broker"),
    ],
)
def test_invalid_settings_are_refused(name: str, text: str, expected_error: str) -> None:
    message = refusal(name, text)
    assert message.startswith(f"{name}: ")
    assert expected_error in message


def test_compaction_lags_are_checked_with_those_of_the_broker() -> None:
    """S5: the topic sets the minimum, the broker the maximum."""
    config = broker(log_cleaner_max_compaction_lag_ms="10")
    validate_topic_configs({"min.compaction.lag.ms": "10"}, config)
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms: 11 is more than max"):
        validate_topic_configs({"min.compaction.lag.ms": "11"}, config)


def test_a_topic_remains_valid_after_a_conflicting_change_of_the_broker() -> None:
    config = broker()
    own = {"min.compaction.lag.ms": "100"}
    assert topic_config(config, own).log.min_compaction_lag_ms == 100
    config.set_dynamic({"log.cleaner.max.compaction.lag.ms": "50"}, {})
    assert topic_config(config, own).log.min_compaction_lag_ms == 50


def test_valid_settings_are_accepted() -> None:
    validate_topic_configs(
        {
            "cleanup.policy": "",
            "retention.bytes": "-2",
            "remote.storage.enable": "false",
            "message.downconversion.enable": "false",
            "message.format.version": "2.8",
            "local.retention.ms": "-2",
        },
        broker(),
    )
    assert topic_config(broker(), {"retention.bytes": "-2"}).log.retention_bytes == -1


def described(config: BrokerConfig, own: dict[str, str], name: str) -> ConfigEntry:
    (entry,) = describe_topic(config, own, [name])
    assert entry.name == name
    return entry


def test_a_value_with_its_synonyms_of_all_sources() -> None:
    config = broker(message_max_bytes="2")
    config.set_dynamic({"message.max.bytes": "3"}, {"message.max.bytes": "4"})
    entry = described(config, {"max.message.bytes": "5"}, "max.message.bytes")
    assert (entry.value, entry.source) == ("5", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert (entry.type, entry.read_only, entry.sensitive) == (ConfigType.INT, False, False)
    assert entry.synonyms == (
        Synonym("max.message.bytes", "5", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        Synonym("message.max.bytes", "4", ConfigSource.DYNAMIC_BROKER_CONFIG),
        Synonym("message.max.bytes", "3", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        Synonym("message.max.bytes", "2", ConfigSource.STATIC_BROKER_CONFIG),
        Synonym("message.max.bytes", "1048588", ConfigSource.DEFAULT_CONFIG),
    )
    assert described(config, {}, "max.message.bytes").source is ConfigSource.DYNAMIC_BROKER_CONFIG


def test_a_value_in_other_units_is_described_in_milliseconds() -> None:
    entry = described(broker(log_retention_hours="1"), {}, "retention.ms")
    assert (entry.value, entry.synonyms) == (str(HOUR), ())


def test_described_settings() -> None:
    names = [entry.name for entry in describe_topic(broker(), {})]
    assert names == sorted(names)
    assert len(names) == 33
    assert "internal.segment.bytes" not in names
    own = {"internal.segment.bytes": "5", "message.format.version": "2.8"}
    assert set(own) <= {entry.name for entry in describe_topic(broker(), own)}
    assert describe_topic(broker(), {}, ["colour"]) == []


@pytest.mark.parametrize("size", ["14", "16384"])
def test_a_segment_size_that_only_kafka_3_9_accepts_is_obeyed_but_cannot_be_set(size: str) -> None:
    own = {"segment.bytes": size, "retention.ms": "5"}
    topic = topic_config(broker(), own)
    assert (topic.log.segment_bytes, topic.log.retention_ms) == (int(size), 5)
    assert topic.log.cleanup_policy == frozenset({"delete"})
    assert described(broker(), own, "segment.bytes").value == size
    assert "must be at least 1048576" in refusal("segment.bytes", size)
    validate_topic_configs({**own, "retention.ms": "6"}, broker(), own)
    with pytest.raises(ConfigError):
        validate_topic_configs({"segment.bytes": "15"}, broker(), own)


@pytest.mark.parametrize(
    ("name", "text"), [("segment.bytes", "13"), ("retention.ms", "x"), ("cleanup.policy", "shred")]
)
def test_an_invalid_setting_in_the_store_stops_only_deletions(name: str, text: str) -> None:
    """E2: the topic is served, with the default of that setting."""
    topic = topic_config(broker(), {name: text, "min.insync.replicas": "2"})
    assert topic.min_insync_replicas == 2
    assert topic.log.cleanup_policy == frozenset()
    assert topic.log.segment_bytes == LogConfig().segment_bytes
    described(broker(), {name: text}, name)
