"""A whole cluster on virtual time: brokers, controller, store, network, disks and clients (R1–R8).

    ClusterSimulation(seed=7).run()

Random faults hit it for a while: processes are killed, paused and stopped, power fails, links are
cut in one or both directions, sessions with the store are lost. When they have ended, everything
must be led, in sync and served again within a bounded time. The same seed gives the same run.
"""

import asyncio
import logging
import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final
from unittest.mock import patch

from penstock.broker.inter_broker.client import InterBrokerClient
from penstock.broker.pacer import Pacer
from penstock.cluster.store import Scope
from penstock.controller.metadata import PartitionRecord
from penstock.core.errors import KafkaError
from penstock.net.client.errors import DisconnectError
from penstock.protocol.fields import Message
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.sim.cluster.cluster_broker import SimBroker
from tests.sim.cluster.cluster_checks import ClusterChecks, check_records, unsettled
from tests.sim.cluster.cluster_clients import TOPIC, Client, Consumer, Producer
from tests.sim.cluster.cluster_network import CLIENT, MAX_DELAY_MS, SimNetwork
from tests.sim.cluster.cluster_store import SimSession
from tests.sim.txn_loop import Incarnation, SimLoop
from tests.support.cluster.memory_store import MemoryStoreServer
from tests.support.storage.crash_disk import CrashDisk, CrashMode

PARTITIONS: Final = 3
BROKERS: Final = (1, 2, 3)
SESSION_TIMEOUT_S: Final = 3.0
CALM_S: Final = 60.0
"""Within this time after the last fault everything must be in sync again."""


MAX_STEPS: Final = 200_000
"""A run takes about 10,000 steps; one that takes this many never ends."""
FAULTS: Final = (
    "kill",
    "kill",
    "pause",
    "cut",
    "cut",
    "store",
    "power",
    "stop",
    "slow",
    "slow",
    "zombie",
)
"""What hits the cluster; a fault that is listed twice does so twice as often."""


class SimulationError(AssertionError):
    """A failed run, with its seed and its last notes."""


class ClusterSimulation:
    """One run. `storm_s` is how long faults hit the cluster."""

    def __init__(self, seed: int, storm_s: float = 15.0) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.broker_ids: tuple[int, ...] = BROKERS
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.consumed: dict[tuple[int, int], bytes] = {}
        self.notes: list[str] = []
        self._storm_s = storm_s
        self._loop = SimLoop(Random(self.rng.random()), max_job_ms=8)
        self.network = SimNetwork(self._loop, Random(self.rng.random()))
        self._store = MemoryStoreServer()
        self._disks = {broker_id: CrashDisk() for broker_id in BROKERS}
        self._checks = ClusterChecks()
        self._checked_steps = 0
        self._producers: list[Producer] = []
        self._weak: set[int] = set()
        """Brokers that have lost unflushed records and may not be in sync yet."""

    # --- the run

    def run(self) -> None:
        """Raises SimulationError."""
        loop = self._loop
        loop.after_step = self._step
        with self._patches():
            asyncio.set_event_loop(loop)
            try:
                loop.run_until_complete(self._main())
            except Exception as error:  # noqa: BLE001 - with the seed and the notes
                raise self._error(loop.failure or error) from (loop.failure or error)
            finally:
                asyncio.set_event_loop(None)
                loop.close_silently()
            if loop.failure is not None:
                raise self._error(loop.failure) from loop.failure

    def _error(self, error: BaseException) -> SimulationError:
        notes = "\n".join(self.notes[-60:])
        return SimulationError(
            f"seed {self.seed}: {type(error).__name__}: {error}\n"
            f"again: PENSTOCK_SIM_SEEDS={self.seed}:{self.seed + 1} "
            f"pytest tests/sim/cluster\n{notes}"
        )

    def note(self, text: str) -> None:
        self.notes.append(f"{self._loop.time():9.3f} {text}")

    def _step(self) -> None:
        self._checked_steps += 1
        if self._checked_steps > MAX_STEPS:
            self._loop.fail(AssertionError(f"no end after {MAX_STEPS} steps"))
        if self._checked_steps % 10 == 0:
            try:
                self._checks.step(self.network.brokers.values())
            except AssertionError as error:
                self._loop.fail(error)

    async def _main(self) -> None:
        for broker_id in BROKERS:
            self._start(broker_id)
        await self._create_topic()
        self._producers = [Producer(self, f"p{number}", PARTITIONS) for number in range(2)]
        clients: list[Client] = [*self._producers, Consumer(self, PARTITIONS)]
        tasks = [self._loop.create_task(client.run()) for client in clients]
        for task in tasks:
            task.add_done_callback(self._client_ended)
        end = self._loop.time() + self._storm_s
        while self._loop.time() < end:
            await asyncio.sleep(self.rng.randrange(100, 2000) / 1000)
            self._disturb()
        await self._calm_down()
        for client in clients:
            client.is_stopping = True
        async with asyncio.timeout(CALM_S):
            await asyncio.gather(*tasks)
        await self._settle(is_quiet=True)
        check_records(
            self.network.brokers,
            PARTITIONS,
            self.acknowledged,
            self.consumed,
            [producer.sent for producer in self._producers],
        )
        assert self.acknowledged, "nothing was acknowledged"

    def _client_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.fail(error)

    async def _create_topic(self) -> None:
        topic = CreatableTopic(TOPIC, PARTITIONS, len(BROKERS))
        for _ in range(200):
            target = self.rng.choice(BROKERS)
            try:
                response = await self.network.request(
                    CLIENT, self, target, CreateTopicsRequest([topic]), CreateTopicsResponse, 3000
                )
            except KafkaError:
                await asyncio.sleep(0.2)
                continue
            if response.topics[0].error_code == 0:
                self.note("the topic is created")
                return
            await asyncio.sleep(0.2)
        raise AssertionError("the topic could not be created")

    # --- processes

    def _start(self, broker_id: int) -> None:
        process = Incarnation(f"broker {broker_id}")
        session = SimSession(self._store, self._loop, process, Random(self.rng.random()))

        async def start() -> None:
            broker = SimBroker(
                broker_id, self._disks[broker_id], self._loop, session, process, self.note
            )
            self.network.brokers[broker_id] = broker
            await broker.start()
            self.note(f"broker {broker_id} is up")

        task = self._loop.create_task(start(), context=process.context)
        task.add_done_callback(self._client_ended, context=self._loop.outside)

    def _kill(self, broker: SimBroker, *, power: bool) -> None:
        broker_id = broker.broker_id
        self.note(f"{'the power of' if power else 'kill'} broker {broker_id}")
        del self.network.brokers[broker_id]
        broker.kill()
        if power:
            self._weak.add(broker_id)
            mode = self.rng.choice((CrashMode.TORN, CrashMode.DURABLE))
            self._disks[broker_id] = broker.disk.image(mode, self.rng)
        self.network.break_connections(broker_id)
        # A process that is killed closes its connections; the session outlives it.
        self._later(SESSION_TIMEOUT_S, broker.session.end)
        self._later(self.rng.randrange(100, 6000) / 1000, lambda: self._restart(broker_id))

    def _restart(self, broker_id: int) -> None:
        if broker_id not in self.network.brokers:
            self._start(broker_id)

    def _stop(self, broker: SimBroker) -> None:
        """A controlled shutdown, and a restart."""
        self.note(f"stop broker {broker.broker_id}")
        broker.is_up = False

        async def stop() -> None:
            await broker.app.stop()
            self._loop.call_soon(stopped, context=self._loop.outside)

        def stopped() -> None:
            if self.network.brokers.get(broker.broker_id) is broker:
                self.note(f"broker {broker.broker_id} has stopped")
                broker.process.alive = False
                del self.network.brokers[broker.broker_id]
                self.network.break_connections(broker.broker_id)
                self._later(
                    self.rng.randrange(50, 2000) / 1000, lambda: self._restart(broker.broker_id)
                )

        task = self._loop.create_task(stop(), context=broker.process.context)
        task.add_done_callback(self._client_ended, context=self._loop.outside)

    # --- faults

    def _later(self, delay_s: float, callback: Any) -> None:
        self._loop.call_later(delay_s, callback, context=self._loop.outside)

    def _disturb(self) -> None:
        up = [broker for broker in self.network.brokers.values() if broker.is_up]
        if not up:
            return
        broker = self.rng.choice(up)
        match self.rng.choice(FAULTS):
            case "kill":
                self._kill(broker, power=False)
            case "stop":
                self._stop(broker)
            case "power":
                if not self._weak and self._are_all_in_sync():
                    self._kill(broker, power=True)
            case "pause":
                self._pause(broker)
            case "cut":
                self._cut_link(broker)
            case "store":
                self._cut_store(broker, self.rng.choice((0.5, 2.0, 6.0)))
            case "slow":
                self._slow_down()
            case "zombie":
                self._isolate_controller(up)
        if self._weak and not unsettled(self.network.brokers, len(BROKERS), PARTITIONS):
            self._weak.clear()

    def _pause(self, broker: SimBroker) -> None:
        seconds = self.rng.choice((0.5, 2.0, 4.0, 8.0))
        self.note(f"pause broker {broker.broker_id} for {seconds} s")
        broker.process.is_paused = True
        if seconds > SESSION_TIMEOUT_S:
            self._later(SESSION_TIMEOUT_S, broker.session.expire)

        def resume() -> None:
            self.note(f"broker {broker.broker_id} continues")
            self._loop.resume(broker.process)
            broker.session.reconnect()

        self._later(seconds, resume)

    def _cut_link(self, broker: SimBroker) -> None:
        other = self.rng.choice([b for b in BROKERS if b != broker.broker_id])
        links = [(broker.broker_id, other), (other, broker.broker_id)]
        if self.rng.random() < 0.5:
            links.pop()
        seconds = self.rng.choice((0.3, 1.0, 5.0))
        self.note(f"cut {links} for {seconds} s")
        self.network.cut_links.update(links)
        self._later(seconds, lambda: self.network.cut_links.difference_update(links))

    def _are_all_in_sync(self) -> bool:
        """Whether a broker may lose its unflushed records.

        The leader may not have received that the controller has made it the only in-sync replica.
        """
        stored = self._store.load(Scope.ALL).records
        return not unsettled(self.network.brokers, len(BROKERS), PARTITIONS) and all(
            len(record.isr) == len(BROKERS)
            for record in stored
            if isinstance(record, PartitionRecord)
        )

    def _slow_down(self) -> None:
        """Makes messages late, so that states change while they are on their way."""
        seconds = self.rng.choice((1.0, 3.0))
        self.network.max_delay_ms = self.rng.choice((100, 400))
        self.note(f"messages take up to {self.network.max_delay_ms} ms for {seconds} s")

        def end() -> None:
            self.network.max_delay_ms = MAX_DELAY_MS

        self._later(seconds, end)

    def _isolate_controller(self, up: list[SimBroker]) -> None:
        """Lets a controller send its decisions when another has replaced it.

        A broker fails while the controller cannot reach the third one. Then it loses its session,
        but not the network, and reaches the third broker again.
        """
        controllers = [broker for broker in up if broker.app._controller.active is not None]
        others = [broker for broker in up if broker not in controllers]
        if len(controllers) != 1 or len(others) != 2:
            return
        controller = controllers[0]
        failing, cut = self.rng.sample(others, 2)
        link = (controller.broker_id, cut.broker_id)
        self.note(f"isolate the controller {controller.broker_id}: cut {link} for 8 s")
        self.network.cut_links.add(link)
        self._later(8.0, lambda: self.network.cut_links.discard(link))
        self._kill(failing, power=False)
        self._later(SESSION_TIMEOUT_S + 0.5, lambda: self._cut_store(controller, 6.0))

    def _cut_store(self, broker: SimBroker, seconds: float) -> None:
        self.note(f"cut broker {broker.broker_id} from the store for {seconds} s")
        broker.session.is_cut = True
        if seconds > SESSION_TIMEOUT_S:
            self._later(SESSION_TIMEOUT_S, broker.session.expire)
        self._later(seconds, broker.session.reconnect)

    async def _calm_down(self) -> None:
        """Waits until all planned ends of faults have passed, then until all is in sync."""
        self.note("no more faults")
        await asyncio.sleep(10)
        self.network.cut_links.clear()
        self.network.max_delay_ms = MAX_DELAY_MS
        await self._settle()

    async def _settle(self, *, is_quiet: bool = False) -> None:
        end = self._loop.time() + CALM_S
        brokers = self.network.brokers
        while problem := unsettled(brokers, len(BROKERS), PARTITIONS, is_quiet=is_quiet):
            if self._loop.time() > end:
                raise AssertionError(f"after {CALM_S} s without faults: {problem}")
            await asyncio.sleep(0.1)
        self.note("everything is in sync")

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

        def uuid4() -> uuid.UUID:
            return uuid.UUID(int=rng.getrandbits(128), version=4)

        random.seed(self.seed)
        with (
            patch.object(InterBrokerClient, "request", request),
            patch("uuid.uuid4", uuid4),
            patch("penstock.broker.metadata.topic_rules.uuid4", uuid4),
            patch("penstock.storage.manager.dir_identity.uuid4", uuid4),
            patch("penstock.storage.manager.log_dir.uuid4", uuid4),
            patch("time.sleep", lambda seconds: None),
            patch("penstock.broker.app.Pacer", lambda: Pacer(lambda: 0.0)),
            patch("penstock.broker.replica.replica_fetcher.perf_counter", lambda: 0.0),
        ):
            yield


def run_seed(seed: int) -> None:
    """Runs one seed without the logs of its brokers; raises SimulationError."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        ClusterSimulation(seed).run()
    finally:
        logging.disable(level)
