"""Records the rights that a broker checks."""

from typing import Any

from penstock.security.acl import AclOperation, ResourceType
from penstock.security.acl_authorizer import AclAuthorizer
from penstock.security.principal import Principal
from tests.support.security.principals import SUPER_USER


class AskedRights:
    """Stands in for the authorizer of a broker, and collects what it is asked for.

    Questions about the super user are left out: it also prepares what the requests need.
    """

    def __init__(self, authorizer: AclAuthorizer) -> None:
        self._authorizer = authorizer
        self.rights: set[tuple[ResourceType, AclOperation]] = set()

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource: ResourceType,
        name: str,
    ) -> bool:
        self._add(principal, operation, resource)
        return self._authorizer.authorize(principal, host, operation, resource, name)

    def authorize_by_resource_type(
        self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType
    ) -> bool:
        self._add(principal, operation, resource)
        return self._authorizer.authorize_by_resource_type(principal, host, operation, resource)

    def _add(self, principal: Principal, operation: AclOperation, resource: ResourceType) -> None:
        if principal.name != SUPER_USER.user:
            self.rights.add((resource, operation))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._authorizer, name)
