"""What DescribeAcls, CreateAcls and DeleteAcls share (X3)."""

from penstock.broker.request import Session
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.delete_acls import DeleteAclsFilter
from penstock.protocol.messages.describe_acls import DescribeAclsRequest
from penstock.security.acl import AclFilter, AclOperation
from penstock.security.acl_authorizer import AclAuthorizer


def authorizer_for(
    authorizer: RequestAuthorizer, session: Session, operation: AclOperation
) -> AclAuthorizer:
    """Returns the authorizer whose ACLs the client may describe or alter.

    Raises KafkaError if it may not, or if the broker has no authorizer.
    """
    authorizer.require(session, operation)
    acl_authorizer = authorizer.acl_authorizer
    if acl_authorizer is None:
        raise KafkaError(
            ErrorCode.SECURITY_DISABLED,
            "this broker has no authorizer, so there are no ACLs",
            remedy=(
                "set "
                "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer "
                "and restart it"
            ),
        )
    return acl_authorizer


def acl_filter(request: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Returns the filter of a request; raises INVALID_REQUEST if it has an unknown number."""
    return AclFilter.of_codes(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
