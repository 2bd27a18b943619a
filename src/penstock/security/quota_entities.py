"""Quota entities, keys and values, as DescribeClientQuotas and AlterClientQuotas have them (X4)."""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from math import isnan
from typing import NamedTuple, TypeAlias

from penstock.core.errors import ErrorCode, KafkaError

Entity: TypeAlias = tuple[tuple[str, str], ...]
"""Kinds and names, such as `(("users", "ann"), ("clients", "x"))`, as in a `ConfigKey`."""

DEFAULT_NAME = "<default>"
"""The name of the entity whose quota applies to entities without their own."""

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

_MAX_INT = 2**31 - 1
_MAX_LONG = 2**63 - 1
# The largest integer, or None if fractions are allowed.
_CLIENT_KEYS: dict[str, int | None] = {
    PRODUCER_BYTE_RATE: _MAX_LONG,
    CONSUMER_BYTE_RATE: _MAX_LONG,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
_IP_KEYS: dict[str, int | None] = {CONNECTION_CREATION_RATE: _MAX_INT}
QUOTA_KEYS = frozenset(_CLIENT_KEYS) | frozenset(_IP_KEYS)

# In the order within an entity.
_KINDS = {"user": "users", "client-id": "clients", "ip": "ips"}
_TYPES = {kind: entity_type for entity_type, kind in _KINDS.items()}


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)


def canonical_ip(address: str) -> str:
    """Returns the canonical form of an IP address; raises ValueError if it is not one."""
    return str(ip_address(address))


def entity_of_wire(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Converts the types and names of AlterClientQuotas, where None stands for the default.

    Raises INVALID_REQUEST if they are not a valid entity.
    """
    names: dict[str, str] = {}
    for entity_type, name in parts:
        kind = _KINDS.get(entity_type)
        if kind is None:
            raise _invalid(f"entity type {entity_type!r} has no quotas; use {', '.join(_KINDS)}")
        if kind in names:
            raise _invalid(f"the quota entity names {entity_type} twice")
        if name == "":
            raise _invalid(f"the name of the {entity_type} must not be empty")
        if name == DEFAULT_NAME:
            raise _invalid(f"{entity_type} cannot be called {name}; send null for the default")
        names[kind] = DEFAULT_NAME if name is None else name
    if not names:
        raise _invalid(f"the quota entity is empty; name at least one of {', '.join(_KINDS)}")
    address = names.get("ips")
    if address is not None:
        if len(names) > 1:
            raise _invalid("a quota of an ip cannot be combined with a user or a client-id")
        if address != DEFAULT_NAME:
            try:
                names["ips"] = canonical_ip(address)
            except ValueError as error:
                raise _invalid(f"{address!r} is not an IP address") from error
    return tuple((kind, names[kind]) for kind in _KINDS.values() if kind in names)


def entity_to_wire(entity: Entity) -> list[tuple[str, str | None]]:
    """Converts an entity to types and names: the reverse of `entity_of_wire`."""
    return [(_TYPES[kind], None if name == DEFAULT_NAME else name) for kind, name in entity]


def quota_values(values: Mapping[str, str]) -> dict[str, float]:
    """Returns the quotas among the configs of an entity."""
    return {key: _number(key, text) for key, text in values.items() if key in QUOTA_KEYS}


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"the quota {key} is stored as {text!r}, which is not a number",
        ) from error


def altered_values(
    entity: Entity, values: Mapping[str, str], changes: Iterable[tuple[str, float | None]]
) -> dict[str, str]:
    """Returns the configs of an entity after the changes of AlterClientQuotas.

    None as a value removes a quota. Raises INVALID_REQUEST if one of the changes is not valid.
    """
    keys = _IP_KEYS if entity[0][0] == "ips" else _CLIENT_KEYS
    altered = dict(values)
    changed_keys: set[str] = set()
    for key, value in changes:
        if key in changed_keys:
            raise _invalid(f"the quota {key} is given twice for one entity")
        changed_keys.add(key)
        if value is None:
            if key in QUOTA_KEYS:  # a user may have other configs: credentials
                altered.pop(key, None)
        else:
            altered[key] = _quota_text(keys, key, value)
    return altered


def _quota_text(keys: Mapping[str, int | None], key: str, value: float) -> str:
    if key not in keys:
        raise _invalid(f"this entity has no quota {key!r}; it has {', '.join(keys)}")
    if value <= 0 or isnan(value):
        raise _invalid(f"the quota {key} must be greater than 0")
    largest = keys[key]
    if largest is None:
        return str(float(value))
    if value > float(largest):
        raise _invalid(f"the quota {key} must not be larger than {largest}")
    if value % 1.0 > 1e-6:
        raise _invalid(f"the quota {key} must be a whole number")
    return str(min(int(value), largest))


class QuotaFilter(NamedTuple):
    """The entities that DescribeClientQuotas selects."""

    exact: Mapping[str, str | None]
    """The required name by entity type; None stands for the default."""
    any_name: frozenset[str]
    """Required entity types with any name."""
    strict: bool
    """Whether other entity types are excluded."""

    @classmethod
    def of_wire(
        cls, components: Iterable[tuple[str, int, str | None]], strict: bool
    ) -> "QuotaFilter":
        """Converts entity types, match types (0 exact, 1 default, 2 any) and names of a request."""
        exact: dict[str, str | None] = {}
        any_name: set[str] = set()
        for entity_type, match_type, match in components:
            if not entity_type:
                raise _invalid("the quota filter has an empty entity type")
            if entity_type in exact or entity_type in any_name:
                raise _invalid(f"entity type {entity_type} appears twice in the quota filter")
            if entity_type not in _KINDS:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"entity type {entity_type!r} is not known; use {', '.join(_KINDS)}",
                )
            if match_type not in (0, 1, 2):
                raise _invalid(f"match type {match_type} is not known; use 0, 1 or 2")
            if (match is None) != (match_type != 0):
                takes = "needs a" if match_type == 0 else "takes no"
                raise _invalid(f"match type {match_type} of {entity_type} {takes} name")
            if match_type == 2:
                any_name.add(entity_type)
            else:
                exact[entity_type] = match
        types = exact.keys() | any_name
        if "ip" in types and len(types) > 1:
            raise _invalid("a quota filter cannot combine ip with user or client-id")
        return cls(exact, frozenset(any_name), strict)

    def matches(self, entity: Entity) -> bool:
        """Returns whether the filter selects an entity; never for those without quotas: topics."""
        if not all(kind in _TYPES for kind, _ in entity):
            return False
        names = dict(entity_to_wire(entity))
        if self.strict and len(names) != len(self.exact) + len(self.any_name):
            return False
        return self.any_name <= names.keys() and self.exact.items() <= names.items()
