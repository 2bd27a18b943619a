"""The lines of the audit log. Every one is a JSON object; docs/security-audit.md describes them."""

from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

import msgspec

SUCCESS: Final = "SUCCESS"
DENIED: Final = "DENIED"
TLS: Final = "TLS"
"""The mechanism of a login by a client certificate."""

MAX_TEXT: Final = 500
"""Longer texts of a client are cut: it must not fill the disk with a few requests."""


MAX_ELEMENTS: Final = 100
"""Of a list or mapping in the details of a change, such as the partitions of a reassignment."""


class AuditEvent(
    msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="event", tag=str.lower
):
    """Who did something, where from, and with which result."""

    time: datetime
    broker_id: int
    principal: str
    address: str
    listener: str
    client_id: str = ""
    result: str
    """`SUCCESS`, `DENIED`, or the name of the error."""
    count: int = 1
    """How many such events the line stands for."""

    def identity(self) -> tuple[object, ...]:
        """Returns what identical events have in common: everything but time, client id and count.

        Free texts are left out, and mappings: a client could vary them.
        """
        return (type(self), self.principal, self.address, self.listener, self.result)


class Login(AuditEvent, kw_only=True, frozen=True):
    """A login with SASL, or by a client certificate."""

    mechanism: str
    user: str = ""
    """The name that a client gave which was refused: nobody has proved that it is theirs."""
    reason: str = ""
    token: str = ""
    """The id of the delegation token with which the client has logged in."""

    def identity(self) -> tuple[object, ...]:
        return (*super().identity(), self.mechanism, self.user, self.token)


class Denial(AuditEvent, kw_only=True, frozen=True):
    """An operation that no ACL allows."""

    api: str
    operation: str
    resource_type: str
    resource: str

    def identity(self) -> tuple[object, ...]:
        return (*super().identity(), self.api, self.operation, self.resource_type, self.resource)


class Change(AuditEvent, kw_only=True, frozen=True):
    """A change of the cluster by an administrator, or an attempt that failed."""

    api: str
    resource_type: str
    resource: str
    details: dict[str, Any] = {}

    def identity(self) -> tuple[object, ...]:
        return (*super().identity(), self.api, self.resource_type, self.resource)


class Suppressed(AuditEvent, frozen=True):
    """Events of a client that have no line: it caused too many different ones in a short time."""


class Dropped(msgspec.Struct, kw_only=True, frozen=True, tag_field="event", tag=str.lower):
    """Events that could not be written."""

    time: datetime
    broker_id: int
    count: int
    reason: str


def to_time(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"


def bounded(value: Any) -> Any:
    """Returns the details of a change without most of what a large request has, and says so."""
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, dict):
        items = islice(value.items(), MAX_ELEMENTS)
        fields = {cut(str(key)): bounded(field) for key, field in items}
        if len(value) > MAX_ELEMENTS:
            fields["…"] = f"{len(value) - MAX_ELEMENTS} more"
        return fields
    if isinstance(value, list):
        elements = [bounded(element) for element in value[:MAX_ELEMENTS]]
        if len(value) > MAX_ELEMENTS:
            elements.append(f"… {len(value) - MAX_ELEMENTS} more")
        return elements
    return value
