"""Admin calls for the settings of topics, brokers, groups and other resources."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.client.admin.advice import BrokerTooOldError, broker_error
from penstock.client.admin.api_driver import (
    CONTROLLER_CODES,
    AdminApiDriver,
    LookupStrategy,
    NodeProvider,
    code_only,
)
from penstock.client.admin.model_configs import ConfigEntry, ConfigOp, ConfigResource, ConfigSynonym
from penstock.client.errors import ConfigError
from penstock.core.errors import ErrorCode, KafkaError, UnsupportedVersionError
from penstock.net.client.network_client import RequestBuilder
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


class ConfigCalls(AdminApiDriver):
    """The calls for settings."""

    async def describe_configs(
        self,
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
        deadline_ms = self._deadline(timeout_ms)
        keys = None if names is None else list(names)

        async def send(
            node_id: int, node_resources: Sequence[ConfigResource]
        ) -> Mapping[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
            def make(version: int) -> DescribeConfigsRequest:
                return DescribeConfigsRequest(
                    [DescribeConfigsResource(key.type, key.name, keys) for key in node_resources],
                    include_synonyms,
                    include_documentation and version >= 3,
                )

            response = await self._request(
                "describe_configs",
                node_id,
                RequestBuilder(DescribeConfigsRequest, make),
                DescribeConfigsResponse,
                deadline_ms,
                required=(1, "1.1"),
            )
            results: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
            for result in response.results:
                resource = _resource(result.resource_type, result.resource_name)
                if result.error_code == ErrorCode.NONE:
                    entries = sorted(result.configs, key=lambda entry: entry.name)
                    results[resource] = {entry.name: _entry(entry) for entry in entries}
                else:
                    results[resource] = _resource_error(
                        result.error_code, resource, result.error_message
                    )
            return results

        return await self._request_each(
            "describe_configs",
            resources,
            self._config_brokers(deadline_ms),
            send,
            deadline_ms,
            retriable=CONTROLLER_CODES,
        )

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigOp]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Changes single settings of resources; does not change the others.

        The settings of one resource change atomically. Brokers before Kafka 2.3 can only replace
        all of them: the current ones are read first, and concurrent changes are lost.
        """
        deadline_ms = self._deadline(timeout_ms)
        requested = {resource: list(ops) for resource, ops in changes.items()}

        async def send(
            node_id: int, keys: Sequence[ConfigResource]
        ) -> Mapping[ConfigResource, KafkaError | None]:
            request = IncrementalAlterConfigsRequest(
                [
                    IncrementalAlterConfigsResource(
                        key.type,
                        key.name,
                        [
                            IncrementalAlterConfigsAlterableConfig(op.name, op.op, op.value)
                            for op in requested[key]
                        ],
                    )
                    for key in keys
                ],
                validate_only,
            )
            response = await self._request(
                "incremental_alter_configs",
                node_id,
                request,
                IncrementalAlterConfigsResponse,
                deadline_ms,
            )
            return {
                (
                    resource := _resource(result.resource_type, result.resource_name)
                ): _resource_error_or_none(result.error_code, resource, result.error_message)
                for result in response.responses
            }

        try:
            await self._request_each(
                "incremental_alter_configs",
                requested,
                self._config_brokers(deadline_ms),
                send,
                deadline_ms,
                retriable=CONTROLLER_CODES,
            )
        except UnsupportedVersionError:
            current = await self.describe_configs(requested, timeout_ms=timeout_ms)
            replaced = {
                resource: merge_configs(current[resource], ops)
                for resource, ops in requested.items()
            }
            await self.alter_configs(replaced, validate_only=validate_only, timeout_ms=timeout_ms)

    async def alter_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Replaces all settings of resources: those that are not given get their default."""
        deadline_ms = self._deadline(timeout_ms)

        async def send(
            node_id: int, keys: Sequence[ConfigResource]
        ) -> Mapping[ConfigResource, KafkaError | None]:
            request = AlterConfigsRequest(
                [
                    AlterConfigsResource(
                        key.type,
                        key.name,
                        [
                            AlterConfigsAlterableConfig(name, value)
                            for name, value in configs[key].items()
                        ],
                    )
                    for key in keys
                ],
                validate_only,
            )
            response = await self._request(
                "alter_configs", node_id, request, AlterConfigsResponse, deadline_ms
            )
            return {
                (
                    resource := _resource(result.resource_type, result.resource_name)
                ): _resource_error_or_none(result.error_code, resource, result.error_message)
                for result in response.responses
            }

        await self._request_each(
            "alter_configs",
            configs,
            self._config_brokers(deadline_ms),
            send,
            deadline_ms,
            retriable=CONTROLLER_CODES,
        )

    async def list_config_resources(
        self, types: Iterable[ConfigResourceType] = (), *, timeout_ms: int | None = None
    ) -> list[ConfigResource]:
        """Returns the resources that have settings of their own, sorted, of all types by default.

        Brokers before Kafka 4.1 only list CLIENT_METRICS.
        """
        deadline_ms = self._deadline(timeout_ms)
        requested = list(types)

        def make(version: int) -> ListConfigResourcesRequest:
            if version >= 1:
                return ListConfigResourcesRequest([int(item) for item in requested])
            if requested != [ConfigResourceType.CLIENT_METRICS]:
                raise BrokerTooOldError(
                    "this broker is older than Kafka 4.1 and only lists resources of type "
                    "CLIENT_METRICS",
                    subject="`list_config_resources`",
                )
            return ListConfigResourcesRequest()

        response = await self._request_until_done(
            "list_config_resources",
            NodeProvider.ANY,
            RequestBuilder(ListConfigResourcesRequest, make),
            ListConfigResourcesResponse,
            deadline_ms,
            get_error=code_only,
        )
        return sorted(
            _resource(resource.resource_type, resource.resource_name)
            for resource in response.config_resources
        )

    def _config_brokers(self, deadline_ms: int) -> LookupStrategy[ConfigResource]:
        """Returns the strategy for resources: settings of a broker are at that broker."""

        async def look_up(
            resources: Sequence[ConfigResource],
        ) -> Mapping[ConfigResource, int | KafkaError]:
            node_ids: dict[ConfigResource, int | KafkaError] = {}
            any_node = self._network.least_loaded_node()
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
                node_ids[resource] = (await self._look_up_brokers([node_id], deadline_ms))[node_id]
            return node_ids

        return look_up


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


def _resource(kind: int, name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.from_code(kind), name)


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


def _resource_error(code: int, resource: ConfigResource, message: str | None) -> KafkaError:
    kind = resource.type.name.lower().replace("_", " ")
    return broker_error(code, f"{kind} {resource.name or '(default)'}", message)


def _resource_error_or_none(
    code: int, resource: ConfigResource, message: str | None
) -> KafkaError | None:
    return None if code == ErrorCode.NONE else _resource_error(code, resource, message)
