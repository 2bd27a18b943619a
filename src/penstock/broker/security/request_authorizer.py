"""Authorization of requests: whether the client of a session may do something (X3)."""

from penstock.broker.request import Session
from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.acl import AclOperation, ResourceType, all_operations
from penstock.security.acl_authorizer import AclAuthorizer

CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""

_CODES = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


class RequestAuthorizer:
    """Asks the cluster's ACLs; without an authorizer every client may do everything."""

    def __init__(self, authorizer: AclAuthorizer | None) -> None:
        self.acl_authorizer = authorizer

    def allows(
        self, session: Session, operation: AclOperation, resource: ResourceType, name: str
    ) -> bool:
        authorizer = self.acl_authorizer
        if authorizer is None:
            return True
        return authorizer.authorize(session.principal, session.host, operation, resource, name)

    def allows_cluster(self, session: Session, operation: AclOperation) -> bool:
        return self.allows(session, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def error(
        self, session: Session, operation: AclOperation, resource: ResourceType, name: str
    ) -> KafkaError:
        """Returns the error for an operation that `allows` denies (E3)."""
        return KafkaError(
            _CODES[resource],
            f"{session.principal} at {session.host} may not {operation.name} "
            f"{resource.name.lower()} {name!r}",
            remedy="add an ACL that allows it",
        )

    def require(
        self,
        session: Session,
        operation: AclOperation,
        resource: ResourceType = ResourceType.CLUSTER,
        name: str = CLUSTER_NAME,
    ) -> None:
        """Raises KafkaError unless the operation is allowed."""
        if not self.allows(session, operation, resource, name):
            raise self.error(session, operation, resource, name)

    def allows_any_write(self, session: Session) -> bool:
        """Returns whether the client may produce to some topic, so get a producer id (KIP-679)."""
        authorizer = self.acl_authorizer
        if authorizer is None:
            return True
        principal, host = session.principal, session.host
        return authorizer.authorize(
            principal, host, AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME
        ) or authorizer.authorize_by_resource_type(
            principal, host, AclOperation.WRITE, ResourceType.TOPIC
        )

    def authorized_operations(
        self, session: Session, resource: ResourceType, name: str = CLUSTER_NAME
    ) -> int:
        """Returns the bit set of the operations that the client may do with a resource."""
        authorizer = self.acl_authorizer
        if authorizer is None:
            return all_operations(resource)
        return authorizer.authorized_operations(session.principal, session.host, resource, name)
