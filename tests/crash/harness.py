"""Crashes at every operation of a workload.

The workload runs once, on a disk that stops before each operation and creates the images that a
crash at that moment could leave: only the durable bytes, all written bytes, and torn mixtures. Each
image is recovered and compared with the scene's histories. A failure names the operation, the kind
of image and the seed, which reproduce the image.

`PENSTOCK_CRASH_SEEDS=50` tries 50 torn images at each operation instead of a few, and 50 random
workloads.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from penstock.core.ids import TopicPartition
from penstock.storage.log.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_manager import LogManager
from tests.support.clock import ManualClock
from tests.support.storage.crash_disk import OPERATIONS, CrashDisk, CrashMode, Fault
from tests.support.storage.log_history import Outcome
from tests.support.storage.log_invariants import check_against, check_consistent
from tests.support.storage.log_model import ProducerSummary, StoredBatch
from tests.support.storage.log_workloads import NODE, Scene, as_appended, contents, data_batch

SEEDS = int(os.environ.get("PENSTOCK_CRASH_SEEDS", "0"))
"""How long to look; 0: as briefly as the tests are meant to be run every day."""

Workload = Callable[[Scene], object]


class ProbedDisk(CrashDisk):
    """A disk that calls `probe` before each operation, with the operation and its path."""

    def __init__(self, content: CrashDisk | None = None) -> None:
        super().__init__()
        self.probe: Callable[[str, str], None] | None = None
        if content is not None:
            self._root = content._root
            self.now_ms = content.now_ms

    def step(self, operation: str, path: str) -> Fault | None:
        if self.probe is not None and operation in OPERATIONS:
            self.probe(operation, path)
        return super().step(operation, path)


def images(disk: CrashDisk, seeds: int) -> Iterator[tuple[str, CrashDisk]]:
    """Yields what a crash at this moment could leave, each with how to reproduce it."""
    yield "durable", disk.image(CrashMode.DURABLE)
    yield "written", disk.image(CrashMode.WRITTEN)
    for seed in range(seeds):
        rng = Random(f"{disk.operations}:{seed}")
        yield f"torn, seed {seed}", disk.image(CrashMode.TORN, rng)


def fingerprint(disk: CrashDisk, directory: str = "") -> tuple[object, ...]:
    """All names and bytes on a disk."""
    results: list[object] = []
    for name in disk.names(directory):
        path = f"{directory}/{name}"
        content = fingerprint(disk, path) if disk.is_directory(path) else disk.read_file(path)
        results.append((name, content))
    return tuple(results)


@contextmanager
def with_crash_point(where: str) -> Iterator[None]:
    """Adds the position of the crash to an error."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error


def open_logs(disk: CrashDisk, scene: Scene) -> LogManager:
    """Starts a broker on the files that the crash left."""
    manager = LogManager(disk, scene.directories, ManualClock(scene.clock.now_ms()))
    manager.startup(lambda topic: scene.config, node_id=NODE)
    for log_dir in manager.dirs:
        assert log_dir.is_online, f"{log_dir}: {log_dir.error}"
        assert not log_dir.load_errors, f"{log_dir}: {log_dir.load_errors}"
    return manager


def check_logs(manager: LogManager, scene: Scene) -> None:
    """Checks that every log is as its history allows, and that there are no others."""
    result = {log.partition: log for log in manager}
    for partition, history in scene.histories.items():
        log = result.pop(partition, None)
        if history.sure:
            assert (log is not None) == history.present, f"{partition} is there: {log}"
        if log is not None:
            with with_crash_point(str(partition)):
                check_against(log, history.outcomes())
    assert not result, f"logs from nowhere: {result}"


def everything_in(manager: LogManager) -> dict[TopicPartition, tuple[object, ...]]:
    """Returns the content of the recovered logs, to be compared with that of a second recovery."""
    return {
        log.partition: (
            log.log_start_offset,
            log.log_end_offset,
            contents(log),
            log.local.segments.base_offsets,
            log.epochs.entries(),
            _producers_of(log),
        )
        for log in manager
    }


def _producers_of(log: Log) -> dict[int, ProducerSummary]:
    if log.log_start_offset > 0:
        # Which producers of deleted records are known depends on the existing snapshots.
        return {}
    entries = log.producers.active_producers().items()
    return {producer_id: ProducerSummary.of(entry) for producer_id, entry in entries}


def use_and_crash_again(manager: LogManager, disk: CrashDisk, scene: Scene, rng: Random) -> None:
    """Appends to the recovered logs; another crash then leaves the flushed records unmixed."""
    expected: dict[TopicPartition, Outcome] = {}
    for log in manager:
        batches = contents(log)
        current = _appended(scene, log)
        log.update_high_watermark(log.log_end_offset)
        new = _append_to(log, rng, 1 + rng.randrange(3))
        flushed = 0
        if rng.random() < 0.5:
            log.flush()
            flushed = log.log_end_offset
        new += _append_to(log, rng, 1 + rng.randrange(6))
        check_consistent(log, [*batches, *new], [*current, *new])
        start = log.log_start_offset
        expected[log.partition] = Outcome([*batches, *new], [*current, *new], flushed, start, start)
    again = open_logs(disk.image(CrashMode.TORN, rng), scene)
    for partition, outcome in expected.items():
        check_against(_log_of(again, partition), [outcome])


def _log_of(manager: LogManager, partition: TopicPartition) -> Log:
    log = manager.get(partition)
    assert log is not None, f"{partition} is gone"
    return log


def _appended(scene: Scene, log: Log) -> list[StoredBatch]:
    outcomes = scene.histories[log.partition].outcomes()
    current = [batch for outcome in outcomes[:1] for batch in outcome.appended]
    return [batch for batch in current if batch.next_offset <= log.log_end_offset]


def _append_to(log: Log, rng: Random, count: int) -> list[StoredBatch]:
    epoch = (log.epochs.latest_epoch or 0) + rng.randrange(2)
    new: list[StoredBatch] = []
    for _ in range(count):
        timestamp = 1_700_000_000_000 + rng.randrange(1000)
        producer = _next_of_some_producer(log, rng)
        size = rng.choice((150, rng.randrange(300)))
        data = data_batch([size], timestamps=[timestamp], producer=producer)
        new += as_appended(data, log.log_end_offset, epoch)
        info = log.append_as_leader(data, epoch)
        assert info.first_offset == new[-1].base_offset, "not at the end"
        if producer is not None:
            again = data_batch([0], timestamps=[timestamp], producer=producer)
            assert log.append_as_leader(again, epoch).is_duplicate, f"{producer} was not recognised"
    return new


def _next_of_some_producer(log: Log, rng: Random) -> tuple[int, int, int] | None:
    """Returns the next batch of a producer without an open transaction, according to the log."""
    idle = [
        entry
        for entry in log.producers.active_producers().values()
        if entry.current_txn_first_offset is None
    ]
    if not idle or rng.random() < 0.3:
        return None
    entry = rng.choice(idle)
    return entry.producer_id, entry.producer_epoch, entry.last_sequence + 1


class CrashTest:
    """Runs a workload and recovers from a crash at each of its operations."""

    def __init__(
        self,
        config: LogConfig,
        *,
        seeds: int = SEEDS or 1,
        reuse_every: int = 4,
        nested_every: int = 60,
        directories: tuple[str, ...] = ("/logs",),
        workload_seed: int = 0,
    ) -> None:
        self.config = config
        self.workload_seed = workload_seed
        self.directories = directories
        self.seeds = seeds
        self.reuse_every = reuse_every
        self.nested_every = nested_every
        self.recovered = 0
        """How many images were recovered."""
        self._seen: set[int] = set()

    def run(self, workload: Workload) -> "CrashTest":
        rehearsal = self._scene(CrashDisk())
        workload(rehearsal)
        disk = ProbedDisk()
        scene = self._scene(disk)
        scene.compacted = rehearsal.compacted
        disk.probe = lambda operation, path: self._crash(disk, scene, f"{operation} {path}")
        workload(scene)
        self._crash(disk, scene, "the end")
        return self

    def _scene(self, disk: CrashDisk) -> Scene:
        return Scene(disk, self.config, directories=self.directories, seed=self.workload_seed)

    def _crash(self, disk: ProbedDisk, scene: Scene, operation: str) -> None:
        for kind, image in images(disk, self.seeds):
            changes = sum(history.changes for history in scene.histories.values())
            observed = hash((fingerprint(image), changes))
            if observed in self._seen:
                continue
            self._seen.add(observed)
            with with_crash_point(f"crash at operation {disk.operations} ({operation}), {kind}"):
                self._recover(image, scene)

    def _recover(self, image: CrashDisk, scene: Scene) -> None:
        self.recovered += 1
        rng = Random(self.recovered)
        if self.recovered % self.nested_every == 0:
            self._crash_while_recovering(image, scene, rng)
        manager = open_logs(image, scene)
        check_logs(manager, scene)
        if self.recovered % self.reuse_every == 0:
            use_and_crash_again(manager, image, scene, rng)

    def _crash_while_recovering(self, image: CrashDisk, scene: Scene, rng: Random) -> None:
        """A crash at any operation of a recovery does not change the recovered records."""
        expected = everything_in(open_logs(image.image(CrashMode.DURABLE), scene))
        disk = ProbedDisk(image.image(CrashMode.DURABLE))
        observed: set[int] = (
            set()
        )  # many operations of a recovery change nothing that a crash leaves

        def crash_again(operation: str, path: str) -> None:
            mode = rng.choice(list(CrashMode))
            remaining = disk.image(mode, rng)
            content = hash(fingerprint(remaining))
            if content in observed:
                return
            observed.add(content)
            with with_crash_point(f"then at {disk.operations} ({operation} {path}), {mode.value}"):
                manager = open_logs(remaining, scene)
                check_logs(manager, scene)
                result = everything_in(manager)
                assert result == expected, f"{result} instead of {expected}"

        disk.probe = crash_again
        open_logs(disk, scene)
        disk.probe = None
