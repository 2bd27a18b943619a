"""Authorization of requests: whether the client of a session may do something (X3)."""

from collections.abc import Callable
from typing import TypeAlias

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


OnDenial: TypeAlias = Callable[[Session, AclOperation, ResourceType, str], None]


class RequestAuthorizer:
    """Asks the cluster's ACLs; without an authorizer every client may do everything."""

    def __init__(self, authorizer: AclAuthorizer | None, on_denial: OnDenial | None = None) -> None:
        """`on_denial` is called for every operation that is refused to a client."""
        self.acl_authorizer = authorizer
        self._on_denial = on_denial

    def allows(
        self, session: Session, operation: AclOperation, resource: ResourceType, name: str
    ) -> bool:
        """Returns whether a client may do what it asks for; if not, that is a denial."""
        if self.would_allow(session, operation, resource, name):
            return True
        if self._on_denial is not None:
            self._on_denial(session, operation, resource, name)
        return False

    def would_allow(
        self, session: Session, operation: AclOperation, resource: ResourceType, name: str
    ) -> bool:
        """Returns the same as `allows` where a refusal is no denial.

        For lists that contain only what the client may see, and for rights one of which suffices.
        """
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
        return authorizer.authorize_by_resource_type(
            session.principal, session.host, AclOperation.WRITE, ResourceType.TOPIC
        ) or self.allows_cluster(session, AclOperation.IDEMPOTENT_WRITE)

    def authorized_operations(self, session: Session, resource: ResourceType, name: str) -> int:
        """Returns the bit set of the operations that the client may do with a resource."""
        authorizer = self.acl_authorizer
        if authorizer is None:
            return all_operations(resource)
        return authorizer.authorized_operations(session.principal, session.host, resource, name)

    def cluster_operations(self, session: Session) -> int:
        """Returns the bit set for the cluster; it is empty for those who may not describe it."""
        resource = ResourceType.CLUSTER
        if not self.would_allow(session, AclOperation.DESCRIBE, resource, CLUSTER_NAME):
            return 0
        return self.authorized_operations(session, resource, CLUSTER_NAME)
