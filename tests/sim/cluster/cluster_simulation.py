"""A whole cluster on virtual time: brokers, controller, store, network, disks and clients (R1–R8).

    ClusterSimulation(seed=7).run()

Random faults hit it for a while (`cluster_faults.py`), while clients produce, consume, run
transactions and reassign partitions. When the faults have ended, everything must be led, in sync
and served again within a bounded time. The same seed gives the same run. A seed has only some kinds
of faults and of clients, so that each combination is frequent in some seeds.
"""

import asyncio
import gc
import logging
import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final
from unittest.mock import patch

from penstock.broker.inter_broker.client import InterBrokerClient
from penstock.broker.pacer import Pacer
from penstock.cluster.store import Scope
from penstock.controller.metadata import PartitionRecord, TopicKey, TopicRecord
from penstock.coordinator.partitioning import partition_for
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.core.internal_topics import GROUP_METADATA_TOPIC
from penstock.net.client.errors import DisconnectError
from penstock.protocol.fields import Message
from tests.sim.cluster.cluster_broker import SESSION_SLOTS, SimBroker
from tests.sim.cluster.cluster_checks import ClusterChecks, check_records, unsettled
from tests.sim.cluster.cluster_clients import DATA, Client, Consumer, Producer
from tests.sim.cluster.cluster_consumer_groups import ConsumerMember
from tests.sim.cluster.cluster_faults import FAULTS, Faults
from tests.sim.cluster.cluster_groups import (
    AssignedConsumer,
    GroupHistory,
    GroupMember,
    Member,
    RestartedConsumer,
    unassigned,
)
from tests.sim.cluster.cluster_history import History
from tests.sim.cluster.cluster_loop import ClusterLoop
from tests.sim.cluster.cluster_network import SimNetwork
from tests.sim.cluster.cluster_operator import Operator
from tests.sim.cluster.cluster_store import SimSession
from tests.sim.cluster.cluster_transactions import (
    OUT,
    OUT_KEYS,
    CommittedReader,
    Transactions,
    Transformer,
)
from tests.sim.txn_broker import START_MS
from tests.sim.txn_loop import Incarnation
from tests.support.cluster.memory_store import MemoryStoreServer
from tests.support.storage.crash_disk import CrashDisk

PARTITIONS: Final = 3
CALM_S: Final = 60.0
"""Within this time after the last fault everything must be in sync again."""
MAX_STEPS: Final = 400_000
"""A run takes about 10,000 steps; one that takes this many never ends."""
CHECKED_STEPS: Final = 10
"""The state of a broker is checked after so many steps of it."""


class SimulationError(AssertionError):
    """A failed run, with its seed and its last notes."""


class ClusterSimulation:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = Random(seed)
        self.broker_ids: tuple[int, ...] = (1, 2, 3) if rng.random() < 0.75 else (1, 2, 3, 4)
        self.notes: list[str] = []
        self.loop = ClusterLoop(Random(rng.random()), max_job_ms=8)
        self.network = SimNetwork(self.loop, Random(rng.random()))
        self.store = MemoryStoreServer()
        self.disks = {broker_id: CrashDisk() for broker_id in self.broker_ids}
        self.clock_offsets_ms = dict.fromkeys(self.broker_ids, 0)
        self.history = History()
        self._storm_s = rng.randrange(6, 15)
        self._max_pause_ms = rng.choice((1000, 2000, 4000))
        """The longest time between two faults."""
        kinds = [kind for kind in FAULTS if rng.random() < 0.5] or [rng.choice(list(FAULTS))]
        self._faults = Faults(self, Random(rng.random()), kinds)
        self._has_late_requests = rng.random() < 0.3
        self._checks = ClusterChecks(self.store, self.network.brokers, self.history)
        self._processes: dict[Incarnation, SimBroker] = {}
        self._clients: list[Client] = []
        self._operator = Operator(self, PARTITIONS, is_replacing=self._has_late_requests)
        self._transactions = Transactions()
        late = "; late requests" if self._has_late_requests else ""
        self.note(f"{len(self.broker_ids)} brokers; faults: {', '.join(kinds)}{late}")

    def now_ms(self) -> int:
        return START_MS + round(self.loop.time() * 1000)

    def assignment_of(self, key: TopicPartition) -> tuple[int, tuple[int, ...]]:
        topic, state = self.store.fetch([TopicKey(key.topic), key])
        assert isinstance(topic, TopicRecord)
        assert isinstance(state, PartitionRecord)
        return state.leader, topic.assignments[key.partition].replicas

    def coordinator_of(self, group: str) -> int:
        number = partition_for(group, 2)
        records = self.store.fetch([TopicPartition(GROUP_METADATA_TOPIC, number)])
        return records[0].leader if records and isinstance(records[0], PartitionRecord) else -1

    # --- the run

    def run(self) -> None:
        """Raises SimulationError."""
        loop = self.loop
        loop.after_callback = self._step
        is_collecting = gc.isenabled()
        gc.disable()  # it takes a fifth of the time, and a run needs little memory
        with self._patches():
            asyncio.set_event_loop(loop)
            try:
                loop.run_until_complete(self._main())
            except Exception as error:  # noqa: BLE001 - with the seed and the notes
                raise self._error(loop.failure or error) from (loop.failure or error)
            finally:
                asyncio.set_event_loop(None)
                loop.close_silently()
                if is_collecting:
                    gc.enable()
            if loop.failure is not None:
                raise self._error(loop.failure) from loop.failure

    def _error(self, error: BaseException) -> SimulationError:
        notes = "\n".join(self.notes[-100:])
        return SimulationError(
            f"seed {self.seed}: {type(error).__name__}: {error}\n"
            f"again: PENSTOCK_SIM_SEEDS={self.seed}:{self.seed + 1} "
            f"pytest tests/sim/cluster/test_cluster.py\n{notes}"
        )

    def note(self, text: str) -> None:
        self.notes.append(f"{self.loop.time():9.3f} {text}")

    def _step(self, process: Incarnation) -> None:
        """Checks the broker of a process after every tenth step of it."""
        process.steps += 1
        if process.steps % CHECKED_STEPS:
            return
        if self.loop.steps > MAX_STEPS:
            self.loop.fail(AssertionError(f"no end after {MAX_STEPS} steps"))
        broker = self._processes.get(process)
        if broker is not None:
            self._check(broker)

    def _check(self, broker: SimBroker) -> None:
        try:
            self._checks.step(broker)
        except AssertionError as error:
            self.loop.fail(error)

    def _check_soon(self, broker: SimBroker) -> None:
        """Checks a broker before and after it handles a request that has just arrived."""

        def check() -> None:
            if self.network.brokers.get(broker.broker_id) is broker:
                self._check(broker)

        for delay_ms in (0, 1, 3, 10):
            self.loop.call_later(delay_ms / 1000, check, context=self.loop.outside)

    async def _main(self) -> None:
        for broker_id in self.broker_ids:
            self.start(broker_id)
        brokers = self.network.brokers
        while sum(broker.is_up for broker in brokers.values()) < len(self.broker_ids):
            await asyncio.sleep(0.02)
        await self._create_topic(DATA, PARTITIONS)
        self._create_clients()
        if any(isinstance(client, Transformer) for client in self._clients):
            await self._create_topic(OUT, len(OUT_KEYS))
        tasks = {client: self._spawn(client.run()) for client in self._clients}
        self.network.late_requests.are_enabled = self._has_late_requests
        self.network.late_requests.on_arrival = self._check_soon
        end = self.loop.time() + self._storm_s
        while self.loop.time() < end:
            await asyncio.sleep(self.rng.randrange(100, self._max_pause_ms) / 1000)
            self._faults.strike()
        self.note("no more faults")
        self._faults.end_all()
        if self._operator in tasks:
            self._operator.is_stopping = True
            await tasks[self._operator]
            await self._operator.restore()
        await self._settle()
        await self._await_assignments()
        for client in self._clients:
            client.is_stopping = True
        async with asyncio.timeout(CALM_S):
            await asyncio.gather(*tasks.values())
        await self._settle(is_quiet=True)
        await self._check_end()

    def _create_clients(self) -> None:
        rng, is_late = self.rng, self._has_late_requests
        keys = [TopicPartition(DATA, number) for number in range(PARTITIONS)]
        clients: list[Client] = [Producer(self, "p0", PARTITIONS)]
        if rng.random() < 0.5:
            clients += [Producer(self, "p1", PARTITIONS), Consumer(self, "c0", keys)]
        if rng.random() < (0.8 if is_late else 0.5):
            for number in range(rng.randrange(2, 5)):
                source = keys[number // 2]
                version = rng.choice((1, 2))
                clients.append(Transformer(self, f"t{number}", source, version, self._transactions))
            clients.append(CommittedReader(self, self._transactions))
        if rng.random() < 0.4:
            clients += _members(self, "m", Member, Member)
        if rng.random() < 0.4:
            clients += _members(self, "k", ConsumerMember, ConsumerMember)
        if rng.random() < 0.4:
            clients += _members(self, "r", AssignedConsumer, RestartedConsumer)
        if rng.random() < (0.8 if is_late else 0.4):
            clients.append(self._operator)
        self._clients = clients
        self.note(f"clients: {', '.join(client.name for client in clients)}")

    def _spawn(self, work: Any) -> "asyncio.Task[None]":
        task = self.loop.create_task(work)
        task.add_done_callback(self._ended, context=self.loop.outside)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.loop.fail(error)

    async def _create_topic(self, name: str, partitions: int) -> None:
        await self._operator.create(name, partitions, attempts=200)
        assert self._operator.topics[name], f"{name} could not be created"

    async def _settle(self, *, is_quiet: bool = False) -> None:
        end = self.loop.time() + CALM_S
        while problem := unsettled(
            self.store, self.network.brokers, self.broker_ids, is_quiet=is_quiet
        ):
            if self.loop.time() > end:
                raise AssertionError(f"after {CALM_S} s without faults: {problem}")
            await asyncio.sleep(0.1)
        self.note("everything is in sync")

    async def _await_assignments(self) -> None:
        """Waits until every group has distributed the partitions among its members."""
        groups: dict[str, list[GroupMember]] = {}
        for client in self._clients:
            if isinstance(client, Member | ConsumerMember):
                client.can_restart = False
                groups.setdefault(client.history.group, []).append(client)
        end = self.loop.time() + CALM_S
        for members in groups.values():
            while problem := unassigned(members):
                if self.loop.time() > end:
                    raise AssertionError(f"after {CALM_S} s without faults: {problem}")
                await asyncio.sleep(0.1)

    async def _check_end(self) -> None:
        """Checks what is stored in the end against everything that was observed."""
        for broker in self.network.brokers.values():
            self._checks.step(broker)
        producers = [client for client in self._clients if isinstance(client, Producer)]
        check_records(self.network.brokers, self.history, [producer.sent for producer in producers])
        assert self.history.acknowledged_ends, "nothing was acknowledged"
        topics = {r.topic for r in self.store.load(Scope.ALL).records if isinstance(r, TopicRecord)}
        for name, exists in self._operator.topics.items():
            assert exists is None or exists is (name in topics), f"{name} exists: {not exists}"
        for client in self._clients:
            if isinstance(client, GroupMember):
                for partition in range(PARTITIONS):
                    await client.committed_offset(partition)
        await self._check_transactions()

    async def _check_transactions(self) -> None:
        transformers = [client for client in self._clients if isinstance(client, Transformer)]
        if not transformers:
            return
        offsets = {client.source: await client.committed_offset() for client in transformers}
        final = CommittedReader(self, self._transactions)
        for key in OUT_KEYS:
            end = self.history.log_end(key)
            while final.position(key) < end:
                try:
                    await final.poll(key)
                except KafkaError:
                    final.forget(key)
        for client in self._clients:
            if isinstance(client, CommittedReader):
                for key, seen in client.seen.items():
                    assert seen.items() <= final.seen[key].items(), f"{key}: {seen} was read"
        self._transactions.finish(
            {key: sorted(records.items()) for key, records in final.seen.items()}, offsets
        )

    # --- processes

    def start(self, broker_id: int) -> None:
        """Starts the process of a broker."""
        process = Incarnation(f"broker {broker_id}")
        session = SimSession(self.store, self.loop, process, Random(self.rng.random()))
        session.on_elected = self._faults.on_elected

        async def start() -> None:
            broker = SimBroker(
                broker_id,
                self.disks[broker_id],
                self.loop,
                session,
                process,
                self.clock_offsets_ms[broker_id],
                # Every Fetch has all partitions then, so that more of them can be late.
                {SESSION_SLOTS: "0"} if self._has_late_requests else {},
            )
            self.network.brokers[broker_id] = self._processes[process] = broker
            await broker.start()
            self.note(f"broker {broker_id} is up")

        task = self.loop.create_task(start(), context=process.context)
        task.add_done_callback(self._ended, context=self.loop.outside)

    def stop(self, broker: SimBroker, stopped: Callable[[], None]) -> None:
        """Shuts a broker down, and calls `stopped` afterwards."""
        broker.is_up, broker.is_stopping = False, True

        async def stop() -> None:
            await broker.app.stop()
            self.loop.call_soon(end, context=self.loop.outside)

        def end() -> None:
            if self.network.brokers.get(broker.broker_id) is broker:
                self.note(f"broker {broker.broker_id} has stopped")
                broker.process.alive = False
                del self.network.brokers[broker.broker_id]
                self.network.break_connections(broker.broker_id)
                stopped()

        task = self.loop.create_task(stop(), context=broker.process.context)
        task.add_done_callback(self._ended, context=self.loop.outside)

    # --- patches

    @contextmanager
    def _patches(self) -> Iterator[None]:
        """Puts the network between the brokers, and makes ids and choices reproducible."""
        network, rng = self.network, self.rng

        async def request(
            client: InterBrokerClient,
            broker_id: int,
            message: Any,
            response_type: type[Message],
            **options: Any,
        ) -> Any:
            if client._is_closed or broker_id not in client._directory.brokers:
                raise DisconnectError(f"broker {broker_id} is not up")
            source = client._config.int("node.id")
            timeout_ms = options.pop("timeout_ms", None) or 2000
            return await network.request(
                source, client, broker_id, message, response_type, timeout_ms, **options
            )

        def disconnect(client: InterBrokerClient, broker_id: int, reason: str) -> None:
            network.disconnect(client, broker_id)

        def uuid4() -> uuid.UUID:
            return uuid.UUID(int=rng.getrandbits(128), version=4)

        random.seed(self.seed)
        with (
            patch.object(InterBrokerClient, "request", request),
            patch.object(InterBrokerClient, "disconnect", disconnect),
            patch("uuid.uuid4", uuid4),
            patch("penstock.broker.metadata.topic_rules.uuid4", uuid4),
            patch("penstock.storage.manager.dir_identity.uuid4", uuid4),
            patch("penstock.storage.manager.log_dir.uuid4", uuid4),
            patch("time.sleep", lambda seconds: None),
            patch("penstock.broker.app.Pacer", lambda: Pacer(lambda: 0.0)),
            patch("penstock.broker.replica.background_tasks._TICK_S", 1.0),
            patch("penstock.broker.replica.replica_fetcher.perf_counter", lambda: 0.0),
        ):
            yield


def _members(cluster: ClusterSimulation, prefix: str, *kinds: type[GroupMember]) -> list[Client]:
    """Returns the members of a group."""
    history = GroupHistory(kinds[0].__name__)
    return [kind(cluster, f"{prefix}{number}", history) for number, kind in enumerate(kinds)]


def run_seed(seed: int) -> None:
    """Runs one seed without the logs of its brokers; raises SimulationError."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        ClusterSimulation(seed).run()
    finally:
        logging.disable(level)
