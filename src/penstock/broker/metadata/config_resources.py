"""The resources that have settings: topics, brokers, loggers, groups and metrics subscriptions.

DescribeConfigs, AlterConfigs and IncrementalAlterConfigs use this module to check and describe any
resource. The settings of each kind are in `penstock.broker.config` and `penstock.broker.loggers`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.broker_settings import setting_of
from penstock.broker.config.client_metrics_config import (
    CLIENT_METRICS_SETTINGS,
    describe_client_metrics,
    validate_client_metrics_configs,
)
from penstock.broker.config.entry import ConfigEntry
from penstock.broker.config.group_config import (
    GROUP_SETTINGS,
    describe_group,
    validate_group_configs,
)
from penstock.broker.config.settings import ConfigError, Setting
from penstock.broker.config.topic_config import (
    TOPIC_SETTINGS,
    describe_topic,
    validate_topic_configs,
)
from penstock.broker.loggers import describe_loggers
from penstock.broker.pacer import Pacer
from penstock.broker.request import Session
from penstock.broker.security.listener_certificates import ListenerCertificates
from penstock.broker.security.request_authorizer import CLUSTER_NAME, RequestAuthorizer
from penstock.controller.configs import ConfigRules
from penstock.controller.image import ClusterImage
from penstock.controller.topic_names import check_topic_name, unknown_topic_error
from penstock.core.errors import ErrorCode, KafkaError, drop_traceback
from penstock.protocol.enums import ConfigResourceType, ConfigType
from penstock.protocol.messages.alter_configs import AlterConfigsResource
from penstock.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResource
from penstock.security.acl import AclOperation, ResourceType

Resource = TypeVar("Resource", AlterConfigsResource, IncrementalAlterConfigsResource)

ResourceKey: TypeAlias = tuple[int, str]
"""Type and name of a resource."""


@dataclass(frozen=True, slots=True)
class ConfigContext:
    """The parts of the broker that have settings, and the authorizer for access to them."""

    broker_id: int
    pacer: Pacer
    config: BrokerConfig
    image: ClusterImage
    authorizer: RequestAuthorizer
    certificates: ListenerCertificates


def check_access(
    context: ConfigContext, session: Session, operation: AclOperation, number: int, name: str
) -> ConfigResourceType:
    """Returns the kind of a resource; KafkaError if it is unknown or access is denied (E3)."""
    kind = ConfigResourceType.from_code(number)
    if kind is ConfigResourceType.UNKNOWN:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"resources of type {number} have no settings",
            remedy=(
                "use 2 (topic), 4 (broker), 8 (loggers of a broker), 16 (client metrics) or 32 "
                "(group)"
            ),
        )
    if kind is ConfigResourceType.TOPIC:
        context.authorizer.require(session, operation, ResourceType.TOPIC, name)
    elif kind is ConfigResourceType.GROUP:
        context.authorizer.require(session, operation, ResourceType.GROUP, name)
    else:
        context.authorizer.require(session, operation, ResourceType.CLUSTER, CLUSTER_NAME)
    return kind


def check_name(context: ConfigContext, kind: ConfigResourceType, name: str) -> None:
    """Raises a KafkaError for an invalid topic name, and for brokers other than this one.

    A broker serves its own settings and, without a name, the defaults of all brokers.
    """
    if kind is ConfigResourceType.TOPIC and name:
        check_topic_name(name)
    allowed = {
        ConfigResourceType.BROKER: ("", str(context.broker_id)),
        ConfigResourceType.BROKER_LOGGER: (str(context.broker_id),),
    }
    if name not in allowed.get(kind, (name,)):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"this is broker {context.broker_id}, not {name!r}",
            remedy="send the request to that broker",
        )


async def check_alterations(
    context: ConfigContext, session: Session, resources: Sequence[Resource]
) -> tuple[list[tuple[ConfigResourceType, Resource]], dict[ResourceKey, KafkaError]]:
    """Returns the resources whose settings the client may alter, and the errors of the others.

    A resource that the request names more than once is an error.
    """
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    allowed: list[tuple[ConfigResourceType, Resource]] = []
    errors: dict[ResourceKey, KafkaError] = {}
    async for resource in context.pacer.each(resources):
        key = number, name = resource.resource_type, resource.resource_name
        try:
            if counts[key] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"resource {name!r} of type {number} is in the request {counts[key]} times",
                    remedy="name it once, with all its settings",
                )
            kind = check_access(context, session, AclOperation.ALTER_CONFIGS, number, name)
            check_name(context, kind, name)
            allowed.append((kind, resource))
        except KafkaError as error:
            errors[key] = drop_traceback(error)
    return allowed, errors


def describe(
    context: ConfigContext, kind: ConfigResourceType, name: str, names: Iterable[str] | None
) -> list[ConfigEntry]:
    """Returns the settings of a resource, or the named ones. KafkaError if it does not exist."""
    image = context.image
    check_name(context, kind, name)
    match kind:
        case ConfigResourceType.TOPIC:
            check_topic_name(name)
            if name not in image.topics:
                raise unknown_topic_error(name)
            return describe_topic(context.config, image.config("topics", name), names)
        case ConfigResourceType.BROKER:
            if name:
                return context.config.describe_all(names)
            return context.config.describe_default(names)
        case ConfigResourceType.BROKER_LOGGER:
            return describe_loggers(names)
        case ConfigResourceType.CLIENT_METRICS:
            _check_named("metrics subscription", name)
            return describe_client_metrics(image.config("client-metrics", name), names)
        case ConfigResourceType.GROUP:
            _check_named("group", name)
            return describe_group(context.config, image.config("groups", name), names)
        case ConfigResourceType.UNKNOWN:
            return []


def _check_named(kind: str, name: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a {kind} needs a name to have settings")


# --- changes


def config_rules(context: ConfigContext) -> ConfigRules:
    """Returns what the controller needs to know to change settings."""
    return ConfigRules(
        validate=lambda kind, name, values: _validate(context, kind, name, values),
        is_list=_is_list,
        default=_default,
    )


def _validate(
    context: ConfigContext, kind: ConfigResourceType, name: str, values: Mapping[str, str]
) -> None:
    match kind:
        case ConfigResourceType.TOPIC:
            stored = context.image.config("topics", name)
            validate_topic_configs(values, context.config, stored)
        case ConfigResourceType.GROUP:
            validate_group_configs(values, context.config)
        case ConfigResourceType.CLIENT_METRICS:
            try:
                validate_client_metrics_configs(values)
            except ConfigError as error:
                # Kafka returns these codes here and for brokers; everything else is INVALID_CONFIG.
                if error.name == "match":
                    raise
                raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from error
        case ConfigResourceType.BROKER:
            try:
                context.config.validate_dynamic(values, per_broker=bool(name))
                context.certificates.check_changes(values)
            except KafkaError as error:
                raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from error


def _setting(kind: ConfigResourceType, name: str) -> Setting | None:
    match kind:
        case ConfigResourceType.TOPIC:
            return TOPIC_SETTINGS.get(name)
        case ConfigResourceType.GROUP:
            return GROUP_SETTINGS.get(name)
        case ConfigResourceType.CLIENT_METRICS:
            return CLIENT_METRICS_SETTINGS.get(name)
        case _:
            return setting_of(name)


def _is_list(kind: ConfigResourceType, name: str) -> bool:
    setting = _setting(kind, name)
    return setting is not None and setting.type is ConfigType.LIST


def _default(kind: ConfigResourceType, name: str) -> str | None:
    setting = _setting(kind, name)
    return None if setting is None else setting.default
