"""What the three APIs about access rules share (X3)."""

from typing import TYPE_CHECKING

from penstock.broker.request import Session
from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.acl import AclOperation
from penstock.security.acl_authorizer import AclAuthorizer

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


def authorizer_for(broker: "Broker", session: Session, operation: AclOperation) -> AclAuthorizer:
    """The authorizer, for a client that may look at its rules or change them; else KafkaError."""
    broker.authorizer.require(session, operation)
    authorizer = broker.authorizer.acl_authorizer
    if authorizer is None:
        raise KafkaError(
            ErrorCode.SECURITY_DISABLED,
            "this broker has no authorizer, so there are no ACLs: set authorizer.class.name="
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer and restart it",
        )
    return authorizer
