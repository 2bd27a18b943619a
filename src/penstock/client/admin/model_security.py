"""What the admin client takes and gives about ACLs, quotas and SCRAM users."""

from enum import Enum
from typing import Literal, NamedTuple, TypeAlias

from penstock.security.acl import AclOperation, AclPermission, PatternType, ResourceType
from penstock.security.scram_credential import MIN_ITERATIONS, ScramMechanism


class AclBinding(NamedTuple):
    """A rule: who may, or may not, do what with which resource."""

    resource_type: ResourceType
    resource_name: str
    """`kafka-cluster` for the cluster, `*` with LITERAL for every one."""
    pattern_type: PatternType
    principal: str
    """`User:ann`; `User:*` for everybody."""
    host: str
    """An address; `*` for every one."""
    operation: AclOperation
    permission: AclPermission


class AclBindingFilter(NamedTuple):
    """Which rules are meant; ANY and None leave a part open.

    With the pattern type MATCH the name is that of a resource, and every rule that applies to it
    is meant.
    """

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY


class Quota(Enum):
    """Names that are none."""

    DEFAULT = "<default>"
    """The default entity: for all that have no quota of their own."""
    ANY = "<any>"
    """In filters: whatever it is called, but there must be one."""


QuotaName: TypeAlias = str | Literal[Quota.DEFAULT]
QuotaMatch: TypeAlias = str | Quota


class ClientQuotaEntity(NamedTuple):
    """Whom a quota is for: a user, a client id, both together, or an address."""

    user: QuotaName | None = None
    client_id: QuotaName | None = None
    ip: QuotaName | None = None


class ClientQuotaFilter(NamedTuple):
    """Which quotas are meant: those that fit every part that is given."""

    user: QuotaMatch | None = None
    client_id: QuotaMatch | None = None
    ip: QuotaMatch | None = None
    strict: bool = False
    """Leave out quotas that have parts which are not given here."""


class ScramCredentialInfo(NamedTuple):
    mechanism: ScramMechanism
    iterations: int


class ScramUpsertion(NamedTuple):
    """A new password for a user. It is salted and hashed here and never sent."""

    user: str
    mechanism: ScramMechanism
    password: str
    iterations: int = MIN_ITERATIONS
    salt: bytes | None = None
    """None: a random one."""

    def __repr__(self) -> str:
        return f"ScramUpsertion({self.user!r}, {self.mechanism.mechanism_name}, password hidden)"


class ScramDeletion(NamedTuple):
    user: str
    mechanism: ScramMechanism
