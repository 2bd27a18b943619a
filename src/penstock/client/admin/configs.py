"""Settings of topics, brokers, groups and so on: described and changed."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.client.admin.advice import BrokerTooOldError, explain
from penstock.client.admin.model_configs import ConfigEntry, ConfigOp, ConfigResource, ConfigSynonym
from penstock.client.admin.routing import CONTROLLER_CODES, Locate, Router, Where
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


class ConfigCalls(Router):
    """Calls about settings."""

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """The settings of resources, all of them or those in `names`, sorted by name.

        A broker is asked about its own settings; documentation is there from Kafka 2.6 on.
        """
        deadline_ms = self._deadline(timeout_ms)
        keys = None if names is None else list(names)

        async def send(
            node_id: int, some: Sequence[ConfigResource]
        ) -> Mapping[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
            def make(version: int) -> DescribeConfigsRequest:
                return DescribeConfigsRequest(
                    [DescribeConfigsResource(each.type, each.name, keys) for each in some],
                    include_synonyms,
                    include_documentation and version >= 3,
                )

            response = await self._request(
                "describe_configs",
                node_id,
                RequestBuilder(DescribeConfigsRequest, make),
                DescribeConfigsResponse,
                deadline_ms,
                needs=(1, "1.1"),
            )
            answers: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
            for each in response.results:
                resource = _resource(each.resource_type, each.resource_name)
                if each.error_code == ErrorCode.NONE:
                    entries = sorted(each.configs, key=lambda entry: entry.name)
                    answers[resource] = {entry.name: _entry(entry) for entry in entries}
                else:
                    answers[resource] = _failure(each.error_code, resource, each.error_message)
            return answers

        return await self._each(
            "describe_configs",
            resources,
            self._own_brokers(deadline_ms),
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
        """Change single settings of resources; the others stay as they are.

        The settings of one resource change together or not at all. Brokers before Kafka 2.3 can
        only replace all of them: there the present ones are read first, and a change that somebody
        else makes meanwhile is lost.
        """
        deadline_ms = self._deadline(timeout_ms)
        wanted = {resource: list(ops) for resource, ops in changes.items()}

        async def send(
            node_id: int, some: Sequence[ConfigResource]
        ) -> Mapping[ConfigResource, KafkaError | None]:
            request = IncrementalAlterConfigsRequest(
                [
                    IncrementalAlterConfigsResource(
                        each.type,
                        each.name,
                        [
                            IncrementalAlterConfigsAlterableConfig(op.name, op.op, op.value)
                            for op in wanted[each]
                        ],
                    )
                    for each in some
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
                (resource := _resource(each.resource_type, each.resource_name)): _outcome(
                    each.error_code, resource, each.error_message
                )
                for each in response.responses
            }

        try:
            await self._each(
                "incremental_alter_configs",
                wanted,
                self._own_brokers(deadline_ms),
                send,
                deadline_ms,
                retriable=CONTROLLER_CODES,
            )
        except UnsupportedVersionError:
            present = await self.describe_configs(wanted, timeout_ms=timeout_ms)
            replaced = {
                resource: merged(present[resource], ops) for resource, ops in wanted.items()
            }
            await self.alter_configs(replaced, validate_only=validate_only, timeout_ms=timeout_ms)

    async def alter_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Replace all settings of resources: what is not given goes back to its default."""
        deadline_ms = self._deadline(timeout_ms)

        async def send(
            node_id: int, some: Sequence[ConfigResource]
        ) -> Mapping[ConfigResource, KafkaError | None]:
            request = AlterConfigsRequest(
                [
                    AlterConfigsResource(
                        each.type,
                        each.name,
                        [
                            AlterConfigsAlterableConfig(name, value)
                            for name, value in configs[each].items()
                        ],
                    )
                    for each in some
                ],
                validate_only,
            )
            response = await self._request(
                "alter_configs", node_id, request, AlterConfigsResponse, deadline_ms
            )
            return {
                (resource := _resource(each.resource_type, each.resource_name)): _outcome(
                    each.error_code, resource, each.error_message
                )
                for each in response.responses
            }

        await self._each(
            "alter_configs",
            configs,
            self._own_brokers(deadline_ms),
            send,
            deadline_ms,
            retriable=CONTROLLER_CODES,
        )

    async def list_config_resources(
        self, types: Iterable[ConfigResourceType] = (), *, timeout_ms: int | None = None
    ) -> list[ConfigResource]:
        """Resources that may have settings of their own, sorted; without types: of all types.

        Brokers before Kafka 4.1 only know of CLIENT_METRICS.
        """
        deadline_ms = self._deadline(timeout_ms)
        wanted = list(types)

        def make(version: int) -> ListConfigResourcesRequest:
            if version >= 1:
                return ListConfigResourcesRequest([int(each) for each in wanted])
            if wanted != [ConfigResourceType.CLIENT_METRICS]:
                raise BrokerTooOldError(
                    "list_config_resources: this broker is older than Kafka 4.1 and only lists "
                    "resources of type CLIENT_METRICS"
                )
            return ListConfigResourcesRequest()

        response = await self._ask(
            "list_config_resources",
            Where.ANY,
            RequestBuilder(ListConfigResourcesRequest, make),
            ListConfigResourcesResponse,
            deadline_ms,
            verdict=lambda answer: (answer.error_code, None),
        )
        return sorted(
            _resource(each.resource_type, each.resource_name) for each in response.config_resources
        )

    def _own_brokers(self, deadline_ms: int) -> Locate[ConfigResource]:
        """A broker knows its own settings; any broker knows the others."""

        async def locate(
            resources: Sequence[ConfigResource],
        ) -> Mapping[ConfigResource, int | KafkaError]:
            places: dict[ConfigResource, int | KafkaError] = {}
            anyone = self._network.least_loaded_node()
            for resource in resources:
                if resource.type not in _ONE_BROKER or not resource.name:
                    places[resource] = anyone
                    continue
                try:
                    node_id = int(resource.name)
                except ValueError:
                    places[resource] = ConfigError(
                        f"broker {resource.name!r}: the name of a broker is its id, a number; the "
                        "empty name is for the defaults of all brokers"
                    )
                    continue
                places[resource] = (await self._these([node_id], deadline_ms))[node_id]
            return places

        return locate


def merged(present: Mapping[str, ConfigEntry], ops: Iterable[ConfigOp]) -> dict[str, str | None]:
    """What is set on a resource once the changes are made."""
    configs: dict[str, str | None] = {
        name: entry.value for name, entry in present.items() if entry.is_dynamic
    }
    for name, value, op in ops:
        if op is ConfigOpType.SET:
            configs[name] = value
        elif op is ConfigOpType.DELETE:
            configs.pop(name, None)
        else:
            entry = present.get(name)
            before = configs.get(name) or (entry.value if entry is not None else None) or ""
            items = [item for item in before.split(",") if item]
            given = [item for item in (value or "").split(",") if item]
            if op is ConfigOpType.APPEND:
                items += [item for item in given if item not in items]
            else:
                items = [item for item in items if item not in given]
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
            ConfigSynonym(each.name, each.value, ConfigSource.from_code(each.source))
            for each in entry.synonyms
        ),
        ConfigType.from_code(entry.config_type),
        entry.documentation or None,
    )


def _failure(code: int, resource: ConfigResource, words: str | None) -> KafkaError:
    kind = resource.type.name.lower().replace("_", " ")
    return explain(code, f"{kind} {resource.name or '(default)'}", words)


def _outcome(code: int, resource: ConfigResource, words: str | None) -> KafkaError | None:
    return None if code == ErrorCode.NONE else _failure(code, resource, words)
