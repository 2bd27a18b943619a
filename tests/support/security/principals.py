"""The users of the authorization matrix: one for each single right, and a few with several."""

from dataclasses import dataclass
from typing import Final

from penstock.protocol.messages.create_acls import AclCreation
from penstock.security.acl import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)

ALLOWED_PREFIX: Final = "allowed-"
"""A right on topics, groups or transactional ids applies to names with this prefix."""

Right = tuple[ResourceType, AclOperation]

_TITLES: Final = {
    ResourceType.TOPIC: "Topic",
    ResourceType.GROUP: "Group",
    ResourceType.CLUSTER: "Cluster",
    ResourceType.TRANSACTIONAL_ID: "TransactionalId",
    ResourceType.DELEGATION_TOKEN: "DelegationToken",
    ResourceType.USER: "User",
}
_PATTERNS: Final = {
    ResourceType.TOPIC: (PatternType.PREFIXED, ALLOWED_PREFIX),
    ResourceType.GROUP: (PatternType.PREFIXED, ALLOWED_PREFIX),
    ResourceType.TRANSACTIONAL_ID: (PatternType.PREFIXED, ALLOWED_PREFIX),
    ResourceType.CLUSTER: (PatternType.LITERAL, CLUSTER_NAME),
    ResourceType.DELEGATION_TOKEN: (PatternType.LITERAL, "*"),
    ResourceType.USER: (PatternType.LITERAL, "*"),
}


def title_of(right: Right) -> str:
    """Returns a right as the file and the documentation write it: `Topic READ`."""
    return f"{_TITLES[right[0]]} {right[1].name}"


@dataclass(frozen=True)
class Principal:
    """A user and the rights that it has."""

    title: str
    rights: tuple[Right, ...] = ()

    @property
    def user(self) -> str:
        """The name with which it logs in."""
        return self.title.replace(" ", "_").lower()

    def acls(self) -> list[AclCreation]:
        """Returns the ACLs that give it its rights."""
        result = []
        for resource, operation in self.rights:
            pattern, name = _PATTERNS[resource]
            principal, host = f"User:{self.user}", "*"
            result.append(
                AclCreation(
                    resource, name, pattern, principal, host, operation, AclPermission.ALLOW
                )
            )
        return result


_TOPIC, _GROUP, _TXN = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
_READ, _WRITE = AclOperation.READ, AclOperation.WRITE

NO_LOGIN: Final = "no login"
"""The title of connections that have not logged in."""
NO_RIGHTS: Final = Principal("no rights")
SUPER_USER: Final = Principal("admin")
SINGLE_RIGHTS: Final = tuple(
    Principal(title_of((resource, operation)), ((resource, operation),))
    for resource, operations in SUPPORTED_OPERATIONS.items()
    for operation in operations
)
_COMBINATIONS: Final = (
    Principal("consumer", ((_TOPIC, _READ), (_GROUP, _READ))),
    Principal("producer", ((_TOPIC, _WRITE), (_TXN, _WRITE))),
    Principal("processor", ((_TOPIC, _READ), (_GROUP, _READ), (_TOPIC, _WRITE), (_TXN, _WRITE))),
    Principal("creator", ((_TOPIC, AclOperation.DESCRIBE), (_TOPIC, AclOperation.CREATE))),
)
PRINCIPALS: Final = (NO_RIGHTS, *SINGLE_RIGHTS, *_COMBINATIONS, SUPER_USER)


def jaas_config() -> str:
    """Returns the configuration of PLAIN with all users; the password is the name with -secret."""
    users = " ".join(f'user_{item.user}="{item.user}-secret"' for item in PRINCIPALS)
    return (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{SUPER_USER.user}" password="{SUPER_USER.user}-secret" {users};'
    )
