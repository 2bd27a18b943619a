"""Admin calls for ACLs. Brokers without an authorizer respond with SECURITY_DISABLED."""

from collections.abc import Iterable, Sequence

from penstock.client.admin.advice import response_error
from penstock.client.admin.api_driver import AdminApiDriver, AdminCall, NodeProvider, Results
from penstock.client.admin.api_lookup import single_node
from penstock.client.admin.model_security import AclBinding, AclBindingFilter
from penstock.core.errors import KafkaError
from penstock.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from penstock.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from penstock.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from penstock.security.acl import AclOperation, AclPermission, PatternType, ResourceType

_ANY_ACL = AclBindingFilter()


async def describe_acls(
    admin: AdminApiDriver,
    acl_filter: AclBindingFilter = _ANY_ACL,
    *,
    timeout_ms: int | None = None,
) -> list[AclBinding]:
    """Returns the ACLs that match a filter, sorted."""
    response = await AdminCall(admin, "describe_acls", timeout_ms).request_until_done(
        NodeProvider.ANY,
        DescribeAclsRequest(*_numbers(acl_filter)),
        DescribeAclsResponse,
        required=(1, "2.0"),
    )
    return sorted(
        _binding(resource, acl) for resource in response.resources for acl in resource.acls
    )


async def create_acls(
    admin: AdminApiDriver, acls: Iterable[AclBinding], *, timeout_ms: int | None = None
) -> None:
    """Creates ACLs; ignores those that exist."""
    call = AdminCall(admin, "create_acls", timeout_ms)

    async def send(node_id: int, keys: Sequence[AclBinding]) -> Results[AclBinding, None]:
        request = CreateAclsRequest([AclCreation(*acl) for acl in keys])
        response = await call.request(node_id, request, CreateAclsResponse, required=(1, "2.0"))
        return {
            acl: response_error(result, f"ACL {_text(acl)}")
            for acl, result in zip(keys, response.results, strict=False)
        }

    await call.request_each(acls, single_node(call, NodeProvider.ANY), send)


async def delete_acls(
    admin: AdminApiDriver, filters: Iterable[AclBindingFilter], *, timeout_ms: int | None = None
) -> dict[AclBindingFilter, list[AclBinding]]:
    """Deletes all ACLs that match the filters; returns the deleted ones by filter."""
    call = AdminCall(admin, "delete_acls", timeout_ms)

    async def send(
        node_id: int, keys: Sequence[AclBindingFilter]
    ) -> Results[AclBindingFilter, list[AclBinding]]:
        request = DeleteAclsRequest([DeleteAclsFilter(*_numbers(key)) for key in keys])
        response = await call.request(node_id, request, DeleteAclsResponse, required=(1, "2.0"))
        return {
            acl_filter: response_error(result, "`delete_acls`") or _deleted(result)
            for acl_filter, result in zip(keys, response.filter_results, strict=False)
        }

    return await call.request_each(filters, single_node(call, NodeProvider.ANY), send)


def _numbers(
    acl_filter: AclBindingFilter,
) -> tuple[int, str | None, int, str | None, str | None, int, int]:
    kind, name, pattern, principal, host, operation, permission = acl_filter
    return int(kind), name, int(pattern), principal, host, int(operation), int(permission)


def _binding(
    resource: DescribeAclsResource | DeleteAclsMatchingAcl,
    acl: AclDescription | DeleteAclsMatchingAcl,
) -> AclBinding:
    return AclBinding(
        ResourceType.from_code(resource.resource_type),
        resource.resource_name,
        PatternType.from_code(resource.pattern_type),
        acl.principal,
        acl.host,
        AclOperation.from_code(acl.operation),
        AclPermission.from_code(acl.permission_type),
    )


def _deleted(result: DeleteAclsFilterResult) -> list[AclBinding] | KafkaError:
    deleted: list[AclBinding] = []
    for acl in result.matching_acls:
        binding = _binding(acl, acl)
        error = response_error(acl, f"ACL {_text(binding)}")
        if error is not None:
            return error
        deleted.append(binding)
    return sorted(deleted)


def _text(acl: AclBinding) -> str:
    return (
        f"{acl.permission.name} {acl.principal} {acl.operation.name} on "
        f"{acl.resource_type.name} {acl.resource_name}"
    )
