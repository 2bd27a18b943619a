"""A real disk whose syncs wait for the test."""

import threading

from penstock.storage.disk import Descriptor, OsDisk, OsFile


class GatedFile(OsFile):
    """A file whose sync waits until it is released."""

    __slots__ = ("_gate", "_reached")

    def __init__(
        self, descriptor: Descriptor, reached: threading.Event, gate: threading.Event
    ) -> None:
        super().__init__(descriptor)
        self._reached = reached
        self._gate = gate

    def sync(self) -> None:
        self._reached.set()
        assert self._gate.wait(10), "the flush was never let go"
        super().sync()


class GatedDisk(OsDisk):
    """Sets `reached` when a `.log` file is about to be synced; the sync waits for `gate`."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.gate = threading.Event()

    def open(self, path: str, *, create: bool = False) -> OsFile:
        file = super().open(path, create=create)
        if path.endswith(".log"):
            return GatedFile(file.pin(), self.reached, self.gate)
        return file
