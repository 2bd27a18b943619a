"""A run: three brokers and ZooKeeper under faults, clients that record, and the check at the end.

    result = run_history(directory, seed=7, seconds=60)
    result.check()

The seed determines the workload and the faults, not how the threads and processes interleave.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from penstock.client import Consumer
from penstock.core.ids import TopicPartition
from tests.support.history.cluster import BROKER_IDS, RECOVERY_TIMEOUT_S, HistoryCluster
from tests.support.history.consumers import (
    ConfluentGroupWorker,
    ConsumerProtocolWorker,
    CopyWorker,
    GroupWorker,
)
from tests.support.history.faults import Nemesis, Step, plan
from tests.support.history.history import History, HistoryRecorder, Read, RecordId
from tests.support.history.history_checker import Violation, check, report
from tests.support.history.producers import (
    ConfluentIdempotentWorker,
    ConfluentTransactionalWorker,
    IdempotentWorker,
    TransactionalWorker,
)
from tests.support.history.replica_logs import differences, partitions_in
from tests.support.history.workers import COPIES, PARTITIONS, PLAIN, TOPICS, Worker

PRODUCERS: tuple[type[Worker], ...] = (
    IdempotentWorker,
    ConfluentIdempotentWorker,
    TransactionalWorker,
    ConfluentTransactionalWorker,
)
CONSUMERS: tuple[type[Worker], ...] = (
    GroupWorker,
    GroupWorker,
    ConsumerProtocolWorker,
    ConsumerProtocolWorker,
    ConfluentGroupWorker,
    ConfluentGroupWorker,
    CopyWorker,
)
_QUIET_S = 0.5
"""How long the last reader waits for more records."""
GROUPS = (GroupWorker.group, ConsumerProtocolWorker.group, ConfluentGroupWorker.group)


class RunResult(NamedTuple):
    """What a run has shown."""

    seed: int
    violations: list[Violation]
    differences: list[str]
    """Where the logs of replicas differ."""
    unfinished: str
    """What was not completed in time after the faults had ended."""
    counts: Counter[str]
    """The number of events by kind."""
    history_path: Path

    @property
    def report(self) -> str:
        lines = [f"seed {self.seed}; the history is in {self.history_path}"]
        lines += [self.unfinished] if self.unfinished else []
        lines += self.differences
        return "\n".join([*lines, report(self.violations)])

    @property
    def is_good(self) -> bool:
        return not (self.violations or self.differences or self.unfinished)

    def check(self) -> None:
        assert self.is_good, self.report


class Run:
    """A cluster with a workload. `finish` ends the faults and checks everything."""

    def __init__(
        self,
        cluster: HistoryCluster,
        seed: int,
        producers: Sequence[type[Worker]] = PRODUCERS,
        consumers: Sequence[type[Worker]] = CONSUMERS,
        *,
        recovery_timeout_s: float = RECOVERY_TIMEOUT_S,
    ) -> None:
        self._recovery_timeout_s = recovery_timeout_s
        self.cluster = cluster
        self.seed = seed
        self.recorder = HistoryRecorder()
        self._producers = self._workers(producers)
        self._consumers = self._workers(consumers)
        self._copies = {COPIES: PLAIN} if CopyWorker in consumers else {}

    def __enter__(self) -> Self:
        self.cluster.create_topics(dict.fromkeys(TOPICS, PARTITIONS))
        for worker in (*self._producers, *self._consumers):
            worker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for worker in (*self._producers, *self._consumers):
            worker.stop()

    def _workers(self, kinds: Sequence[type[Worker]]) -> list[Worker]:
        bootstrap = self.cluster.network.bootstrap
        return [
            kind(f"{kind.__name__}-{number}", bootstrap, self.recorder, self.seed)
            for number, kind in enumerate(kinds)
        ]

    def disturb(self, steps: Sequence[Step]) -> None:
        Nemesis(self.cluster, self.recorder).run(steps)

    def replace_clients(self, kind: type[Worker]) -> None:
        """Replaces the clients of all workers of a kind by new ones."""
        for worker in (*self._producers, *self._consumers):
            if isinstance(worker, kind):
                worker.replace_client()

    def wait_for(self, kind: type, count: int, timeout_s: float = 60.0) -> None:
        """Waits for so many more events of a kind."""
        target = self.recorder.count(kind) + count
        self.cluster.poll(
            lambda: "" if self.recorder.count(kind) >= target else f"too few {kind.__name__}",
            timeout_s,
        )

    def finish(self) -> RunResult:
        """Ends all faults, lets consumers read to the end, and compares everything.

        A step that fails does not prevent the next ones: what was recorded is checked all the same.
        """
        self.recorder.note("the faults have ended")
        problems: list[str] = []
        log = FinalReader(self.cluster.network.bootstrap)
        for step in (
            self.cluster.heal,
            self._wait_until_in_sync,
            lambda: self._stop(self._producers),
            lambda: self.cluster.poll(lambda: self._unread(log), self._recovery_timeout_s),
            lambda: self._stop(self._consumers),
            log.close,
            lambda: None if problems else self._wait_until_in_sync(),
        ):
            try:
                step()
            except Exception as error:  # noqa: BLE001 - it is reported
                problems.append(f"not finished: {error!r}")
                self.recorder.note(problems[-1])
        events = self.recorder.events()
        history = History(events, log.records, self._copies)
        violations = check(history) if log.is_complete else []
        self.cluster.stop_all()
        path = self.cluster.directory / "history.txt"
        self.recorder.write(path)
        counts = Counter(type(event).__name__ for event in events)
        different = self._differences(is_in_sync=not problems)
        return RunResult(self.seed, violations, different, "\n".join(problems), counts, path)

    def _wait_until_in_sync(self) -> None:
        self.cluster.wait_until_in_sync(self._recovery_timeout_s)

    def _stop(self, workers: Sequence[Worker]) -> None:
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join()

    def _differences(self, *, is_in_sync: bool) -> list[str]:
        directories = {number: self.cluster.data_directory(number) for number in BROKER_IDS}
        partitions = partitions_in(directories[BROKER_IDS[0]])
        return differences(directories, partitions, is_in_sync=is_in_sync)

    def _unread(self, log: "FinalReader") -> str:
        """Returns what is not read yet. What stays missing is reported by the checker."""
        if problem := log.read():
            return problem
        if self._copies:
            for number in range(PARTITIONS):
                originals = log.records[TopicPartition(PLAIN, number)]
                copies = log.records[TopicPartition(COPIES, number)]
                if len(copies) < len(originals):
                    return f"{len(copies)} of {len(originals)} records of {number} are copied"
        groups = {getattr(worker, "group", "") for worker in self._consumers}.intersection(GROUPS)
        received = {
            (event.group, event.partition, event.offset)
            for event in self.recorder.events()
            if isinstance(event, Read)
        }
        for group in groups:
            for partition, records in log.records.items():
                if partition.topic == COPIES:
                    continue
                missing = [o for o in records if (group, partition, o) not in received]
                if missing:
                    return f"{group} has not read {partition} from {missing[0]} on"
        return ""


class FinalReader:
    """Reads all committed records of the topics, from the first one on."""

    def __init__(self, bootstrap: str) -> None:
        self._partitions = [
            TopicPartition(topic, number) for topic in TOPICS for number in range(PARTITIONS)
        ]
        self.records: dict[TopicPartition, dict[int, RecordId]] = {
            partition: {} for partition in self._partitions
        }
        self.is_complete = False
        self._ends = Consumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
        self._consumer = Consumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        self._consumer.assign(self._partitions)

    def read(self) -> str:
        """Reads on; returns an empty text at the end of all partitions."""
        ends = self._ends.end_offsets(self._partitions)
        while records := self._consumer.poll(_QUIET_S):
            for record in records:
                partition = TopicPartition(record.topic, record.partition)
                self.records[partition][record.offset] = RecordId.of(record.value)
        behind = [p for p in self._partitions if self._consumer.position(p) < ends[p]]
        self.is_complete = not behind
        return f"{behind} are not read to the end; a transaction may be open" if behind else ""

    def close(self) -> None:
        self._consumer.close()
        self._ends.close()


def run_history(directory: Path, seed: int, seconds: float) -> RunResult:
    """Runs the whole workload with the faults of a seed for about so many seconds."""
    with HistoryCluster(directory) as cluster, Run(cluster, seed) as run:
        run.disturb(plan(seed, seconds))
        return run.finish()
