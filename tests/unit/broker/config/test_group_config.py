"""Settings of groups (C3): their own within the broker's limits, or the broker's."""

import pytest

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.entry import Synonym
from penstock.broker.config.group_config import (
    GROUP_SETTINGS,
    describe_group,
    group_int,
    group_value,
    limits,
    validate_group_configs,
)
from penstock.broker.config.settings import ConfigError
from penstock.protocol.enums import ConfigSource


def broker(**settings: str) -> BrokerConfig:
    return BrokerConfig.from_properties({name.replace("_", "."): s for name, s in settings.items()})


def test_a_group_inherits_the_settings_of_the_broker() -> None:
    config = broker(group_consumer_session_timeout_ms="50000")
    assert group_int(config, {}, "consumer.session.timeout.ms") == 50_000
    own = {"consumer.session.timeout.ms": "55000"}
    assert group_int(config, own, "consumer.session.timeout.ms") == 55_000
    assert group_value(config, {}, "share.auto.offset.reset") == "latest"
    assert group_value(config, {}, "share.renew.acknowledge.enable") is True
    with pytest.raises(TypeError, match=r"share\.auto\.offset\.reset"):
        group_int(config, {}, "share.auto.offset.reset")


def test_values_are_limited_by_later_limits_of_the_broker() -> None:
    config = broker(group_consumer_max_session_timeout_ms="50000")
    own = {"consumer.session.timeout.ms": "55000", "streams.num.standby.replicas": "9"}
    assert group_int(config, own, "consumer.session.timeout.ms") == 50_000
    assert group_int(config, own, "streams.num.standby.replicas") == 2
    assert limits(config, "streams.num.standby.replicas") == (None, 2)
    assert limits(config, "share.isolation.level") == (None, None)


def test_every_value_of_the_broker_is_within_its_limits() -> None:
    validate_group_configs(
        {
            name: setting.default
            for name, setting in GROUP_SETTINGS.items()
            if setting.default is not None
        },
        broker(),
    )
    assert len(GROUP_SETTINGS) == 17


@pytest.mark.parametrize(
    ("own", "expected_error"),
    [
        ({"session.timeout.ms": "1"}, "no such group setting; did you mean"),
        ({"consumer.session.timeout.ms": "x"}, "must be a whole number"),
        (
            {"consumer.session.timeout.ms": "44999"},
            "less than the broker's minimum, 45000",
        ),
        (
            {"consumer.session.timeout.ms": "60001"},
            "more than the broker's maximum, 60000",
        ),
        ({"share.isolation.level": "none"}, "one of read_committed, read_uncommitted"),
        ({"share.auto.offset.reset": "first"}, "by_duration"),
    ],
)
def test_invalid_settings_are_refused(own: dict[str, str], expected_error: str) -> None:
    with pytest.raises(ConfigError) as refused:
        validate_group_configs(own, broker())
    assert expected_error in refused.value.message
    assert refused.value.name in own


def test_a_session_timeout_must_exceed_the_heartbeat_interval() -> None:
    config = broker(
        group_share_min_session_timeout_ms="6000", group_share_session_timeout_ms="6000"
    )
    validate_group_configs({"share.heartbeat.interval.ms": "5999"}, config)
    with pytest.raises(ConfigError, match="must be more than"):
        validate_group_configs({"share.heartbeat.interval.ms": "6000"}, config)


def test_described_settings() -> None:
    own = {"consumer.heartbeat.interval.ms": "7000"}
    entries = {entry.name: entry for entry in describe_group(broker(), own)}
    assert list(entries) == sorted(GROUP_SETTINGS)
    configured = entries["consumer.heartbeat.interval.ms"]
    assert (configured.value, configured.source) == ("7000", ConfigSource.DYNAMIC_GROUP_CONFIG)
    assert configured.synonyms == (
        Synonym("consumer.heartbeat.interval.ms", "7000", ConfigSource.DYNAMIC_GROUP_CONFIG),
        Synonym("group.consumer.heartbeat.interval.ms", "5000", ConfigSource.DEFAULT_CONFIG),
    )
    default = entries["share.isolation.level"]
    assert (default.value, default.source) == ("read_uncommitted", ConfigSource.DEFAULT_CONFIG)
    (entry,) = describe_group(broker(), {}, ["share.session.timeout.ms", "colour"])
    assert entry.name == "share.session.timeout.ms"
