"""The check that DescribeAcls, CreateAcls and DeleteAcls share (X3)."""

from penstock.broker.request import Session
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.acl import AclOperation
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
            "this broker has no authorizer, so there are no ACLs: set authorizer.class.name="
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer and restart it",
        )
    return acl_authorizer
