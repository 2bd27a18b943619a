"""A fault injection: a random history of a whole broker, and what must be true after it.

`run_seed(seed)` raises `InjectionError` with the history if the broker

- has lost a record, an offset, a topic or a transaction that it acknowledged as durable,
- has a record in a log that it refused, or a record twice,
- does not serve the log directories that no fault has hit, or a connection that none has hit,
- does not respond, does not start again, or reports an unexpected exception,
- waits for a sync on the event loop,
- keeps a socket, or the memory of a request, of a connection that is closed; uses a socket after
  it was closed; or polls a socket in a loop.
"""

import asyncio
import errno
from random import Random

from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.records.build import build_batch
from penstock.records.record import Record
from penstock.storage.disk import write_file
from penstock.storage.manager.log_dir import LogDir
from tests.support.broker.faults import watching
from tests.support.faults.fault_disk import DiskFault
from tests.support.faults.fault_model import (
    Model,
    Outcome,
    PartitionModel,
    check_partition,
    read_committed,
)
from tests.support.faults.fault_network import SOCKET_ERRORS, SocketFault
from tests.support.faults.fault_store import CommitFault
from tests.support.faults.fault_workload import TOPICS, Workload, create_topic
from tests.support.faults.simulated_broker import LOG_DIRS, Machine, SimulatedBroker
from tests.support.faults.simulated_clients import fetch_offset
from tests.support.protocol.requests import NOW
from tests.support.storage.crash_nodes import CrashMode

SETTLE_S = 30.0
"""How long transactions may take to end after the faults are over, in simulated time."""
MAX_CANARY_S = 5.0
"""How long the response may take on a connection that no fault hits, in simulated time."""
MAX_LINGER_S = 5.0
"""How long a closed connection may keep its socket, in simulated time."""
HANG_PROBABILITY = 0.2
"""Of a run in which syncs hang."""
SOCKET_FAULT_CALLS = (1, 1, 3)
"""How many calls of a socket fail."""
_SOCKET_CALLS = 200
"""About how many calls of sockets a run has."""
_ERRORS = (errno.EIO, errno.EIO, errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EROFS)
_SYNCS = (("sync", ".log"), ("sync", ".log"), ("sync", ""), ("sync_directory", ""))
_FOREVER = 1 << 60


class InjectionError(AssertionError):
    """A seed has shown a fault of the broker."""


def run_seed(seed: int, *, only_syncs: bool = False) -> None:
    """Runs the history of a seed; with `only_syncs` the faults are those of flushes of records."""
    injection = Injection(seed, only_syncs=only_syncs)
    try:
        with watching():
            injection.run()
    except (AssertionError, Exception) as error:
        history = "\n  ".join(injection.history)
        call = f"run_seed({seed}, only_syncs=True)" if only_syncs else f"run_seed({seed})"
        raise InjectionError(
            f"seed {seed} failed: {error}\nagain: PYTHONHASHSEED=0 python -c 'from "
            f"tests.support.faults.injection import run_seed; {call}'\n  {history}"
        ) from error


class Injection:
    """The history of one seed."""

    def __init__(self, seed: int, *, only_syncs: bool = False) -> None:
        self._only_syncs = only_syncs
        self._rng = Random(seed)
        self._machine = Machine(seed, {"log.flush.interval.messages": "1"}, has_network=True)
        self._machine.max_job_ms = self._rng.choice((3, 30, 2000))
        self._model = Model()
        self._calls = 1000
        """About how many calls of the disk a run has."""
        self.history: list[str] = []
        self._damaged_files: dict[str, tuple[bytes, bytes]] = {}
        """The content of files that cannot be rebuilt, and what replaced it, by path."""

    def run(self) -> None:
        self._note("start without faults")
        before = self._machine.disk.calls
        self._machine.run(self._create_topics)
        self._calls = self._machine.disk.calls - before
        for _ in range(1 if self._only_syncs else self._rng.choice((1, 2, 3))):
            self._run_with_faults()
        if self._only_syncs or self._rng.random() < 0.7:
            self._note("power failure while no broker runs")
            disk = self._machine.disk.after_power_failure(CrashMode.DURABLE, self._rng)
            self._machine.disk = disk
            self._model.on_power_failure()
        self._check_after_recovery()

    def _note(self, event: str) -> None:
        self.history.append(event)

    async def _create_topics(self, broker: SimulatedBroker) -> None:
        for name, (kind, partitions) in TOPICS.items():
            await create_topic(broker, self._model, name, kind, partitions)
        await Workload(broker, self._model, self._rng).run(clients=2, requests=4)
        assert not self._model.unclear_topics.keys() & TOPICS.keys()

    # --- runs with faults

    def _run_with_faults(self) -> None:
        machine, rng = self._machine, self._rng
        disk = machine.disk
        if rng.random() < 0.2:
            self._damage_file()
        faults = [self._random_fault() for _ in range(rng.choice((0, 1, 1, 1, 2)))]
        if self._has_copies():
            faults = []
        machine.disk.plan(*faults)
        for fault in faults:
            self._note(f"planned: {fault}")
        end = rng.choice(("stop", "kill", "power failure"))
        try:
            if end == "stop":
                machine.run(self._work)
            elif end == "kill":
                machine.run_and_kill(self._work)
            else:
                mode = rng.choice(list(CrashMode))
                end += f", {mode.value}"
                self._model.on_power_failure()
                machine.run_until_power_fails(self._work, rng.randrange(self._calls), mode)
                self._model.on_power_failure()
        except KafkaError as error:
            if not disk.faults_hit and not self._has_store_fault:
                raise InjectionError(f"the broker did not start: {error.message}") from error
            self._note(f"the broker did not start: {error.message}")
        self._note(f"{end}; failed calls: {disk.faults_hit}")
        machine.disk.heal()
        machine.disk.faults_hit.clear()

    def _damage_file(self) -> None:
        """Replaces a file that is not needed, or whose loss affects one partition."""
        disk, rng = self._machine.disk, self._rng
        log_dir = rng.choice(LOG_DIRS)
        names = [name for name in disk.names(log_dir) if name.endswith("-checkpoint")]
        paths = [f"{log_dir}/{name}" for name in names]
        for directory in disk.names(log_dir):
            if TopicPartition(*_split_name(directory)) in self._model.partitions:
                paths += [
                    f"{log_dir}/{directory}/{name}"
                    for name in disk.names(f"{log_dir}/{directory}")
                    if not name.endswith((".log", ".txnindex"))
                ]
        if paths:
            path = rng.choice(paths)
            garbage = rng.randbytes(rng.choice((0, 32, 35)))
            if path.endswith("partition.metadata"):
                original = disk.read_file(path)
                _, garbage = self._damaged_files.setdefault(path, (original, garbage))
            write_file(disk, path, garbage)
            self._note(f"damaged: {path}")

    def _repair_files(self) -> None:
        disk = self._machine.disk
        for path, (content, garbage) in self._damaged_files.items():
            # The partition may have been deleted and created again.
            if disk.exists(path) and disk.read_file(path) == garbage:
                write_file(disk, path, content)
        self._damaged_files.clear()

    def _has_copies(self) -> bool:
        """Returns whether a partition is in two log directories.

        A creation or a move that failed leaves a copy, and the next start removes it. If the other
        directory fails at that start, nothing shows which of the two is the copy.
        """
        names = [self._machine.disk.names(path) for path in LOG_DIRS]
        return any(
            self._machine.disk.is_directory(f"{LOG_DIRS[0]}/{name}")
            for name in {*names[0]} & {*names[1]}
        )

    def _random_fault(self) -> DiskFault:
        rng = self._rng
        if self._only_syncs or rng.random() < 0.4:
            operation, suffix = _SYNCS[0] if self._only_syncs else rng.choice(_SYNCS)
            at = rng.randrange(self._calls // 4, self._calls)
            return DiskFault(at, errno.EIO, operation=operation, suffix=suffix)
        error = rng.choice(_ERRORS)
        return DiskFault(
            rng.randrange(self._calls),
            error,
            rng.choice((1, 1, 3, 50 if error == errno.EMFILE else _FOREVER)),
            rng.choice((0.0, 0.5, 1.0)),
        )

    @property
    def _has_store_fault(self) -> bool:
        return self._machine.store is not None and bool(self._machine.store.faults)

    async def _work(self, broker: SimulatedBroker) -> None:
        store = self._machine.store
        assert store is not None
        if self._rng.random() < 0.2:
            fault = self._rng.choice(list(CommitFault))
            store.faults[store.commits + self._rng.randrange(4)] = fault
            self._note(f"planned: {fault} of the store")
        network = self._machine.network
        assert network is not None
        faults = [self._random_socket_fault() for _ in range(self._rng.choice((0, 1, 2, 4)))]
        network.plan(*faults)
        for socket_fault in faults:
            self._note(f"planned: {socket_fault}")
        hanging = self._hang_randomly(broker)
        workload = Workload(broker, self._model, self._rng)
        canary = asyncio.get_running_loop().create_task(_run_canary(broker))
        try:
            await workload.run(clients=3, requests=self._rng.choice((3, 8)))
        finally:
            canary.cancel()
            hanging.cancel()
        await asyncio.wait([canary])
        broker.release_hangs()
        if not canary.cancelled():
            canary.result()
        self._note(f"failed calls of sockets: {network.faults_hit}")
        network.heal()
        self._machine.disk.cancel_planned()
        broker.disconnect()  # a client may not know yet that its connection is broken
        await self._check_others_are_served(broker)
        broker.disconnect()
        await asyncio.sleep(MAX_LINGER_S)
        broker.app.check_nothing_is_held()

    def _hang_randomly(self, broker: SimulatedBroker) -> asyncio.Task[None]:
        """Sometimes makes the flushes of some partitions hang for a while, or until the end."""
        rng, disk = self._rng, self._machine.disk
        pattern = rng.choice(("/a/*.log", "/*/flushed-*.log", "/*/__*.log"))
        begin_s, lasting_s = rng.choice((0.1, 1.0, 5.0)), rng.choice((1.0, 20.0, 100.0))

        async def hang() -> None:
            await asyncio.sleep(begin_s)
            disk.hang_on("sync", pattern)
            self._note(f"syncs of {pattern} hang for {lasting_s} s")
            await asyncio.sleep(lasting_s)
            broker.release_hangs()

        async def do_nothing() -> None:
            pass

        is_chosen = rng.random() < HANG_PROBABILITY and not self._only_syncs
        return asyncio.get_running_loop().create_task(hang() if is_chosen else do_nothing())

    def _random_socket_fault(self) -> SocketFault:
        rng = self._rng
        operation = rng.choice(list(SOCKET_ERRORS))
        error = rng.choice(SOCKET_ERRORS[operation])
        at = rng.randrange(_SOCKET_CALLS)
        return SocketFault(at, operation, error, rng.choice(SOCKET_FAULT_CALLS))

    async def _check_others_are_served(self, broker: SimulatedBroker) -> None:
        """Directories that no fault has hit accept records for each of their partitions."""
        failed_calls = self._machine.disk.faults_hit
        if any(call.error == errno.EMFILE for call in failed_calls):
            return
        failing = {call.log_dir for call in failed_calls}
        for log_dir in broker.broker.logs.dirs:
            if log_dir.path not in failing:
                await self._check_served(broker, log_dir)

    async def _check_served(self, broker: SimulatedBroker, log_dir: LogDir) -> None:
        assert log_dir.error is None, f"{log_dir.path} is offline: {log_dir.error}"
        for error in log_dir.load_errors.values():
            # A move has left a second copy, and the other directory is offline; or it was damaged.
            is_expected = "it is in" in error.message or "partition.metadata" in error.message
            assert is_expected, f"{log_dir.path}: {error}"
        for key in [key for key in self._model.partitions if key in log_dir.logs]:
            await self._produce_one(broker, key)

    async def _produce_one(self, broker: SimulatedBroker, key: TopicPartition) -> None:
        model = self._model.partitions[key]
        token = self._model.new_token()
        model.outcomes[token] = Outcome.UNKNOWN
        record_key = model.keys[token] = b"probe"
        batch = build_batch([Record(0, NOW, record_key, token)])
        response = await broker.produce(key.topic, batch, key.partition)
        assert response.error_code == ErrorCode.NONE, f"{key}: {response.error_message}"
        model.outcomes[token] = Outcome.ACKNOWLEDGED
        model.offsets[token] = response.base_offset

    # --- after the faults

    def _check_after_recovery(self) -> None:
        self._note("recovery without faults")
        self._repair_files()
        self._machine.run(self._check)
        self._note("another start")
        self._machine.run(self._check)

    async def _check(self, broker: SimulatedBroker) -> None:
        self._resolve_unclear_topics(broker)
        await asyncio.sleep(SETTLE_S)
        for log_dir in broker.broker.logs.dirs:
            assert log_dir.error is None, f"{log_dir.path} is offline: {log_dir.error}"
            assert not log_dir.load_errors, f"{log_dir.path}: {log_dir.load_errors}"
        self._check_topics(broker)
        for key, model in self._model.partitions.items():
            check_partition(key, model, broker.broker.replicas.find(*key).log)
        await self._check_offsets(broker)
        await self._check_transactions(broker)
        for key in self._model.partitions:
            await self._produce_one(broker, key)

    def _resolve_unclear_topics(self, broker: SimulatedBroker) -> None:
        for name, kind in self._model.unclear_topics.items():
            record = broker.broker.image.topics.get(name)
            for index in () if record is None else record.assignments:
                key = TopicPartition(name, index)
                existing = self._model.unclear_deletions.pop(key, None)
                self._model.partitions[key] = existing or PartitionModel(kind)
            self._model.end_deletion(name)
        self._model.unclear_topics.clear()

    def _check_topics(self, broker: SimulatedBroker) -> None:
        existing = {key for key in broker.broker.image.partitions if not key.topic.startswith("__")}
        expected = self._model.partitions.keys()
        assert existing == expected, f"topics {existing ^ expected} do not exist, or again"
        for key in existing:
            log = broker.broker.replicas.find(*key).log
            tokens = {record.token for record in read_committed(log)}
            old = tokens & self._model.deleted_tokens
            assert not old, f"{key} has {old} of a deleted topic"
            assert log.last_stable_offset == log.log_end_offset, f"{key} has an open transaction"

    async def _check_offsets(self, broker: SimulatedBroker) -> None:
        for (group, key), offset in self._model.offsets.items():
            unclear = self._model.unclear_offsets.get((group, key), set())
            code, committed = await fetch_offset(broker, group, key)
            assert code == ErrorCode.NONE, f"offset of {group}: {code}"
            assert committed == offset or committed in unclear, (
                f"{group} has lost offset {offset} of {key}: it has {committed}"
            )

    async def _check_transactions(self, broker: SimulatedBroker) -> None:
        visible = {
            record.token
            for key in self._model.partitions
            for record in read_committed(broker.broker.replicas.find(*key).log)
        }
        for transaction in self._model.transactions:
            tokens = {
                token
                for token, (key, partition) in transaction.tokens.items()
                if self._model.partitions.get(key) is partition and self._is_retained(broker, key)
            }
            visible_tokens = tokens & visible
            assert not visible_tokens or transaction.is_commit_requested, (
                f"{transaction} is visible"
            )
            assert visible_tokens in (set(), tokens), (
                f"only {visible_tokens} of {transaction} are visible"
            )
            if transaction.is_committed:
                assert visible_tokens == tokens, f"{transaction} was committed, and is not visible"

    def _is_retained(self, broker: SimulatedBroker, key: TopicPartition) -> bool:
        return broker.broker.replicas.find(*key).log.log_start_offset == 0


async def _run_canary(broker: SimulatedBroker) -> None:
    """Sends requests on a connection that no fault hits; each gets its response soon."""
    connection = broker.connect(is_spared=True)
    try:
        while True:
            try:
                async with asyncio.timeout(MAX_CANARY_S):
                    await connection.request(MetadataRequest([]), 12)
            except TimeoutError:
                raise AssertionError("a connection that no fault has hit is not served") from None
            await asyncio.sleep(0.5)
    finally:
        connection.close()


def _split_name(directory: str) -> tuple[str, int]:
    topic, _, partition = directory.rpartition("-")
    return topic, int(partition) if partition.isdigit() else -1
