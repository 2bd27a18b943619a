"""Who may do what: the rules of Kafka's StandardAuthorizer over the cluster's ACLs (X3)."""

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
"""Decisions that are remembered; one more, and all are forgotten."""

# Whoever is allowed one of these may also describe the resource, or its configuration.
_IMPLIES = {
    "DESCRIBE": frozenset({"ALL", "DESCRIBE", "READ", "WRITE", "DELETE", "ALTER"}),
    "DESCRIBE_CONFIGS": frozenset({"ALL", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}),
}
# Any name would do where only the resource type matters. This is Kafka's.
_SOME_NAME = "hardcode"


def parse_super_users(text: str) -> frozenset[str]:
    """`super.users`: principals separated by semicolons."""
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
    """The principals whose entries apply."""
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
        """The types and names of the patterns that say something about a principal."""
        self._length_counts: Counter[int] = Counter()
        self._lengths: list[int] = []
        """Of the prefixes, rising, each once: names have few, however many prefixes there are."""

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
        """Type and name of each pattern with an entry that applies to a principal."""
        for each in _principals(principal):
            for pattern_type, name in self._by_principal.get(each, ()):
                for entry in self.of_type(pattern_type)[name].by_principal[each]:
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
    """Decides from all ACLs of the cluster, which `put` and `delete` tell it.

    A DENY wins over every ALLOW. Where no pattern applies to a resource, nobody may touch it, or
    everybody where `allow_everyone_if_no_acl_found`. Super users may do all.
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

    # --- what the rules are

    def put(self, key: PatternKey, entries: Iterable[Entry]) -> None:
        """These are now all entries of a pattern."""
        resource_type, pattern_type, name = key
        rules = _Rules(frozenset(entries))
        if not rules.entries:
            self.delete(key)
            return
        self._types.setdefault(resource_type, _Patterns()).put(pattern_type, name, rules)
        self._decisions.clear()

    def delete(self, key: PatternKey) -> None:
        """A pattern has no entries any more."""
        resource_type, pattern_type, name = key
        patterns = self._types.get(resource_type)
        if patterns is not None:
            patterns.delete(pattern_type, name)
        self._decisions.clear()

    def acls(self, acl_filter: AclFilter) -> Iterator[tuple[PatternKey, list[Entry]]]:
        """The ACLs that a filter finds, by pattern."""
        for resource_type, patterns in self._types.items():
            for pattern_type in ("LITERAL", "PREFIXED"):
                for name, rules in patterns.of_type(pattern_type).items():
                    key = (resource_type, pattern_type, name)
                    if acl_filter.matches_pattern(key):
                        found = [e for e in rules.entries if acl_filter.matches_entry(e)]
                        if found:
                            yield key, found

    # --- what they mean

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str,
    ) -> bool:
        """Whether a principal at an address may do this to this resource."""
        question = (principal, host, operation, resource_type, resource_name)
        known = self._decisions.get(question)
        if known is not None:
            return known
        decision = self._decide(
            str(principal), host, operation.name, resource_type.name, question[4]
        )
        return self._remember(question, decision)

    def authorize_by_resource_type(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether there can be a resource of this type to which the principal may do this.

        Such a client may use idempotent producing (KIP-679).
        """
        question = (principal, host, operation, resource_type, None)
        known = self._decisions.get(question)
        if known is not None:
            return known
        decision = self._decide_by_type(str(principal), host, operation.name, resource_type.name)
        return self._remember(question, decision)

    def authorized_operations(
        self, principal: Principal, host: str, resource_type: ResourceType, resource_name: str
    ) -> int:
        """All that the principal may do to a resource, one bit for each operation."""
        return operation_bits(
            tuple(
                operation
                for operation in SUPPORTED_OPERATIONS[resource_type]
                if self.authorize(principal, host, operation, resource_type, resource_name)
            )
        )

    def _remember(
        self, question: tuple[Principal, str, int, int, str | None], decision: bool
    ) -> bool:
        if len(self._decisions) >= CACHE_LIMIT:
            self._decisions.clear()
        self._decisions[question] = decision
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
        allowed = found = False
        for rules in patterns.applying_to(name):
            found = True
            for _, entry_host, entry_operation, permission in rules.of(principal):
                if entry_host != host and entry_host != WILDCARD:
                    continue
                if permission == "ALLOW":
                    allowed = allowed or entry_operation in allowing
                elif entry_operation == operation or entry_operation == "ALL":
                    return False
        return allowed if found else self._default

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
