"""Reduces a response to what authorization decides: error codes, and what is visible.

Ids, times, offsets, messages and addresses differ between brokers and are left out. What is left
is one line, in which a topic id is the topic's name after a `#`:

    [allowed-topic #allowed-topic NONE [NONE]] [#other-topic TOPIC_AUTHORIZATION_FAILED]
"""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from penstock.core.errors import ErrorCode
from penstock.protocol.fields import ZERO_UUID, Struct
from penstock.protocol.schema import fields_of
from penstock.security.acl import AclOperation

CLOSED: Final = "closed"
"""The broker closed the connection without a response."""
NOTHING: Final = "nothing"
"""The response has neither an error code nor anything visible."""

_NAMES: Final = (
    "name",
    "topic",
    "topic_name",
    "group_id",
    "transactional_id",
    "key",
    "resource_name",
    "user",
    "feature",
    "principal_name",
)
_OPAQUE: Final = frozenset({"configs", "api_keys", "brokers", "acls"})
"""Lists of which only counts whether they are empty."""
_IGNORED: Final = frozenset(
    {
        "node_endpoints",
        "renewers",
        "next_cursor",
        "record_errors",
        "supported_features",
        "finalized_features",
    }
)
_NO_OPERATIONS: Final = -(2**31)


def outcome_of(response: Struct, version: int, topics: Mapping[UUID, str], user: str) -> str:
    """Returns the outcome of a response to `user`; `topics` has the names of topic ids."""
    return _rendered(response, version, topics, user) or NOTHING


def _rendered(struct: Struct, version: int, topics: Mapping[UUID, str], user: str) -> str:
    names, codes, parts = [], [], []
    for field in fields_of(type(struct)):
        if version not in field.versions or field.name in _IGNORED:
            continue
        value = getattr(struct, field.name)
        if field.name.endswith("error_code"):
            codes.append(ErrorCode(value).name)
        elif field.name.endswith("authorized_operations"):
            if value != _NO_OPERATIONS:
                parts.append(f"operations={_operations(value)}")
        elif field.name in _NAMES and value:
            names.append("self" if value == user else value)
        elif field.name == "topic_id" and value != ZERO_UUID:
            if value in topics or not names:
                names.append(f"#{topics.get(value, 'unknown')}")
        elif field.name == "records" and value:
            parts.append("records")
        elif isinstance(value, list) and value and isinstance(value[0], Struct):
            parts += _elements(field.name, value, version, topics, user)
        elif isinstance(value, Struct) and (rendered := _rendered(value, version, topics, user)):
            parts.append(f"{field.name}=({rendered})")
    return " ".join((*dict.fromkeys(names), *codes, *parts))


def _elements(
    name: str, elements: list[Struct], version: int, topics: Mapping[UUID, str], user: str
) -> list[str]:
    if name in _OPAQUE:
        return [name]
    rendered = {_rendered(element, version, topics, user) for element in elements}
    # Internal topics come and go with what clients did before.
    return [f"[{element}]" for element in sorted(rendered) if not element.startswith("__")]


def _operations(bits: int) -> str:
    return "|".join(operation.name for operation in AclOperation if bits >> operation & 1)
