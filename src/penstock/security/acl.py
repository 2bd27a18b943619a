"""Access control lists: resource types, operations, permissions, bindings and filters (X3)."""

from typing import NamedTuple, TypeAlias

from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.enums import CodedEnum

PatternKey: TypeAlias = tuple[str, str, str]
"""Resource type, pattern type and name, in Kafka's upper-case names, as in `controller.AclKey`."""

Entry: TypeAlias = tuple[str, str, str, str]
"""Principal, host, operation and permission, as in `controller.AccessControlEntry`."""

WILDCARD = "*"
"""As a literal resource name or host it matches every one."""
WILDCARD_PRINCIPAL = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class ResourceType(CodedEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(CodedEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(CodedEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(CodedEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


SUPPORTED_OPERATIONS: dict[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (
        AclOperation.WRITE,
        AclOperation.DESCRIBE,
        AclOperation.TWO_PHASE_COMMIT,
    ),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""The operations of each resource type."""


def operation_bits(operations: tuple[AclOperation, ...]) -> int:
    """Returns the bit set of operations, as responses contain it."""
    return sum(1 << operation for operation in operations)


def all_operations(resource_type: ResourceType) -> int:
    """Returns the bit set of all operations, which a broker without an authorizer reports."""
    return operation_bits(SUPPORTED_OPERATIONS[resource_type])


class ResourcePattern(NamedTuple):
    """A `PatternKey` with field names."""

    resource_type: str
    pattern_type: str
    name: str


class AclEntry(NamedTuple):
    """An `Entry` with field names."""

    principal: str
    host: str
    operation: str
    permission: str


class AclBinding(NamedTuple):
    """A resource pattern and one of its entries."""

    pattern: ResourcePattern
    entry: AclEntry


def new_binding(
    resource_type: int,
    resource_name: str,
    pattern_type: int,
    principal: str,
    host: str,
    operation: int,
    permission: int,
) -> AclBinding:
    """Returns the ACL of a CreateAcls request; raises INVALID_REQUEST if it is not valid.

    As in Kafka, an operation that the resource type does not have is accepted: such an entry never
    applies. Kafka's tools refuse it themselves.
    """
    resource = ResourceType.from_code(resource_type)
    if resource is ResourceType.CLUSTER and resource_name != CLUSTER_NAME:
        raise _invalid(f"the only name of a CLUSTER resource is {CLUSTER_NAME!r}")
    if not resource_name:
        raise _invalid("the resource name must not be empty")
    if resource in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise _invalid(f"resource type {resource_type} does not name a type of resource")
    pattern = PatternType.from_code(pattern_type)
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"pattern type {pattern_type} must be LITERAL (3) or PREFIXED (4)")
    action = AclOperation.from_code(operation)
    if action in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise _invalid(f"operation {operation} does not name an operation")
    decision = AclPermission.from_code(permission)
    if decision not in (AclPermission.DENY, AclPermission.ALLOW):
        raise _invalid(f"permission type {permission} must be DENY (2) or ALLOW (3)")
    if ":" not in principal:
        raise _invalid(f"principal {principal!r} has no colon; write Type:name, such as User:ann")
    return AclBinding(
        ResourcePattern(resource.name, pattern.name, resource_name),
        AclEntry(principal, host, action.name, decision.name),
    )


class AclFilter(NamedTuple):
    """The ACLs that DescribeAcls or DeleteAcls selects; None and `ANY` match everything.

    With the pattern type `MATCH` the name is that of a resource, and the filter selects the
    patterns that apply to it: the literal name, every matching prefix, and the wildcard.
    """

    resource_type: ResourceType
    name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: AclPermission

    @classmethod
    def of_codes(
        cls,
        resource_type: int,
        name: str | None,
        pattern_type: int,
        principal: str | None,
        host: str | None,
        operation: int,
        permission: int,
    ) -> "AclFilter":
        """Converts the numbers of a request; raises INVALID_REQUEST if one is unknown."""
        values = (
            ResourceType.from_code(resource_type),
            PatternType.from_code(pattern_type),
            AclOperation.from_code(operation),
            AclPermission.from_code(permission),
        )
        if 0 in values:
            codes = (resource_type, pattern_type, operation, permission)
            unknown = ", ".join(
                f"{type(value).__name__} {code}"
                for value, code in zip(values, codes, strict=True)
                if not value
            )
            raise _invalid(f"the ACL filter has an unknown number: {unknown}")
        return cls(values[0], name, values[1], principal, host, values[2], values[3])

    def matches_pattern(self, key: PatternKey) -> bool:
        resource_type, pattern_type, name = key
        if self.resource_type.name not in ("ANY", resource_type):
            return False
        selected = self.pattern_type.name
        if selected not in ("ANY", "MATCH", pattern_type):
            return False
        if self.name is None:
            return True
        if selected != "MATCH":
            return self.name == name
        if pattern_type == "PREFIXED":
            return self.name.startswith(name)
        return name in (self.name, WILDCARD)

    def matches_entry(self, entry: Entry) -> bool:
        principal, host, operation, permission = entry
        return (
            self.principal in (None, principal)
            and self.host in (None, host)
            and self.operation.name in ("ANY", operation)
            and self.permission.name in ("ANY", permission)
        )


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)
