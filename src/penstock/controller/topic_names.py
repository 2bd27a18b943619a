"""What a topic may be called, and what is said about names that do not fit."""

import re
from collections.abc import Iterable
from typing import Final

from penstock.core.errors import ErrorCode, KafkaError

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
"""Taken by KRaft, whose clusters may use the same folders one day."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
_MAX_LENGTH: Final = 249


def check_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION for a name that cannot be that of a folder."""
    if not name:
        problem = "A topic needs a name, and this one is empty."
    elif name in (".", ".."):
        problem = f"A topic cannot be called {name!r}: that is a folder everywhere."
    elif len(name) > _MAX_LENGTH:
        problem = (
            f"The topic name has {len(name)} characters, more than the {_MAX_LENGTH} allowed. "
            f"Shorten it: {name[:40]}…"
        )
    elif not _LEGAL.fullmatch(name):
        problem = (
            f"The topic name {name!r} has characters that are not allowed. "
            "Use letters and digits of ASCII, '.', '_' and '-'."
        )
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def unknown_topic_error(name: str) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"There is no topic '{name}'. Check the name, or create it.",
    )


def duplicate_topic_error(name: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REQUEST, f"Topic '{name}' is in the request twice. Name it once."
    )


class NameCollisions:
    """Finds names that differ only in '.' and '_', which metrics cannot tell apart."""

    def __init__(self, topics: Iterable[str]) -> None:
        self._names: dict[str, str] = {}
        for topic in topics:
            self.add(topic)

    def add(self, topic: str) -> None:
        if "." in topic or "_" in topic:
            self._names[topic.replace(".", "_")] = topic

    def check(self, topic: str) -> None:
        """Raises INVALID_TOPIC_EXCEPTION where another topic stands in the way."""
        other = self._names.get(topic.replace(".", "_"), topic)
        if other != topic:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{topic}' collides with the topic '{other}': names must differ in more "
                "than '.' and '_'. Choose another name.",
            )
