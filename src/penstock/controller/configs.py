"""Settings change while the cluster runs: of topics, brokers, groups and client metrics."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from penstock.controller.entity_configs import Entity, configs_of, replace_configs
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import DEFAULT_ENTITY, Change
from penstock.controller.result import ControllerResult
from penstock.controller.topic_names import unknown_topic_error
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)


class ConfigResourceType(IntEnum):
    """What has settings, by its number on the wire."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOperation(IntEnum):
    """What IncrementalAlterConfigs does to a setting, by its number on the wire."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigRules(NamedTuple):
    """What is known about settings elsewhere."""

    validate: Callable[[ConfigResourceType, str, Mapping[str, str]], None]
    """Raises a KafkaError unless the resource of this name may have exactly these settings."""
    is_list: Callable[[ConfigResourceType, str], bool]
    """Whether a setting is a list, to which one can append."""
    default: Callable[[ConfigResourceType, str], str | None]
    """What a setting is where it is not set; appending to it begins there."""


_KINDS: Final = {
    ConfigResourceType.TOPIC: "topics",
    ConfigResourceType.BROKER: "brokers",
    ConfigResourceType.CLIENT_METRICS: "client-metrics",
    ConfigResourceType.GROUP: "groups",
}


class _Named(Protocol):
    """A setting in a request."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> str | None: ...


def alter_configs(
    image: ClusterImage, request: AlterConfigsRequest, rules: ConfigRules
) -> ControllerResult[AlterConfigsResponse]:
    """Replaces all settings of each resource: those that are not named are gone."""
    seen = Counter(
        (resource.resource_type, resource.resource_name) for resource in request.resources
    )
    changes: list[Change] = []
    results: dict[tuple[int, str], AlterConfigsResourceResponse] = {}
    for resource in request.resources:
        who = resource.resource_type, resource.resource_name
        result = AlterConfigsResourceResponse(
            error_message=None, resource_type=who[0], resource_name=who[1]
        )
        try:
            _check_once(seen[who], who)
            changes += _replace(image, resource, rules)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results[who] = result
    response = AlterConfigsResponse(responses=list(results.values()))
    return ControllerResult([] if request.validate_only else changes, response)


def incremental_alter_configs(
    image: ClusterImage, request: IncrementalAlterConfigsRequest, rules: ConfigRules
) -> ControllerResult[IncrementalAlterConfigsResponse]:
    """Sets, deletes, extends single settings; a resource changes as a whole or not at all."""
    seen = Counter(
        (resource.resource_type, resource.resource_name) for resource in request.resources
    )
    changes: list[Change] = []
    results: dict[tuple[int, str], IncrementalAlterConfigsResourceResponse] = {}
    for resource in request.resources:
        who = resource.resource_type, resource.resource_name
        result = IncrementalAlterConfigsResourceResponse(
            error_message=None, resource_type=who[0], resource_name=who[1]
        )
        try:
            _check_once(seen[who], who)
            changes += _increment(image, resource, rules)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results[who] = result
    response = IncrementalAlterConfigsResponse(responses=list(results.values()))
    return ControllerResult([] if request.validate_only else changes, response)


def entity_of(resource_type: ConfigResourceType, name: str) -> Entity:
    """Where the settings of a resource are kept; no name stands for all brokers."""
    if resource_type is ConfigResourceType.BROKER and not name:
        name = DEFAULT_ENTITY
    return ((_KINDS[resource_type], name),)


def _check_once(times: int, who: tuple[int, str]) -> None:
    if times > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"The resource {who[1]!r} of type {who[0]} is in the request twice. Name it once.",
        )


def _replace(
    image: ClusterImage, resource: AlterConfigsResource, rules: ConfigRules
) -> list[Change]:
    kind = _checked_resource(image, resource.resource_type, resource.resource_name)
    _check_names(resource.configs)
    _check_values(resource.configs)
    values = {config.name: config.value for config in resource.configs if config.value is not None}
    return _changes(image, kind, resource.resource_name, values, rules)


def _increment(
    image: ClusterImage, resource: IncrementalAlterConfigsResource, rules: ConfigRules
) -> list[Change]:
    kind = _checked_resource(image, resource.resource_type, resource.resource_name)
    _check_names(resource.configs)
    operations = [(_operation(config), config) for config in resource.configs]
    _check_values([config for op, config in operations if op is not ConfigOperation.DELETE])
    values = dict(configs_of(image, entity_of(kind, resource.resource_name)))
    for op, config in operations:
        value = config.value or ""
        match op:
            case ConfigOperation.SET:
                values[config.name] = value
            case ConfigOperation.DELETE:
                values.pop(config.name, None)
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
                items = _items(values.get(config.name), kind, config.name, op, rules)
                given = _split(value)
                if op is ConfigOperation.APPEND:
                    items += [item for item in dict.fromkeys(given) if item not in items]
                else:
                    items = [item for item in items if item not in given]
                values[config.name] = ",".join(items)
    return _changes(image, kind, resource.resource_name, values, rules)


def _changes(
    image: ClusterImage,
    kind: ConfigResourceType,
    name: str,
    values: Mapping[str, str],
    rules: ConfigRules,
) -> list[Change]:
    rules.validate(kind, name, values)
    entity = entity_of(kind, name)
    if values == configs_of(image, entity) and kind is not ConfigResourceType.BROKER:
        return []
    # A broker hears of its settings even if they are the same: key stores are read again then.
    return replace_configs(image, entity, values)


def _checked_resource(image: ClusterImage, number: int, name: str) -> ConfigResourceType:
    try:
        kind = ConfigResourceType(number)
    except ValueError:
        kind = ConfigResourceType.BROKER_LOGGER
    if kind not in _KINDS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Resources of type {number} have no settings that can be changed here: "
            "2 is a topic, 4 a broker, 16 client metrics, 32 a group.",
        )
    if kind is ConfigResourceType.BROKER:
        _check_broker(image, name)
    elif not name:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"A resource of type {kind.name} needs a name: only brokers have common settings.",
        )
    elif kind is ConfigResourceType.TOPIC and name not in image.topics:
        raise unknown_topic_error(name)
    return kind


def _check_broker(image: ClusterImage, name: str) -> None:
    if not name:
        return
    if not (name.isascii() and name.isdigit()):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"A broker is named by its id, or by nothing for all of them, not by {name!r}.",
        )
    if str(int(name)) != name or int(name) not in image.brokers:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"There is no broker {name} in this cluster. Those that are up: "
            f"{sorted(image.brokers)}.",
        )


def _check_names(configs: Sequence[_Named]) -> None:
    twice = [name for name, times in Counter(c.name for c in configs).items() if times > 1]
    if twice:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Each setting may be named once, but twice are: {twice}."
        )


def _check_values(configs: Sequence[_Named]) -> None:
    without = [config.name for config in configs if config.value is None]
    if without:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"These settings have no value: {without}. Give them one, or delete them.",
        )


def _operation(config: IncrementalAlterConfigsAlterableConfig) -> ConfigOperation:
    try:
        return ConfigOperation(config.config_operation)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Operation {config.config_operation} on {config.name} is unknown: "
            "0 sets, 1 deletes, 2 appends, 3 subtracts.",
        ) from None


def _items(
    value: str | None,
    kind: ConfigResourceType,
    name: str,
    op: ConfigOperation,
    rules: ConfigRules,
) -> list[str]:
    if not rules.is_list(kind, name):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{name} is not a list, so {op.name} is not possible. Set it instead.",
        )
    return _split(rules.default(kind, name) if value is None else value)


def _split(value: str | None) -> list[str]:
    return [item.strip() for item in (value or "").split(",") if item.strip()]
