"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources over the wire."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.enums import ConfigOpType, ConfigResourceType, ConfigSource, ConfigType
from penstock.protocol.messages.alter_configs import (
    AlterConfigsAlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from penstock.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.protocol.admin import BROKER, TOPIC, alter, create_topic, describe, try_alter

LOGGER = ConfigResourceType.BROKER_LOGGER
METRICS = ConfigResourceType.CLIENT_METRICS
GROUP = ConfigResourceType.GROUP


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {"node.id": "7", "ssl.keystore.password": "secret", "log.retention.hours": "24"}
    with running_broker(tmp_path_factory.mktemp("configs"), settings) as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[WireClient]:
    with broker.connect() as wire_client:
        yield wire_client


def test_a_topic_setting_has_the_source_of_its_value(client: WireClient) -> None:
    create_topic(client, "sources", {"retention.ms": "1000"})
    result = describe(client, TOPIC, "sources")
    entry = result["retention.ms"]
    assert (entry.value, entry.config_source) == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert entry.config_type == ConfigType.LONG
    assert entry.documentation
    assert not entry.read_only
    assert [(synonym.name, synonym.value) for synonym in entry.synonyms] == [
        ("retention.ms", "1000")
    ]
    assert result["segment.bytes"].config_source == ConfigSource.DEFAULT_CONFIG
    alter(client, TOPIC, "sources", {"retention.ms": None})
    entry = describe(client, TOPIC, "sources", ["retention.ms"])["retention.ms"]
    assert entry.value == str(24 * 3_600_000)


def test_only_requested_settings_are_described(client: WireClient) -> None:
    create_topic(client, "named")
    assert list(describe(client, TOPIC, "named", ["retention.ms"])) == ["retention.ms"]
    assert describe(client, TOPIC, "named", ["no.such.setting"]) == {}
    assert len(describe(client, TOPIC, "named", [])) == len(describe(client, TOPIC, "named")) > 20


@pytest.mark.parametrize("version", range(5))
def test_settings_are_described_in_every_version(client: WireClient, version: int) -> None:
    create_topic(client, "versions", {"retention.ms": "5"})
    result = describe(client, TOPIC, "versions", version=version)
    assert result["retention.ms"].value == "5"
    if version == 0:
        assert (result["retention.ms"].is_default, result["segment.ms"].is_default) == (False, True)
    assert bool(result["retention.ms"].synonyms) == (version >= 1)
    assert bool(result["retention.ms"].documentation) == (version >= 3)


def test_broker_settings_are_described_without_passwords(client: WireClient) -> None:
    result = describe(client, BROKER, "7")
    assert result["log.retention.hours"].config_source == ConfigSource.STATIC_BROKER_CONFIG
    password = result["ssl.keystore.password"]
    assert (password.value, password.is_sensitive) == (None, True)
    assert [synonym.value for synonym in password.synonyms] == [None]
    assert result["log.dirs"].read_only
    assert not result["log.retention.ms"].read_only


def test_defaults_of_all_brokers_are_a_separate_resource(client: WireClient) -> None:
    assert describe(client, BROKER, "") == {}
    alter(client, BROKER, "", {"log.flush.interval.messages": "77"})
    alter(client, BROKER, "7", {"log.flush.interval.messages": "88"})
    default = describe(client, BROKER, "")["log.flush.interval.messages"]
    assert default.config_source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert default.value == "77"
    dynamic = describe(client, BROKER, "7")["log.flush.interval.messages"]
    assert (dynamic.value, dynamic.config_source) == ("88", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert [synonym.value for synonym in dynamic.synonyms][:2] == ["88", "77"]
    for name in ("", "7"):
        alter(client, BROKER, name, {"log.flush.interval.messages": None})


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "not/a/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "8", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (METRICS, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (3, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_unknown_resources_are_not_described(
    client: WireClient, kind: int, name: str, code: ErrorCode
) -> None:
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, None)])
    result = client.request(request, 4).results[0]
    assert (result.error_code, result.configs) == (code, [])
    assert result.error_message


def test_groups_and_metrics_subscriptions_have_settings(client: WireClient) -> None:
    alter(client, GROUP, "g", {"consumer.session.timeout.ms": "50000"})
    entry = describe(client, GROUP, "g")["consumer.session.timeout.ms"]
    assert (entry.value, entry.config_source) == ("50000", ConfigSource.DYNAMIC_GROUP_CONFIG)
    alter(client, METRICS, "m", {"interval.ms": "1000", "match": "client_id=a.*"})
    entry = describe(client, METRICS, "m")["match"]
    assert entry.value == "client_id=a.*"
    assert entry.config_source == ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG


@pytest.mark.parametrize(
    ("kind", "name", "settings", "code"),
    [
        (TOPIC, "strict", {"retention.ms": "soon"}, ErrorCode.INVALID_CONFIG),
        (TOPIC, "strict", {"retention.mss": "1"}, ErrorCode.INVALID_CONFIG),
        (TOPIC, "missing", {"retention.ms": "1"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", {"retention.ms": "1"}, ErrorCode.INVALID_REQUEST),
        (BROKER, "7", {"log.dirs": "/x"}, ErrorCode.INVALID_REQUEST),
        (BROKER, "7", {"no.such.setting": "1"}, ErrorCode.INVALID_REQUEST),
        (BROKER, "8", {"log.retention.ms": "1"}, ErrorCode.INVALID_REQUEST),
        (BROKER, "", {"listener.name.x.ssl.keystore.type": "PEM"}, ErrorCode.INVALID_REQUEST),
        (GROUP, "g", {"consumer.session.timeout.ms": "1"}, ErrorCode.INVALID_CONFIG),
        (TOPIC, "not/a/name", {"retention.ms": "1"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (METRICS, "m", {"interval.ms": "1"}, ErrorCode.INVALID_REQUEST),
        (METRICS, "m", {"no.such.setting": "1"}, ErrorCode.INVALID_REQUEST),
        (METRICS, "m", {"match": "client_id=("}, ErrorCode.INVALID_CONFIG),
        (3, "x", {"a": "b"}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_changes_are_rejected_with_a_reason(
    client: WireClient, kind: int, name: str, settings: dict[str, str], code: ErrorCode
) -> None:
    create_topic(client, "strict")
    actual_code, reason = try_alter(client, kind, name, settings)
    assert actual_code is code
    assert reason


def test_the_changes_of_a_resource_are_atomic(client: WireClient) -> None:
    create_topic(client, "whole")
    changes = {"retention.ms": "1", "segment.bytes": "x"}
    assert try_alter(client, TOPIC, "whole", changes)[0] is ErrorCode.INVALID_CONFIG
    assert try_alter(client, TOPIC, "whole", {"retention.ms": "1"}, validate_only=True) == (0, None)
    assert describe(client, TOPIC, "whole")["retention.ms"].value != "1"


def test_list_values_are_appended_and_subtracted(client: WireClient) -> None:
    create_topic(client, "lists")
    policy = {"cleanup.policy": "compact"}
    assert try_alter(client, TOPIC, "lists", policy, ConfigOpType.APPEND)[0] == 0
    assert describe(client, TOPIC, "lists")["cleanup.policy"].value == "delete,compact"
    delete = {"cleanup.policy": "delete"}
    assert try_alter(client, TOPIC, "lists", delete, ConfigOpType.SUBTRACT)[0] == 0
    assert describe(client, TOPIC, "lists")["cleanup.policy"].value == "compact"
    number = {"retention.ms": "1"}
    code, _ = try_alter(client, TOPIC, "lists", number, ConfigOpType.APPEND)
    assert code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces_all_settings(client: WireClient, version: int) -> None:
    create_topic(client, "older", {"retention.ms": "1"})
    topic_resource = AlterConfigsResource(
        TOPIC, "older", [AlterConfigsAlterableConfig("segment.ms", "9")]
    )
    logger_resource = AlterConfigsResource(
        LOGGER, "7", [AlterConfigsAlterableConfig("root", "INFO")]
    )
    response = client.request(AlterConfigsRequest([logger_resource, topic_resource]), version)
    codes = {item.resource_type: item.error_code for item in response.responses}
    assert codes == {TOPIC: 0, LOGGER: ErrorCode.INVALID_REQUEST}
    result = describe(client, TOPIC, "older")
    assert result["segment.ms"].value == "9"
    assert result["retention.ms"].value != "1"


def test_duplicate_resources_are_rejected(client: WireClient) -> None:
    """Every occurrence has an error; the others are changed.

    Results are in the order of the request.
    """
    create_topic(client, "once")
    create_topic(client, "twice")
    changes: list[tuple[int, str, str, str]] = [
        (TOPIC, "twice", "retention.ms", "1000"),
        (LOGGER, "7", "root", "INFO"),
        (TOPIC, "nowhere", "retention.ms", "1000"),
        (BROKER, "8", "num.io.threads", "9"),
        (TOPIC, "once", "retention.ms", "2000"),
        (LOGGER, "7", "root", "ERROR"),
        (TOPIC, "twice", "retention.ms", "1000"),
    ]
    invalid = ErrorCode.INVALID_REQUEST
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    expected = [invalid, invalid, unknown, invalid, ErrorCode.NONE, invalid, invalid]
    before = logging.root.level
    incremental = IncrementalAlterConfigsRequest(
        [
            IncrementalAlterConfigsResource(
                kind, name, [IncrementalAlterConfigsAlterableConfig(setting, 0, value)]
            )
            for kind, name, setting, value in changes
        ]
    )
    full = AlterConfigsRequest(
        [
            AlterConfigsResource(kind, name, [AlterConfigsAlterableConfig(setting, value)])
            for kind, name, setting, value in changes
        ]
    )
    for request, version in ((incremental, 1), (full, 2)):
        responses = client.request(request, version).responses
        assert [response.error_code for response in responses] == expected
        assert [(response.resource_type, response.resource_name) for response in responses] == [
            (kind, name) for kind, name, _, _ in changes
        ]
        assert "2 times" in responses[0].error_message
    assert logging.root.level == before
    day_ms = "86400000"
    for topic, value in (("once", "2000"), ("twice", day_ms)):
        assert describe(client, TOPIC, topic)["retention.ms"].value == value


def test_config_resources_are_listed(client: WireClient) -> None:
    create_topic(client, "listed")
    alter(client, METRICS, "subscription", {"interval.ms": "1000"})
    alter(client, GROUP, "listed group", {"consumer.session.timeout.ms": "50000"})
    old = client.request(ListConfigResourcesRequest(), 0)
    assert "subscription" in {resource.resource_name for resource in old.config_resources}
    assert "listed" not in {resource.resource_name for resource in old.config_resources}
    everything = client.request(ListConfigResourcesRequest(), 1)
    result = {
        (resource.resource_type, resource.resource_name) for resource in everything.config_resources
    }
    assert result >= {
        (TOPIC, "listed"),
        (BROKER, "7"),
        (LOGGER, "7"),
        (METRICS, "subscription"),
        (GROUP, "listed group"),
    }
    groups = client.request(ListConfigResourcesRequest([GROUP]), 1)
    assert {resource.resource_type for resource in groups.config_resources} == {GROUP}
    unknown = client.request(ListConfigResourcesRequest([3]), 1)
    assert unknown.error_code == ErrorCode.UNSUPPORTED_VERSION
    alter(client, METRICS, "subscription", {"interval.ms": None})
    old = client.request(ListConfigResourcesRequest(), 0)
    assert "subscription" not in {resource.resource_name for resource in old.config_resources}


def test_logger_levels_change_at_once(client: WireClient) -> None:
    request_logger = logging.getLogger("penstock.broker.dispatcher")
    assert describe(client, LOGGER, "7").keys() >= {"root", "kafka", "kafka.request.logger"}
    alter(client, LOGGER, "7", {"kafka.request.logger": "TRACE"})
    try:
        assert request_logger.isEnabledFor(logging.DEBUG)
        entry = describe(client, LOGGER, "7", ["kafka.request.logger"])["kafka.request.logger"]
        assert (entry.value, entry.synonyms) == ("TRACE", [])
        assert entry.config_source == ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    finally:
        alter(client, LOGGER, "7", {"kafka.request.logger": None})
    assert request_logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("settings", "operation", "code"),
    [
        ({"kafka": "LOUD"}, ConfigOpType.SET, ErrorCode.INVALID_CONFIG),
        ({"no.such.logger": "INFO"}, ConfigOpType.SET, ErrorCode.INVALID_CONFIG),
        ({"kafka": "INFO"}, ConfigOpType.APPEND, ErrorCode.INVALID_REQUEST),
        ({"root": None}, ConfigOpType.DELETE, ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_logger_levels_are_rejected(
    client: WireClient,
    settings: dict[str, str | None],
    operation: ConfigOpType,
    code: ErrorCode,
) -> None:
    assert try_alter(client, LOGGER, "7", settings, operation)[0] is code


def test_settings_survive_a_restart(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, broker.connect() as client:
        create_topic(client, "retained")
        alter(client, TOPIC, "retained", {"retention.ms": "123"})
        alter(client, BROKER, "", {"message.max.bytes": "2000"})
    with running_broker(tmp_path) as broker, broker.connect() as client:
        assert describe(client, TOPIC, "retained")["retention.ms"].value == "123"
        assert describe(client, TOPIC, "retained")["max.message.bytes"].value == "2000"
