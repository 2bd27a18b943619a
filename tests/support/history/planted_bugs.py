"""Bugs that a test plants into broker processes, to show that the checker reports them.

Those of the simulation of a cluster can be planted too, by their names.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final
from unittest.mock import patch

from penstock.broker.replica.replica import Replica
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.storage.log.local_log import LocalLog
from tests.sim.cluster.planted_bugs import BUGS as BUGS_OF_SIMULATION


def _no_wait_for_replicas() -> AbstractContextManager[object]:
    """acks=all is acknowledged when the leader has the records."""
    commit_result = Replica.commit_result

    def result(self: Replica, offset: int) -> ErrorCode | None:
        is_internal = self.partition.key.topic.startswith("__")
        return commit_result(self, offset) if is_internal else ErrorCode.NONE

    return patch.object(Replica, "commit_result", result)


def _aborted_transactions_are_read() -> AbstractContextManager[object]:
    """Fetch responses do not name the aborted transactions."""
    return patch.object(LocalLog, "aborted_transactions", lambda self, start, end: [])


def _forgotten_commits() -> AbstractContextManager[object]:
    """OffsetCommit is confirmed and not stored."""

    async def commit(
        context: Any, request: Any, body: Any, topics: list[OffsetCommitRequestTopic]
    ) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(partition.partition_index, 0)
                        for partition in topic.partitions
                    ],
                )
                for topic in topics
            ]
        )

    return patch("penstock.broker.handlers.k08_offset_commit._commit", commit)


BUGS: Final[dict[str, Callable[[], AbstractContextManager[object]]]] = {
    **{name: bug.patch for name, bug in BUGS_OF_SIMULATION.items()},
    "acks=all does not wait": _no_wait_for_replicas,
    "aborted transactions are read": _aborted_transactions_are_read,
    "committed offsets are forgotten": _forgotten_commits,
}


def plant(name: str) -> None:
    """Plants a bug into this process, for its lifetime."""
    BUGS[name]().__enter__()
