"""A check, before the start of a broker, whether the disks of its log directories respond.

The directories are opened and their logs loaded one after the other. One whose disk hangs would
keep the broker from starting, and the other directories from being used.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from penstock.broker.workers import Workers
from penstock.core.errors import KafkaStorageError
from penstock.storage.disk import Disk

PROBE_S = 60.0
"""How long a disk may take to respond."""


class LogDirProbe:
    """Probes each directory on a thread of its own. It belongs to the event loop."""

    def __init__(self, disk: Disk, workers: Workers) -> None:
        self._disk = disk
        self._workers = workers
        self._probes: list[asyncio.Future[None]] = []

    @property
    def has_hanging_thread(self) -> bool:
        """Whether a thread still waits for a disk."""
        return not all(probe.done() for probe in self._probes)

    async def find_hanging(self, paths: Sequence[str]) -> list[str]:
        """Returns the directories that do not respond within `PROBE_S`."""
        probes = {
            path: asyncio.ensure_future(
                self._workers.run(self._workers.flush_pool(path), partial(self._probe, path))
            )
            for path in dict.fromkeys(paths)
        }
        self._probes += probes.values()
        await asyncio.wait(probes.values(), timeout=PROBE_S)
        return [path for path, probe in probes.items() if not probe.done()]

    def _probe(self, path: str) -> None:
        try:
            self._disk.names(path)
            self._disk.sync_directory(path)
        except OSError:
            pass  # it responds; opening the directory reports what is wrong


def hanging_error(path: str) -> KafkaStorageError:
    """Returns the error of a directory whose disk does not respond."""
    return KafkaStorageError(
        f"the disk of {path} has not responded for {PROBE_S:g} s",
        remedy="check the disk, then restart the broker",
    )
