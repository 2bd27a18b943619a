"""The metadata store as the controller's host sees it, and the rules that every store keeps.

A store is a tree of nodes as in ZooKeeper: each has a path, content and a version, which is 0 when
the node is made and rises by one with every change. Some nodes are ephemeral: they go with the
session that made them. One record is one node (`paths`, `znodes`).

Which version a change expects. A record that carries its node's version (`expected_version`) is put
only on the version before. For all others a store remembers the version that it loaded or committed
last, and expects that one: what somebody else changed in between is a conflict, never overwritten.
The embedded store has one writer, so that what is in its file is what it remembers.

Fencing. A store that has committed a `ControllerEpochRecord` speaks for that controller from then
on: each of its commits holds only while that node has the version it was given. In ZooKeeper that
is a check of `/controller_epoch` in the same transaction; to the embedded store nobody else writes.

Changes by others. A cluster's brokers will hear of them through a callback that is given the
changes in order, each list once, between two commits; `load` sets the starting point. It joins the
port with the store that needs it.
"""

from collections.abc import Sequence
from typing import Protocol

from penstock.controller.metadata import (
    BrokerRecord,
    Change,
    ClusterIdRecord,
    ControllerRecord,
    FeaturesRecord,
    PartitionRecord,
    Record,
)
from penstock.core.errors import ErrorCode, KafkaError


class StoreConflictError(KafkaError):
    """A change that does not fit what the store has; nothing of its commit was done."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"metadata node {path} {problem}: nothing was changed; decide anew on what is there",
        )
        self.path = path


class MetadataStore(Protocol):
    """Made on one thread, used on another, but never by two at once."""

    def load(self) -> list[Record]:
        """Everything there is, a topic before its partitions."""

    def commit(self, changes: Sequence[Change]) -> int:
        """Do all changes or none, in their order; durable when it returns. It waits for the disk.

        Gives the transaction's id, which rises with every commit, over restarts too. It is the
        epoch of each broker that was registered here; the epoch in the given record is not looked
        at. A partition is put after its topic and deleted before it.

        Raises `StoreConflictError` where a deleted node is missing or a node does not have the
        version that is expected, and `KafkaStorageError` where the store failed.
        """

    def close(self) -> None:
        """End the session: its ephemeral nodes go, at the latest when the store is opened next."""


def is_ephemeral(record: Record) -> bool:
    """Whether the record's node goes with the session that made it."""
    return isinstance(record, BrokerRecord | ControllerRecord)


def expected_version(record: Record) -> int | None:
    """The version the record is put on; -1 where it must be new, None where it does not say.

    A cluster has one id for ever, and one controller at a time: the first to put it wins.
    """
    match record:
        case PartitionRecord():
            return record.partition_epoch - 1
        case FeaturesRecord():
            return record.epoch - 1
        case ClusterIdRecord() | ControllerRecord():
            return -1
    return None
