"""Settings change while the cluster runs."""

from collections.abc import Mapping

import pytest

from penstock.controller.configs import (
    ConfigRules,
    alter_configs,
    entity_of,
    incremental_alter_configs,
)
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import DEFAULT_ENTITY, ConfigRecord, Put
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.enums import ConfigOpType, ConfigResourceType
from penstock.protocol.messages.alter_configs import (
    AlterConfigsAlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.support.cluster.images import add_topic, check_committable, image_of

_, TOPIC, BROKER, LOGGER, METRICS, GROUP = ConfigResourceType
SET, DELETE, APPEND, SUBTRACT = ConfigOpType
Settings = Mapping[str, str | None]


def validate(_kind: ConfigResourceType, _name: str, values: Mapping[str, str]) -> None:
    if "bad" in values:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "bad is bad")


RULES = ConfigRules(
    validate,
    is_list=lambda _kind, name: name.startswith("list"),
    default=lambda _kind, name: "x,y" if name == "list.default" else None,
)


@pytest.fixture
def image() -> ClusterImage:
    image = image_of(0, 1)
    add_topic(image, "t", (0,), configs={"a": "1", "list": "p,q"})
    return image


def replace(image: ClusterImage, kind: int, name: str, values: Settings) -> ErrorCode:
    configs = [AlterConfigsAlterableConfig(key, value) for key, value in values.items()]
    request = AlterConfigsRequest(resources=[AlterConfigsResource(kind, name, configs)])
    changes, response, _ = alter_configs(image, request, RULES)
    check_committable(changes)
    image.apply(changes)
    (result,) = response.responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    assert (result.error_code == ErrorCode.NONE) == (result.error_message is None)
    return ErrorCode(result.error_code)


def change(
    image: ClusterImage,
    *operations: tuple[str, int, str | None],
    kind: int = TOPIC,
    name: str = "t",
    validate_only: bool = False,
) -> ErrorCode:
    configs = [IncrementalAlterConfigsAlterableConfig(*operation) for operation in operations]
    request = IncrementalAlterConfigsRequest(
        resources=[IncrementalAlterConfigsResource(kind, name, configs)],
        validate_only=validate_only,
    )
    changes, response, _ = incremental_alter_configs(image, request, RULES)
    check_committable(changes)
    image.apply(changes)
    (result,) = response.responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    assert (result.error_code == ErrorCode.NONE) == (result.error_message is None)
    return ErrorCode(result.error_code)


def test_replace_forgets_what_is_not_named(image: ClusterImage) -> None:
    assert replace(image, TOPIC, "t", {"b": "2"}) == ErrorCode.NONE
    assert image.config("topics", "t") == {"b": "2"}
    assert replace(image, TOPIC, "t", {}) == ErrorCode.NONE
    assert not image.configs
    assert replace(image, TOPIC, "t", {}) == ErrorCode.NONE


def test_replace_with_null_is_refused(image: ClusterImage) -> None:
    assert replace(image, TOPIC, "t", {"b": None}) == ErrorCode.INVALID_REQUEST


def test_replace_validate_only_and_twice(image: ClusterImage) -> None:
    resource = AlterConfigsResource(TOPIC, "t", [])
    changes, response, _ = alter_configs(
        image, AlterConfigsRequest(resources=[resource], validate_only=True), RULES
    )
    assert (changes, response.responses[0].error_code) == ([], ErrorCode.NONE)
    changes, response, _ = alter_configs(
        image, AlterConfigsRequest(resources=[resource, resource]), RULES
    )
    assert changes == []
    assert [r.error_code for r in response.responses] == [ErrorCode.INVALID_REQUEST]


def test_set_and_delete(image: ClusterImage) -> None:
    assert change(image, ("b", SET, "2"), ("a", DELETE, None)) == ErrorCode.NONE
    assert image.config("topics", "t") == {"list": "p,q", "b": "2"}
    assert change(image, ("b", DELETE, "x"), ("list", DELETE, None)) == ErrorCode.NONE
    assert not image.configs
    assert change(image, ("b", DELETE, None)) == ErrorCode.NONE


def test_append_and_subtract(image: ClusterImage) -> None:
    assert change(image, ("list", APPEND, "q,r, s")) == ErrorCode.NONE
    assert image.config("topics", "t")["list"] == "p,q,r,s"
    assert change(image, ("list", SUBTRACT, "p,s,z")) == ErrorCode.NONE
    assert image.config("topics", "t")["list"] == "q,r"


def test_append_begins_with_the_default(image: ClusterImage) -> None:
    assert change(image, ("list.default", APPEND, "z"), ("list.none", APPEND, "z")) == 0
    assert image.config("topics", "t")["list.default"] == "x,y,z"
    assert image.config("topics", "t")["list.none"] == "z"


@pytest.mark.parametrize("op", [APPEND, SUBTRACT])
def test_only_lists_can_be_extended(image: ClusterImage, op: int) -> None:
    assert change(image, ("a", op, "2")) == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("op", [SET, APPEND, SUBTRACT])
def test_null_values_are_refused(image: ClusterImage, op: int) -> None:
    assert change(image, ("list", op, None)) == ErrorCode.INVALID_REQUEST


def test_requests_that_cannot_be(image: ClusterImage) -> None:
    before = dict(image.configs)
    assert change(image, ("b", SET, "1"), ("b", SET, "2")) == ErrorCode.INVALID_REQUEST
    assert change(image, ("b", 4, "1")) == ErrorCode.INVALID_REQUEST
    assert change(image, ("b", SET, "1"), ("bad", SET, "1")) == ErrorCode.INVALID_CONFIG
    assert change(image, name="u") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert change(image, kind=TOPIC, name="") == ErrorCode.INVALID_REQUEST
    assert change(image, kind=GROUP, name="") == ErrorCode.INVALID_REQUEST
    assert change(image, kind=METRICS, name="") == ErrorCode.INVALID_REQUEST
    assert change(image, kind=LOGGER, name="0") == ErrorCode.INVALID_REQUEST
    assert change(image, kind=99, name="0") == ErrorCode.INVALID_REQUEST
    assert change(image, kind=BROKER, name="x") == ErrorCode.INVALID_REQUEST
    assert change(image, kind=BROKER, name="7") == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert change(image, kind=BROKER, name="00") == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert image.configs == before


def test_resource_twice_spoils_only_itself(image: ClusterImage) -> None:
    setting = IncrementalAlterConfigsAlterableConfig("b", SET, "2")
    twice = IncrementalAlterConfigsResource(TOPIC, "t", [setting])
    once = IncrementalAlterConfigsResource(GROUP, "t", [setting])
    request = IncrementalAlterConfigsRequest(resources=[twice, once, twice])
    changes, response, _ = incremental_alter_configs(image, request, RULES)
    assert changes == [Put(ConfigRecord((("groups", "t"),), {"b": "2"}))]
    assert [r.error_code for r in response.responses] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]


def test_validate_only(image: ClusterImage) -> None:
    assert change(image, ("b", SET, "2"), validate_only=True) == ErrorCode.NONE
    assert "b" not in image.config("topics", "t")
    assert change(image, ("bad", SET, "2"), validate_only=True) == ErrorCode.INVALID_CONFIG


def test_brokers_one_and_all(image: ClusterImage) -> None:
    assert change(image, ("b", SET, "1"), kind=BROKER, name="1") == ErrorCode.NONE
    assert change(image, ("b", SET, "2"), kind=BROKER, name="") == ErrorCode.NONE
    assert image.config("brokers", "1") == {"b": "1"}
    assert image.config("brokers", DEFAULT_ENTITY) == {"b": "2"}


def test_brokers_hear_of_settings_that_are_the_same(image: ClusterImage) -> None:
    setting = [IncrementalAlterConfigsAlterableConfig("b", SET, "1")]
    for kind, name, expected in ((BROKER, "1", 1), (GROUP, "g", 0)):
        resource = IncrementalAlterConfigsResource(kind, name, setting)
        request = IncrementalAlterConfigsRequest(resources=[resource])
        image.apply(incremental_alter_configs(image, request, RULES).changes)
        assert len(incremental_alter_configs(image, request, RULES).changes) == expected


def test_where_settings_are_kept() -> None:
    assert entity_of(METRICS, "m") == (("client-metrics", "m"),)
    assert entity_of(BROKER, "") == (("brokers", DEFAULT_ENTITY),)
    assert entity_of(TOPIC, "t") == (("topics", "t"),)
