"""Checks of topic names, and the errors about names that other modules share."""

import re
from collections.abc import Iterable
from typing import Final

from penstock.core.errors import ErrorCode, KafkaError

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
"""Reserved by KRaft, whose brokers may use the same log directories."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
_MAX_LENGTH: Final = 249


def check_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION for a name that no log directory can have."""
    if not name:
        problem = "the topic name is empty: choose a name"
    elif name in (".", ".."):
        problem = f"the topic name {name!r} is reserved by file systems: choose another name"
    elif len(name) > _MAX_LENGTH:
        problem = (
            f"the topic name {name[:40]}… has {len(name)} characters: use at most {_MAX_LENGTH}"
        )
    elif not _LEGAL.fullmatch(name):
        problem = (
            f"the topic name {name!r} has characters that are not allowed: "
            "use ASCII letters and digits, '.', '_' and '-'"
        )
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def unknown_topic_error(name: str) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"topic '{name}' does not exist",
        remedy="check the name, or create it",
    )


def duplicate_topic_error(name: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"topic '{name}' is in the request more than once",
        remedy="name it once",
    )


class NameCollisions:
    """Finds names that differ only in '.' and '_': metrics cannot distinguish them."""

    def __init__(self, topics: Iterable[str]) -> None:
        self._names: dict[str, str] = {}
        for topic in topics:
            self.add(topic)

    def add(self, topic: str) -> None:
        if "." in topic or "_" in topic:
            self._names[topic.replace(".", "_")] = topic

    def check(self, topic: str) -> None:
        """Raises INVALID_TOPIC_EXCEPTION if the name collides with that of another topic."""
        existing = self._names.get(topic.replace(".", "_"), topic)
        if existing != topic:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic '{topic}' collides with topic '{existing}', whose name differs only in "
                "'.' and '_'",
                remedy="choose another name",
            )
