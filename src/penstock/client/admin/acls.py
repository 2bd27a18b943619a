"""Admin calls for ACLs: describe, create, delete."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.client.admin.advice import broker_error, error_or_none
from penstock.client.admin.api_driver import (
    CONTROLLER_CODES,
    AdminApiDriver,
    NodeProvider,
    code_and_message,
)
from penstock.client.admin.model_security import AclBinding, AclBindingFilter
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from penstock.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from penstock.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from penstock.security.acl import AclOperation, AclPermission, PatternType, ResourceType

_ANY_ACL = AclBindingFilter()


class AclCalls(AdminApiDriver):
    """The calls for ACLs. Brokers without an authorizer respond with SECURITY_DISABLED."""

    async def describe_acls(
        self, acl_filter: AclBindingFilter = _ANY_ACL, *, timeout_ms: int | None = None
    ) -> list[AclBinding]:
        """Returns the ACLs that match a filter, sorted."""
        response = await self._request_until_done(
            "describe_acls",
            NodeProvider.ANY,
            DescribeAclsRequest(*_numbers(acl_filter)),
            DescribeAclsResponse,
            self._deadline(timeout_ms),
            get_error=code_and_message,
            required=(1, "2.0"),
        )
        return sorted(
            _binding(
                resource.resource_type,
                resource.resource_name,
                resource.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for resource in response.resources
            for acl in resource.acls
        )

    async def create_acls(
        self, acls: Iterable[AclBinding], *, timeout_ms: int | None = None
    ) -> None:
        """Creates ACLs; ignores those that exist."""
        deadline_ms = self._deadline(timeout_ms)

        async def send(
            node_id: int, keys: Sequence[AclBinding]
        ) -> Mapping[AclBinding, KafkaError | None]:
            response = await self._request(
                "create_acls",
                node_id,
                CreateAclsRequest([AclCreation(*acl) for acl in keys]),
                CreateAclsResponse,
                deadline_ms,
                required=(1, "2.0"),
            )
            return {
                acl: error_or_none(result.error_code, f"ACL {_text(acl)}", result.error_message)
                for acl, result in zip(keys, response.results, strict=False)
            }

        await self._request_each(
            "create_acls",
            acls,
            self._single_node(NodeProvider.ANY, deadline_ms),
            send,
            deadline_ms,
            retriable=CONTROLLER_CODES,
        )

    async def delete_acls(
        self, filters: Iterable[AclBindingFilter], *, timeout_ms: int | None = None
    ) -> dict[AclBindingFilter, list[AclBinding]]:
        """Deletes all ACLs that match the filters; returns the deleted ones by filter."""
        deadline_ms = self._deadline(timeout_ms)

        async def send(
            node_id: int, keys: Sequence[AclBindingFilter]
        ) -> Mapping[AclBindingFilter, list[AclBinding] | KafkaError]:
            response = await self._request(
                "delete_acls",
                node_id,
                DeleteAclsRequest([DeleteAclsFilter(*_numbers(key)) for key in keys]),
                DeleteAclsResponse,
                deadline_ms,
                required=(1, "2.0"),
            )
            return {
                acl_filter: _deleted(result)
                for acl_filter, result in zip(keys, response.filter_results, strict=False)
            }

        return await self._request_each(
            "delete_acls",
            filters,
            self._single_node(NodeProvider.ANY, deadline_ms),
            send,
            deadline_ms,
            retriable=CONTROLLER_CODES,
        )


def _numbers(
    acl_filter: AclBindingFilter,
) -> tuple[int, str | None, int, str | None, str | None, int, int]:
    kind, name, pattern, principal, host, operation, permission = acl_filter
    return int(kind), name, int(pattern), principal, host, int(operation), int(permission)


def _binding(
    kind: int, name: str, pattern: int, principal: str, host: str, operation: int, permission: int
) -> AclBinding:
    return AclBinding(
        ResourceType.from_code(kind),
        name,
        PatternType.from_code(pattern),
        principal,
        host,
        AclOperation.from_code(operation),
        AclPermission.from_code(permission),
    )


def _deleted(result: DeleteAclsFilterResult) -> list[AclBinding] | KafkaError:
    if result.error_code != ErrorCode.NONE:
        return broker_error(result.error_code, "`delete_acls`", result.error_message)
    deleted: list[AclBinding] = []
    for acl in result.matching_acls:
        binding = _binding(
            acl.resource_type,
            acl.resource_name,
            acl.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        if acl.error_code != ErrorCode.NONE:
            return broker_error(acl.error_code, f"ACL {_text(binding)}", acl.error_message)
        deleted.append(binding)
    return sorted(deleted)


def _text(acl: AclBinding) -> str:
    return (
        f"{acl.permission.name} {acl.principal} {acl.operation.name} on "
        f"{acl.resource_type.name} {acl.resource_name}"
    )
