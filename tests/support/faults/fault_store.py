"""A metadata store in memory whose commits fail on demand."""

from collections.abc import Sequence
from enum import Enum, auto

from penstock.controller.metadata import Change
from penstock.core.errors import KafkaStorageError
from tests.support.cluster.memory_store import MemoryStore, MemoryStoreServer


class CommitFault(Enum):
    """What happens to a commit that fails."""

    NOTHING_STORED = auto()
    """The store is full: nothing is stored, and later commits may succeed."""
    UNKNOWN = auto()
    """The write failed: nothing is stored, and later commits are refused until it is opened
    again, as `EmbeddedStore` does."""


class FaultStore(MemoryStore):
    """A session whose next commits fail as `faults` says, by the number of the commit."""

    def __init__(self, server: MemoryStoreServer) -> None:
        super().__init__(server)
        self.commits = 0
        self.faults: dict[int, CommitFault] = {}
        self._is_broken = False

    def commit(
        self, changes: Sequence[Change], *, based_on: int | None = None, fenced: bool = False
    ) -> int:
        number, self.commits = self.commits, self.commits + 1
        fault = self.faults.get(number)
        if fault is CommitFault.UNKNOWN:
            self._is_broken = True
        if fault is not None or self._is_broken:
            raise KafkaStorageError("the metadata store failed, says the simulation")
        return super().commit(changes, based_on=based_on, fenced=fenced)
