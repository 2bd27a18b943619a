"""What all groups have in common, whatever their type."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Protocol


class Group(Protocol):
    """A group of any type. `group_types.type_of` returns the functions of its type."""

    @property
    def group_id(self) -> str: ...

    @property
    def state(self) -> Enum:
        """The value is Kafka's name of the state, as its tools show it."""
        ...

    @property
    def members(self) -> Mapping[str, Any]:
        """The members by their ids, each a value of the group's type."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, so that offsets of it must be kept."""
        ...


class StateUpdate(Protocol):
    """A change to a group that no record holds, such as which requests wait for a response."""

    def apply_to(self, groups: dict[str, Group]) -> None: ...
