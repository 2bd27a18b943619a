"""Admin calls for the settings of topics, brokers, groups and other resources."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from penstock.client.admin.advice import BrokerTooOldError, response_error
from penstock.client.admin.api_driver import (
    AdminApiDriver,
    AdminCall,
    LookupStrategy,
    NodeProvider,
    Results,
)
from penstock.client.admin.api_lookup import CONTROLLER_CODES, find_brokers
from penstock.client.admin.model_configs import ConfigEntry, ConfigOp, ConfigResource, ConfigSynonym
from penstock.client.errors import ConfigError
from penstock.core.errors import KafkaError, UnsupportedVersionError
from penstock.protocol.enums import ConfigOpType, ConfigResourceType, ConfigSource, ConfigType
from penstock.protocol.messages.alter_configs import (
    AlterConfigsAlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from penstock.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_ONE_BROKER = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)


class _ResourceResult(Protocol):
    resource_type: int
    resource_name: str


async def describe_configs(
    admin: AdminApiDriver,
    resources: Iterable[ConfigResource],
    *,
    names: Iterable[str] | None = None,
    include_synonyms: bool = False,
    include_documentation: bool = False,
    timeout_ms: int | None = None,
) -> dict[ConfigResource, dict[str, ConfigEntry]]:
    """Returns the settings of resources, all or those in `names`, sorted by name.

    The documentation of settings needs Kafka 2.6.
    """
    call = AdminCall(admin, "describe_configs", timeout_ms)
    keys = None if names is None else list(names)

    async def send(
        node_id: int, node_resources: Sequence[ConfigResource]
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        def build(version: int) -> DescribeConfigsRequest:
            return DescribeConfigsRequest(
                [DescribeConfigsResource(key.type, key.name, keys) for key in node_resources],
                include_synonyms,
                include_documentation and version >= 3,
            )

        response = await call.request(node_id, build, DescribeConfigsResponse, required=(1, "1.1"))
        results: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
        for result in response.results:
            entries = sorted(result.configs, key=lambda entry: entry.name)
            results[_resource(result)] = _error(result) or {
                entry.name: _entry(entry) for entry in entries
            }
        return results

    return await call.request_each(resources, _config_brokers(call), send)


async def incremental_alter_configs(
    admin: AdminApiDriver,
    changes: Mapping[ConfigResource, Iterable[ConfigOp]],
    *,
    validate_only: bool = False,
    timeout_ms: int | None = None,
) -> None:
    """Changes single settings of resources; does not change the others.

    The settings of one resource change atomically. Brokers before Kafka 2.3 can only replace
    all of them: the current ones are read first, and concurrent changes are lost.
    """
    call = AdminCall(admin, "incremental_alter_configs", timeout_ms)
    requested = {resource: list(ops) for resource, ops in changes.items()}

    async def send(node_id: int, keys: Sequence[ConfigResource]) -> Results[ConfigResource, None]:
        resources = [
            IncrementalAlterConfigsResource(
                key.type,
                key.name,
                [
                    IncrementalAlterConfigsAlterableConfig(op.name, op.op, op.value)
                    for op in requested[key]
                ],
            )
            for key in keys
        ]
        response = await call.request(
            node_id,
            IncrementalAlterConfigsRequest(resources, validate_only),
            IncrementalAlterConfigsResponse,
        )
        return {_resource(result): _error(result) for result in response.responses}

    try:
        await call.request_each(requested, _config_brokers(call), send)
    except UnsupportedVersionError:
        current = await describe_configs(admin, requested, timeout_ms=timeout_ms)
        replaced = {
            resource: merge_configs(current[resource], ops) for resource, ops in requested.items()
        }
        await alter_configs(admin, replaced, validate_only=validate_only, timeout_ms=timeout_ms)


async def alter_configs(
    admin: AdminApiDriver,
    configs: Mapping[ConfigResource, Mapping[str, str | None]],
    *,
    validate_only: bool = False,
    timeout_ms: int | None = None,
) -> None:
    """Replaces all settings of resources: those that are not given get their default."""
    call = AdminCall(admin, "alter_configs", timeout_ms)

    async def send(node_id: int, keys: Sequence[ConfigResource]) -> Results[ConfigResource, None]:
        resources = [
            AlterConfigsResource(
                key.type,
                key.name,
                [AlterConfigsAlterableConfig(*entry) for entry in configs[key].items()],
            )
            for key in keys
        ]
        request = AlterConfigsRequest(resources, validate_only)
        response = await call.request(node_id, request, AlterConfigsResponse)
        return {_resource(result): _error(result) for result in response.responses}

    await call.request_each(configs, _config_brokers(call), send)


async def list_config_resources(
    admin: AdminApiDriver,
    types: Iterable[ConfigResourceType] = (),
    *,
    timeout_ms: int | None = None,
) -> list[ConfigResource]:
    """Returns the resources that have settings of their own, sorted, of all types by default.

    Brokers before Kafka 4.1 only list CLIENT_METRICS.
    """
    call = AdminCall(admin, "list_config_resources", timeout_ms)
    requested = list(types)

    def build(version: int) -> ListConfigResourcesRequest:
        if version >= 1:
            return ListConfigResourcesRequest([int(kind) for kind in requested])
        if requested != [ConfigResourceType.CLIENT_METRICS]:
            raise BrokerTooOldError(
                "this broker is older than Kafka 4.1 and only lists resources of type "
                "CLIENT_METRICS",
                subject="`list_config_resources`",
            )
        return ListConfigResourcesRequest()

    response = await call.request_until_done(NodeProvider.ANY, build, ListConfigResourcesResponse)
    return sorted(map(_resource, response.config_resources))


def _config_brokers(call: AdminCall) -> LookupStrategy[ConfigResource]:
    """Returns the strategy for resources: settings of a broker are at that broker."""

    async def find(resources: Sequence[ConfigResource]) -> Results[ConfigResource, int]:
        node_ids: dict[ConfigResource, int | KafkaError] = {}
        any_node = call.network.least_loaded_node()
        for resource in resources:
            if resource.type not in _ONE_BROKER or not resource.name:
                node_ids[resource] = any_node
                continue
            try:
                node_id = int(resource.name)
            except ValueError:
                node_ids[resource] = ConfigError(
                    f"broker {resource.name!r}: the name of a broker is its id, a number; the "
                    "empty name is for the defaults of all brokers"
                )
                continue
            node_ids[resource] = (await find_brokers(call, [node_id]))[node_id]
        return node_ids

    return LookupStrategy(find, CONTROLLER_CODES)


def merge_configs(
    current: Mapping[str, ConfigEntry], ops: Iterable[ConfigOp]
) -> dict[str, str | None]:
    """Returns the settings of a resource after the changes."""
    configs: dict[str, str | None] = {
        name: entry.value for name, entry in current.items() if entry.is_dynamic
    }
    for name, value, op in ops:
        if op is ConfigOpType.SET:
            configs[name] = value
        elif op is ConfigOpType.DELETE:
            configs.pop(name, None)
        else:
            entry = current.get(name)
            previous = configs.get(name) or (entry.value if entry is not None else None) or ""
            items = [item for item in previous.split(",") if item]
            operand = [item for item in (value or "").split(",") if item]
            if op is ConfigOpType.APPEND:
                items += [item for item in operand if item not in items]
            else:
                items = [item for item in items if item not in operand]
            configs[name] = ",".join(items)
    return configs


def _resource(result: _ResourceResult) -> ConfigResource:
    return ConfigResource(ConfigResourceType.from_code(result.resource_type), result.resource_name)


def _error(result: _ResourceResult) -> KafkaError | None:
    resource = _resource(result)
    kind = resource.type.name.lower().replace("_", " ")
    return response_error(result, f"{kind} {resource.name or '(default)'}")


def _entry(entry: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        entry.name,
        entry.value,
        ConfigSource.from_code(entry.config_source),
        entry.is_sensitive,
        entry.read_only,
        tuple(
            ConfigSynonym(synonym.name, synonym.value, ConfigSource.from_code(synonym.source))
            for synonym in entry.synonyms
        ),
        ConfigType.from_code(entry.config_type),
        entry.documentation or None,
    )
