"""AlterConfigs and IncrementalAlterConfigs: settings of topics, brokers, groups, client metrics."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from penstock.controller.entity_configs import Entity, configs_of, replace_configs
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import DEFAULT_ENTITY, Change
from penstock.controller.result import ControllerResult
from penstock.controller.topic_names import unknown_topic_error
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.enums import ConfigOpType, ConfigResourceType
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


class ConfigRules(NamedTuple):
    """Rules about settings, which are defined in other packages."""

    validate: Callable[[ConfigResourceType, str, Mapping[str, str]], None]
    """Raises a KafkaError unless the named resource may have exactly these settings."""
    is_list: Callable[[ConfigResourceType, str], bool]
    """Returns whether a setting is a list, which can be appended to."""
    default: Callable[[ConfigResourceType, str], str | None]
    """Returns the default of a setting, which is the start for appending to it."""


ENTITY_KINDS: Final = {
    ConfigResourceType.TOPIC: "topics",
    ConfigResourceType.BROKER: "brokers",
    ConfigResourceType.CLIENT_METRICS: "client-metrics",
    ConfigResourceType.GROUP: "groups",
}


class _NamedConfig(Protocol):
    """A setting in a request."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> str | None: ...


_Resource = TypeVar("_Resource", AlterConfigsResource, IncrementalAlterConfigsResource)
_ResourceResponse = TypeVar(
    "_ResourceResponse", AlterConfigsResourceResponse, IncrementalAlterConfigsResourceResponse
)


def alter_configs(
    image: ClusterImage, request: AlterConfigsRequest, rules: ConfigRules
) -> ControllerResult[AlterConfigsResponse]:
    """Replaces all settings of each resource; those that the request does not name are removed."""
    changes, results = _alter_resources(
        request.resources,
        AlterConfigsResourceResponse,
        lambda resource: _replace(image, resource, rules),
    )
    response = AlterConfigsResponse(responses=results)
    return ControllerResult([] if request.validate_only else changes, response)


def incremental_alter_configs(
    image: ClusterImage, request: IncrementalAlterConfigsRequest, rules: ConfigRules
) -> ControllerResult[IncrementalAlterConfigsResponse]:
    """Sets, deletes or extends single settings; all changes of a resource succeed, or none."""
    changes, results = _alter_resources(
        request.resources,
        IncrementalAlterConfigsResourceResponse,
        lambda resource: _increment(image, resource, rules),
    )
    response = IncrementalAlterConfigsResponse(responses=results)
    return ControllerResult([] if request.validate_only else changes, response)


def _alter_resources(
    resources: Sequence[_Resource],
    response_type: type[_ResourceResponse],
    alter: Callable[[_Resource], list[Change]],
) -> tuple[list[Change], list[_ResourceResponse]]:
    """Returns the changes of all valid resources, and one result for each resource."""
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    changes: list[Change] = []
    results: dict[tuple[int, str], _ResourceResponse] = {}
    for resource in resources:
        resource_id = resource.resource_type, resource.resource_name
        result = response_type(0, None, *resource_id)
        try:
            _check_once(counts[resource_id], resource_id)
            changes += alter(resource)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results[resource_id] = result
    return changes, list(results.values())


def entity_of(resource_type: ConfigResourceType, name: str) -> Entity:
    """Returns the entity that stores the settings of a resource; no name means all brokers."""
    if resource_type is ConfigResourceType.BROKER and not name:
        name = DEFAULT_ENTITY
    return ((ENTITY_KINDS[resource_type], name),)


def _check_once(count: int, resource_id: tuple[int, str]) -> None:
    if count > 1:
        resource_type, name = resource_id
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"resource {name!r} of type {resource_type} is in the request more than once",
            remedy="name it once",
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
    _check_values([config for op, config in operations if op is not ConfigOpType.DELETE])
    values = dict(configs_of(image, entity_of(kind, resource.resource_name)))
    for op, config in operations:
        value = config.value or ""
        match op:
            case ConfigOpType.SET:
                values[config.name] = value
            case ConfigOpType.DELETE:
                values.pop(config.name, None)
            case ConfigOpType.APPEND | ConfigOpType.SUBTRACT:
                elements = _list_values(values.get(config.name), kind, config.name, op, rules)
                operands = _split(value)
                if op is ConfigOpType.APPEND:
                    elements += [
                        element for element in dict.fromkeys(operands) if element not in elements
                    ]
                else:
                    elements = [element for element in elements if element not in operands]
                values[config.name] = ",".join(elements)
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
    # A broker is notified of its settings even if they are the same: it then reloads its key
    # stores.
    return replace_configs(image, entity, values)


def _checked_resource(image: ClusterImage, number: int, name: str) -> ConfigResourceType:
    kind = ConfigResourceType.from_code(number)
    if kind not in ENTITY_KINDS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"resources of type {number} have no settings that can be changed here",
            remedy="use 2 (topic), 4 (broker), 16 (client metrics) or 32 (group)",
        )
    if kind is ConfigResourceType.BROKER:
        _check_broker(image, name)
    elif not name:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"a resource of type {kind.name} needs a name: only brokers have cluster-wide defaults",
        )
    elif kind is ConfigResourceType.TOPIC and not image.has_topic(name):
        raise unknown_topic_error(name)
    return kind


def _check_broker(image: ClusterImage, name: str) -> None:
    if not name:
        return
    if not (name.isascii() and name.isdigit()):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{name!r} is no broker id",
            remedy="use the id of a broker, or an empty name for all brokers",
        )
    if str(int(name)) != name or int(name) not in image.brokers:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"broker {name} is not registered in this cluster",
            remedy=f"use one of {sorted(image.brokers)}",
        )


def _check_names(configs: Sequence[_NamedConfig]) -> None:
    duplicates = [name for name, count in Counter(c.name for c in configs).items() if count > 1]
    if duplicates:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"settings {duplicates} are in the request more than once",
            remedy="name each once",
        )


def _check_values(configs: Sequence[_NamedConfig]) -> None:
    missing = [config.name for config in configs if config.value is None]
    if missing:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"settings {missing} have no value",
            remedy="give them one, or delete them",
        )


def _operation(config: IncrementalAlterConfigsAlterableConfig) -> ConfigOpType:
    try:
        return ConfigOpType(config.config_operation)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"operation {config.config_operation} on {config.name} is unknown",
            remedy="use 0 (set), 1 (delete), 2 (append) or 3 (subtract)",
        ) from None


def _list_values(
    value: str | None,
    kind: ConfigResourceType,
    name: str,
    op: ConfigOpType,
    rules: ConfigRules,
) -> list[str]:
    if not rules.is_list(kind, name):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{name} is not a list, so {op.name} is not possible",
            remedy="set it instead",
        )
    return _split(rules.default(kind, name) if value is None else value)


def _split(value: str | None) -> list[str]:
    return [element.strip() for element in (value or "").split(",") if element.strip()]
