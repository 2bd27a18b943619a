"""What administrative requests change, as their requests and responses say. Never secrets."""

from collections.abc import Iterable, Iterator
from typing import Final

from penstock.broker.audit import topic_changes
from penstock.broker.audit.changed_resource import ChangedResource, Describe, Details
from penstock.broker.config.broker_settings import setting_of
from penstock.core.errors import ErrorCode
from penstock.protocol.api_key import ApiKey
from penstock.protocol.enums import ConfigOpType, ConfigResourceType
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from penstock.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from penstock.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from penstock.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.protocol.messages.delete_acls import (
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from penstock.protocol.messages.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from penstock.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.security.acl import AclOperation, AclPermission, PatternType, ResourceType
from penstock.security.scram_credential import ScramMechanism

HIDDEN: Final = "(hidden)"
"""Stands for a secret, and for the value of a setting that nobody knows."""


# --- settings, quotas, features


def _alter_configs(
    body: AlterConfigsRequest, response: AlterConfigsResponse
) -> Iterator[ChangedResource]:
    codes = {
        (result.resource_type, result.resource_name): result.error_code
        for result in response.responses
    }
    for resource in body.resources:
        kind = ConfigResourceType.from_code(resource.resource_type)
        values = {
            config.name: _visible(kind, config.name, config.value) for config in resource.configs
        }
        code = codes.get((resource.resource_type, resource.resource_name), 0)
        yield ChangedResource(
            kind.name, resource.resource_name, {"replaced": True, "configs": values}, code
        )


def _incremental_alter_configs(
    body: IncrementalAlterConfigsRequest, response: IncrementalAlterConfigsResponse
) -> Iterator[ChangedResource]:
    codes = {
        (result.resource_type, result.resource_name): result.error_code
        for result in response.responses
    }
    for resource in body.resources:
        kind = ConfigResourceType.from_code(resource.resource_type)
        details: Details = {}
        for config in resource.configs:
            operation = _name(ConfigOpType, config.config_operation).lower()
            value = None if operation == "delete" else _visible(kind, config.name, config.value)
            details.setdefault(operation, {})[config.name] = value
        code = codes.get((resource.resource_type, resource.resource_name), 0)
        yield ChangedResource(kind.name, resource.resource_name, details, code)


def _visible(kind: ConfigResourceType, name: str, value: str | None) -> str | None:
    """Returns a value unless it is a secret: only brokers have those."""
    if kind is not ConfigResourceType.BROKER:
        return value
    setting = setting_of(name)
    return HIDDEN if setting is None or setting.sensitive else value


def _alter_quotas(
    body: AlterClientQuotasRequest, response: AlterClientQuotasResponse
) -> Iterator[ChangedResource]:
    codes = [entry.error_code for entry in response.entries]
    for index, entry in enumerate(body.entries):
        entity = ",".join(
            f"{part.entity_type}={'<default>' if part.entity_name is None else part.entity_name}"
            for part in entry.entity
        )
        quotas = {op.key: None if op.remove else op.value for op in entry.ops}
        code = codes[index] if index < len(codes) else 0
        yield ChangedResource("QUOTA", entity, {"quotas": quotas}, code)


def _update_features(
    body: UpdateFeaturesRequest, response: UpdateFeaturesResponse
) -> Iterator[ChangedResource]:
    codes = {result.feature: result.error_code for result in response.results}
    for update in body.feature_updates:
        code = codes.get(update.feature, 0) or response.error_code
        yield ChangedResource("FEATURE", update.feature, {"level": update.max_version_level}, code)


# --- ACLs, users, tokens


def _create_acls(
    body: CreateAclsRequest, response: CreateAclsResponse
) -> Iterator[ChangedResource]:
    for index, acl in enumerate(body.creations):
        code = response.results[index].error_code if index < len(response.results) else 0
        yield _acl(acl, acl.resource_pattern_type, code)


def _delete_acls(
    body: DeleteAclsRequest, response: DeleteAclsResponse
) -> Iterator[ChangedResource]:
    for index, acl_filter in enumerate(body.filters):
        results = response.filter_results
        result = results[index] if index < len(results) else None
        for acl in result.matching_acls if result else ():
            yield _acl(acl, acl.pattern_type, acl.error_code)
        if result is None or result.error_code or not result.matching_acls:
            details = {
                "pattern_type": PatternType.from_code(acl_filter.pattern_type_filter).name,
                "principal": acl_filter.principal_filter,
                "host": acl_filter.host_filter,
                "operation": AclOperation.from_code(acl_filter.operation).name,
                "permission": AclPermission.from_code(acl_filter.permission_type).name,
                "matching": 0,
            }
            yield ChangedResource(
                ResourceType.from_code(acl_filter.resource_type_filter).name,
                acl_filter.resource_name_filter or "",
                {"acl_filter": details},
                result.error_code if result else 0,
            )


def _acl(acl: AclCreation | DeleteAclsMatchingAcl, pattern_type: int, code: int) -> ChangedResource:
    details = {
        "pattern_type": PatternType.from_code(pattern_type).name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": AclOperation.from_code(acl.operation).name,
        "permission": AclPermission.from_code(acl.permission_type).name,
    }
    kind = ResourceType.from_code(acl.resource_type).name
    return ChangedResource(kind, acl.resource_name, {"acl": details}, code)


def _alter_scram(
    body: AlterUserScramCredentialsRequest, response: AlterUserScramCredentialsResponse
) -> Iterator[ChangedResource]:
    codes = {result.user: result.error_code for result in response.results}
    for deletion in body.deletions:
        details = {"deleted": _mechanism(deletion.mechanism)}
        yield ChangedResource("USER", deletion.name, details, codes.get(deletion.name, 0))
    for upsertion in body.upsertions:
        changed: Details = {
            "set": _mechanism(upsertion.mechanism),
            "iterations": upsertion.iterations,
        }
        yield ChangedResource("USER", upsertion.name, changed, codes.get(upsertion.name, 0))


def _mechanism(number: int) -> str:
    return _name(ScramMechanism, number).replace("_", "-")


def _create_token(
    body: CreateDelegationTokenRequest, response: CreateDelegationTokenResponse
) -> Iterator[ChangedResource]:
    renewers = [f"{each.principal_type}:{each.principal_name}" for each in body.renewers]
    details: Details = {
        "owner": f"{response.principal_type}:{response.principal_name}",
        "renewers": renewers,
        "expiry_ms": response.expiry_timestamp_ms,
        "max_ms": response.max_timestamp_ms,
    }
    yield ChangedResource("DELEGATION_TOKEN", response.token_id, details, response.error_code)


def _renew_token(
    body: RenewDelegationTokenRequest, response: RenewDelegationTokenResponse
) -> Iterator[ChangedResource]:
    yield _token(body.renew_period_ms, response.expiry_timestamp_ms, response.error_code)


def _expire_token(
    body: ExpireDelegationTokenRequest, response: ExpireDelegationTokenResponse
) -> Iterator[ChangedResource]:
    yield _token(body.expiry_time_period_ms, response.expiry_timestamp_ms, response.error_code)


def _token(period_ms: int, expiry_ms: int, code: int) -> ChangedResource:
    """The request names the token by its HMAC only, which is a password."""
    details: Details = {"period_ms": period_ms, "expiry_ms": expiry_ms}
    return ChangedResource("DELEGATION_TOKEN", "", details, code)


# --- groups and transactions


def _delete_groups(
    body: DeleteGroupsRequest, response: DeleteGroupsResponse
) -> Iterator[ChangedResource]:
    codes = {result.group_id: result.error_code for result in response.results}
    for name in body.groups_names:
        yield ChangedResource("GROUP", name, {}, codes.get(name, 0))


def _delete_offsets(
    body: OffsetDeleteRequest, response: OffsetDeleteResponse
) -> Iterator[ChangedResource]:
    codes = {
        (topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }
    by_code: dict[int, dict[str, list[int]]] = {}
    for topic in body.topics:
        for partition in topic.partitions:
            key = topic.name, partition.partition_index
            topics = by_code.setdefault(codes.get(key, response.error_code), {})
            topics.setdefault(topic.name, []).append(partition.partition_index)
    for code, topics in by_code.items():
        yield ChangedResource("GROUP", body.group_id, {"deleted_offsets": topics}, code)


def _write_markers(
    body: WriteTxnMarkersRequest, response: WriteTxnMarkersResponse
) -> Iterator[ChangedResource]:
    codes = {
        (marker.producer_id, topic.name, partition.partition_index): partition.error_code
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
    for marker in body.markers:
        outcome = "commit" if marker.transaction_result else "abort"
        for topic in marker.topics:
            by_code: dict[int, list[int]] = {}
            for partition in topic.partition_indexes:
                code = codes.get((marker.producer_id, topic.name, partition), 0)
                by_code.setdefault(code, []).append(partition)
            for code, partitions in by_code.items():
                details = {
                    "marker": outcome,
                    "producer_id": marker.producer_id,
                    "producer_epoch": marker.producer_epoch,
                    "partitions": partitions,
                }
                yield ChangedResource("TOPIC", topic.name, details, code)


def _name(kind: type[ConfigOpType] | type[ScramMechanism], number: int) -> str:
    return kind(number).name if number in kind._value2member_map_ else str(number)


CHANGES: Final[dict[ApiKey, Describe]] = {
    ApiKey.CREATE_TOPICS: topic_changes.describe_create_topics,
    ApiKey.DELETE_TOPICS: topic_changes.describe_delete_topics,
    ApiKey.DELETE_RECORDS: topic_changes.describe_delete_records,
    ApiKey.WRITE_TXN_MARKERS: _write_markers,
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: _delete_acls,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: topic_changes.describe_alter_log_dirs,
    ApiKey.CREATE_PARTITIONS: topic_changes.describe_create_partitions,
    ApiKey.CREATE_DELEGATION_TOKEN: _create_token,
    ApiKey.RENEW_DELEGATION_TOKEN: _renew_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _expire_token,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.ELECT_LEADERS: topic_changes.describe_elect_leaders,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: topic_changes.describe_alter_reassignments,
    ApiKey.OFFSET_DELETE: _delete_offsets,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_scram,
    ApiKey.UPDATE_FEATURES: _update_features,
}
"""The APIs that change the cluster for everybody."""

AUTHORIZATION_ERRORS: Final = frozenset(
    (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    )
)
"""Changes that failed with one of these are denials already."""


def without_denied(resources: Iterable[ChangedResource]) -> Iterator[ChangedResource]:
    return (each for each in resources if each.error_code not in AUTHORIZATION_ERRORS)
