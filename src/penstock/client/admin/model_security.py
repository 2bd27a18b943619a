"""Values of the admin client: ACLs, quotas and SCRAM credentials."""

from base64 import b64encode
from enum import Enum
from typing import Literal, NamedTuple, TypeAlias

from penstock.security.acl import AclOperation, AclPermission, PatternType, ResourceType
from penstock.security.scram_credential import MIN_ITERATIONS, ScramMechanism


class AclBinding(NamedTuple):
    """A rule that allows or denies a principal an operation on resources."""

    resource_type: ResourceType
    resource_name: str
    """`kafka-cluster` for the cluster; `*` with LITERAL for all resources."""
    pattern_type: PatternType
    principal: str
    """`User:ann`; `User:*` for all users."""
    host: str
    """An address; `*` for all."""
    operation: AclOperation
    permission: AclPermission


class AclBindingFilter(NamedTuple):
    """A filter of ACLs; ANY and None match everything.

    With the pattern type MATCH the name is that of a resource, and the filter matches all rules
    that apply to it.
    """

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY


class Quota(Enum):
    """Special names of entities."""

    DEFAULT = "<default>"
    """The default entity, for all without a quota of their own."""
    ANY = "<any>"
    """In filters: any name, but there must be one."""


QuotaName: TypeAlias = str | Literal[Quota.DEFAULT]
QuotaMatch: TypeAlias = str | Quota


class ClientQuotaEntity(NamedTuple):
    """The subject of a quota: a user, a client id, both together, or an address."""

    user: QuotaName | None = None
    client_id: QuotaName | None = None
    ip: QuotaName | None = None


class ClientQuotaFilter(NamedTuple):
    """A filter of quotas, which matches if all given parts match."""

    user: QuotaMatch | None = None
    client_id: QuotaMatch | None = None
    ip: QuotaMatch | None = None
    strict: bool = False
    """Do not match quotas with parts that are not given here."""


class ScramCredentialInfo(NamedTuple):
    mechanism: ScramMechanism
    iterations: int


class ScramUpsertion(NamedTuple):
    """A new password for a user. It is salted and hashed by the client and never sent."""

    user: str
    mechanism: ScramMechanism
    password: str
    iterations: int = MIN_ITERATIONS
    salt: bytes | None = None
    """By default a random one."""

    def __repr__(self) -> str:
        return f"ScramUpsertion({self.user!r}, {self.mechanism.mechanism_name}, password hidden)"


class ScramDeletion(NamedTuple):
    user: str
    mechanism: ScramMechanism


class DelegationToken(NamedTuple):
    """A token with which others log in as its owner, with SCRAM: `token_id` is the user name, and
    `password` the password. Times are in milliseconds since the epoch."""

    token_id: str
    hmac: bytes
    owner: str
    requester: str
    """Who created it."""
    renewers: tuple[str, ...]
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int
    """No renewal moves the expiry beyond this time."""

    @property
    def password(self) -> str:
        """The HMAC in base64."""
        return b64encode(self.hmac).decode()

    def __repr__(self) -> str:
        return f"DelegationToken({self.token_id!r}, owner={self.owner!r}, HMAC hidden)"
