"""Authorization by the cluster's ACLs, with the rules of Kafka's StandardAuthorizer (X3)."""

from collections import Counter
from collections.abc import Iterable, Iterator

from penstock.security.acl import (
    SUPPORTED_OPERATIONS,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclFilter,
    AclOperation,
    Entry,
    PatternKey,
    ResourceType,
    operation_bits,
)
from penstock.security.principal import Principal

CACHE_LIMIT = 20_000
"""The number of cached decisions; the cache is cleared when it is full."""

# A principal with one of these operations may also describe the resource, or its configuration.
_IMPLIES = {
    "DESCRIBE": frozenset({"ALL", "DESCRIBE", "READ", "WRITE", "DELETE", "ALTER"}),
    "DESCRIBE_CONFIGS": frozenset({"ALL", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}),
}
# The name that Kafka uses where only the resource type matters.
_SOME_NAME = "hardcode"


def parse_super_users(text: str) -> frozenset[str]:
    """Parses `super.users`: principals separated by semicolons."""
    users = (part.strip() for part in text.split(";"))
    return frozenset(str(Principal.parse(user)) for user in users if user)


class _Rules:
    """The entries of one resource pattern, by principal."""

    __slots__ = ("by_principal", "entries")

    def __init__(self, entries: frozenset[Entry]) -> None:
        self.entries = entries
        self.by_principal: dict[str, list[Entry]] = {}
        for entry in entries:
            self.by_principal.setdefault(entry[0], []).append(entry)

    def of(self, principal: str) -> Iterator[Entry]:
        for name in _principals(principal):
            yield from self.by_principal.get(name, ())


def _principals(principal: str) -> tuple[str, ...]:
    """Returns the principals whose entries apply to a principal."""
    if principal == WILDCARD_PRINCIPAL:
        return (principal,)
    return (principal, WILDCARD_PRINCIPAL)


class _Patterns:
    """All patterns of one resource type."""

    __slots__ = ("_by_principal", "_length_counts", "_lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _Rules] = {}
        self.prefixed: dict[str, _Rules] = {}
        self._by_principal: dict[str, set[tuple[str, str]]] = {}
        """The types and names of the patterns with entries of a principal."""
        self._length_counts: Counter[int] = Counter()
        self._lengths: list[int] = []
        """The distinct lengths of the prefixes, ascending: few, however many prefixes exist."""

    def of_type(self, pattern_type: str) -> dict[str, _Rules]:
        return self.prefixed if pattern_type == "PREFIXED" else self.literal

    def put(self, pattern_type: str, name: str, rules: _Rules) -> None:
        self.delete(pattern_type, name)
        patterns = self.of_type(pattern_type)
        patterns[name] = rules
        if patterns is self.prefixed:
            self._count_length(len(name), 1)
        for principal in rules.by_principal:
            self._by_principal.setdefault(principal, set()).add((pattern_type, name))

    def delete(self, pattern_type: str, name: str) -> None:
        patterns = self.of_type(pattern_type)
        rules = patterns.pop(name, None)
        if rules is None:
            return
        if patterns is self.prefixed:
            self._count_length(len(name), -1)
        for principal in rules.by_principal:
            named = self._by_principal[principal]
            named.discard((pattern_type, name))
            if not named:
                del self._by_principal[principal]

    def about(self, principal: str) -> Iterator[tuple[str, str, Entry]]:
        """Yields type, name and entry of all patterns with entries that apply to a principal."""
        for entry_principal in _principals(principal):
            for pattern_type, name in self._by_principal.get(entry_principal, ()):
                for entry in self.of_type(pattern_type)[name].by_principal[entry_principal]:
                    yield pattern_type, name, entry

    def _count_length(self, length: int, change: int) -> None:
        before = self._length_counts[length]
        self._length_counts[length] += change
        if before == 0 or before + change == 0:
            self._length_counts += Counter()  # drops the zeros
            self._lengths = sorted(self._length_counts)

    def prefixes_of(self, name: str) -> Iterator[_Rules]:
        for length in self._lengths:
            if length > len(name):
                return
            rules = self.prefixed.get(name[:length])
            if rules is not None:
                yield rules

    def applying_to(self, name: str) -> Iterator[_Rules]:
        for literal in (name, WILDCARD) if name != WILDCARD else (WILDCARD,):
            rules = self.literal.get(literal)
            if rules is not None:
                yield rules
        yield from self.prefixes_of(name)


class AclAuthorizer:
    """Decides by all ACLs of the cluster, which `put` and `delete` maintain.

    A DENY overrides every ALLOW. If no pattern applies to a resource, access is denied, unless
    `allow_everyone_if_no_acl_found` is set. Super users may do everything.
    """

    def __init__(
        self,
        super_users: frozenset[str] = frozenset(),
        allow_everyone_if_no_acl_found: bool = False,
    ) -> None:
        """`super_users` are principals such as `User:admin`; see `parse_super_users`."""
        self._super_users = super_users
        self._default = allow_everyone_if_no_acl_found
        self._types: dict[str, _Patterns] = {}
        self._decisions: dict[tuple[Principal, str, int, int, str | None], bool] = {}

    # --- ACLs

    def put(self, key: PatternKey, entries: Iterable[Entry]) -> None:
        """Replaces all entries of a pattern."""
        resource_type, pattern_type, name = key
        rules = _Rules(frozenset(entries))
        if not rules.entries:
            self.delete(key)
            return
        self._types.setdefault(resource_type, _Patterns()).put(pattern_type, name, rules)
        self._decisions.clear()

    def delete(self, key: PatternKey) -> None:
        """Removes all entries of a pattern."""
        resource_type, pattern_type, name = key
        patterns = self._types.get(resource_type)
        if patterns is not None:
            patterns.delete(pattern_type, name)
        self._decisions.clear()

    def acls(self, acl_filter: AclFilter) -> Iterator[tuple[PatternKey, list[Entry]]]:
        """Yields the ACLs that match a filter, by pattern. They may change between two of them.

        It takes long if there are many others: the event loop uses `patterns` instead.
        """
        for key, entries in self.patterns():
            if acl_filter.matches_pattern(key):
                matching = [entry for entry in entries if acl_filter.matches_entry(entry)]
                if matching:
                    yield key, matching

    def patterns(self) -> Iterator[tuple[PatternKey, frozenset[Entry]]]:
        """Yields all patterns with their entries. They may change between two of them."""
        for resource_type, patterns in list(self._types.items()):
            for pattern_type in ("LITERAL", "PREFIXED"):
                for name, rules in list(patterns.of_type(pattern_type).items()):
                    yield (resource_type, pattern_type, name), rules.entries

    # --- decisions

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str,
    ) -> bool:
        """Returns whether a principal at an address may do an operation on a resource."""
        query = (principal, host, operation, resource_type, resource_name)
        cached = self._decisions.get(query)
        if cached is not None:
            return cached
        decision = self._decide(
            str(principal), host, operation.name, resource_type.name, resource_name
        )
        return self._cache(query, decision)

    def authorize_by_resource_type(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Returns whether the principal may do the operation on some resource of this type.

        Such a client may use an idempotent producer (KIP-679).
        """
        query = (principal, host, operation, resource_type, None)
        cached = self._decisions.get(query)
        if cached is not None:
            return cached
        decision = self._decide_by_type(str(principal), host, operation.name, resource_type.name)
        return self._cache(query, decision)

    def authorized_operations(
        self, principal: Principal, host: str, resource_type: ResourceType, resource_name: str
    ) -> int:
        """Returns the bit set of the operations that the principal may do on a resource."""
        return operation_bits(
            tuple(
                operation
                for operation in SUPPORTED_OPERATIONS[resource_type]
                if self.authorize(principal, host, operation, resource_type, resource_name)
            )
        )

    def _cache(self, query: tuple[Principal, str, int, int, str | None], decision: bool) -> bool:
        if len(self._decisions) >= CACHE_LIMIT:
            self._decisions.clear()
        self._decisions[query] = decision
        return decision

    def _decide(
        self, principal: str, host: str, operation: str, resource_type: str, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        patterns = self._types.get(resource_type)
        if patterns is None:
            return self._default
        allowing = _IMPLIES.get(operation) or frozenset({"ALL", operation})
        is_allowed = has_pattern = False
        for rules in patterns.applying_to(name):
            has_pattern = True
            for _, entry_host, entry_operation, permission in rules.of(principal):
                if entry_host != host and entry_host != WILDCARD:
                    continue
                if permission == "ALLOW":
                    is_allowed = is_allowed or entry_operation in allowing
                elif entry_operation == operation or entry_operation == "ALL":
                    return False
        return is_allowed if has_pattern else self._default

    def _decide_by_type(
        self, principal: str, host: str, operation: str, resource_type: str
    ) -> bool:
        if self._decide(principal, host, operation, resource_type, _SOME_NAME):
            return True
        patterns = self._types.get(resource_type)
        if patterns is None:
            return False

        # By permission and pattern type. An entry must be for exactly this operation: none is
        # implied here.
        names: dict[tuple[str, str], set[str]] = {}
        for pattern_type, name, (_, entry_host, entry_operation, permission) in patterns.about(
            principal
        ):
            if entry_host in (host, WILDCARD) and entry_operation in (operation, "ALL"):
                names.setdefault((permission, pattern_type), set()).add(name)
        none: set[str] = set()
        denied = names.get(("DENY", "LITERAL"), none)
        allowed = names.get(("ALLOW", "LITERAL"), none)
        if WILDCARD in denied or WILDCARD in allowed:
            return WILDCARD not in denied
        denied_prefixes = names.get(("DENY", "PREFIXED"), none)
        return any(
            not any(name[:end] in denied_prefixes for end in range(1, len(name) + 1))
            for name in (allowed - denied) | names.get(("ALLOW", "PREFIXED"), none)
        )
