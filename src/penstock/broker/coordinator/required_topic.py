"""The topic of a coordinator: created for requests that need it, or an error that clients retry."""

from typing import Final, Protocol

from penstock.core.errors import ErrorCode, KafkaError

_TRANSIENT_ERRORS: Final = frozenset(
    (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
    )
)
"""Errors that pass when more brokers have started, or when there is a controller."""


class TopicOwner(Protocol):
    """A coordinator that keeps its state in a topic."""

    async def ensure_topic(self) -> None: ...


async def require_topic(coordinator: TopicOwner) -> None:
    """Creates the coordinator's topic unless it exists.

    Raises COORDINATOR_NOT_AVAILABLE, which clients retry, while it cannot be created.
    """
    try:
        await coordinator.ensure_topic()
    except KafkaError as error:
        if error.code not in _TRANSIENT_ERRORS:
            raise
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from None
