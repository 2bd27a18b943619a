"""The topic of a coordinator: errors that pass are such that clients retry (C3, P4)."""

import asyncio

import pytest

from penstock.broker.coordinator.required_topic import require_topic
from penstock.core.errors import ErrorCode, KafkaError


class Coordinator:
    """A coordinator whose topic cannot be created."""

    def __init__(self, code: ErrorCode) -> None:
        self._code = code

    async def ensure_topic(self) -> None:
        raise KafkaError(self._code, "the topic cannot be created")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.NOT_CONTROLLER, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_errors(code: ErrorCode, expected: ErrorCode) -> None:
    with pytest.raises(KafkaError, match="cannot be created") as raised:
        asyncio.run(require_topic(Coordinator(code)))
    assert raised.value.code is expected
