"""One question of the authorization matrix: a request that every principal sends."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Message
from tests.support.broker.in_process import WireClient
from tests.support.security.world import World

Build: TypeAlias = Callable[[World, int], Message]
"""Returns the request in a version."""

Restore: TypeAlias = Callable[[WireClient, World], None]
"""Undoes what a request has done, with a connection of the super user."""


@dataclass(frozen=True)
class Case:
    """A request to an API. Versions below `first` cannot express it."""

    title: str
    key: ApiKey
    build: Build
    first: int = 0
    first_recorded: int = 0
    """Older versions are compared with Kafka's answers to this one, because Kafka refuses them."""
    restore: Restore | None = None
    """If set, the principals ask one after the other, and it runs after each."""
    one_by_one: bool = False
    """Whether the principals ask one after the other, because the requests affect each other."""
    on_new_connection: bool = False
    """Whether each request needs a connection of its own, because it changes the login."""

    @property
    def name(self) -> str:
        """The name in the file: the API, and what is asked."""
        api = self.key.name.title().replace("_", "")
        return f"{self.key:02} {api} {self.title}".rstrip()
