"""The faults that hit a simulated cluster."""

import asyncio
import errno
from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from tests.sim.cluster.cluster_broker import LOG_DIRS, SimBroker
from tests.sim.cluster.cluster_checks import unsettled
from tests.sim.cluster.cluster_loop import ClusterLoop
from tests.sim.cluster.cluster_network import MAX_DELAY_MS, SimNetwork
from tests.support.cluster.memory_store import MemoryStoreServer
from tests.support.storage.crash_disk import CrashDisk, CrashMode

SESSION_TIMEOUT_S: Final = 3.0


class Machines(Protocol):
    """What faults use of the simulation."""

    loop: ClusterLoop
    network: SimNetwork
    store: MemoryStoreServer
    broker_ids: tuple[int, ...]
    disks: dict[int, CrashDisk]
    clock_offsets_ms: dict[int, int]

    def start(self, broker_id: int) -> None: ...

    def stop(self, broker: SimBroker, stopped: Callable[[], None]) -> None: ...

    def note(self, text: str) -> None: ...


class Faults:
    """Random faults of the given kinds. Each ends after a while, or with `end_all`."""

    def __init__(self, machines: Machines, rng: Random, kinds: list[str]) -> None:
        self._machines = machines
        self._loop = machines.loop
        self._network = machines.network
        self._rng = rng
        self._kinds = kinds
        self._weak: set[int] = set()
        """Brokers that have lost records and may not be in sync yet."""
        self._failed_directories: set[int] = set()
        """Brokers with a log directory that fails, or has no room."""
        self._offline: set[int] = set()
        """Brokers with replicas that a failed directory may have taken out of the ISRs."""
        self._ends: dict[int, tuple[asyncio.TimerHandle, Callable[[], None]]] = {}
        self._interrupted_elections = 0
        """How many of the next controllers lose the store as soon as they are elected."""
        self._number = 0
        self._is_over = False

    def strike(self) -> None:
        """Hits one broker, or the network."""
        up = [broker for broker in self._network.brokers.values() if broker.is_up]
        if up:
            kind = self._rng.choice(self._kinds)
            FAULTS[kind](self, self._rng.choice(up))
        if (self._weak or self._offline) and not unsettled(
            self._machines.store, self._network.brokers, self._machines.broker_ids
        ):
            self._weak.clear()
            if not self._failed_directories:
                self._offline.clear()

    def end_all(self) -> None:
        """Ends all faults now, and lets no planned one happen."""
        self._is_over = True
        self._network.end_faults()
        for timer, end in list(self._ends.values()):
            timer.cancel()
            end()

    def _later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._loop.call_later(delay_s, callback, context=self._loop.outside)

    def _until(self, delay_s: float, end: Callable[[], None]) -> None:
        """Calls `end` later, or with `end_all`."""
        self._number = number = self._number + 1

        def end_now() -> None:
            if self._ends.pop(number, None) is not None:
                end()

        timer = self._loop.call_later(delay_s, end_now, context=self._loop.outside)
        self._ends[number] = (timer, end_now)

    def _note(self, text: str) -> None:
        self._machines.note(text)

    # --- processes and machines

    def kill(self, broker: SimBroker) -> None:
        self._note(f"kill broker {broker.broker_id}")
        self._end_process(broker)

    def _end_process(self, broker: SimBroker) -> None:
        broker_id = broker.broker_id
        del self._network.brokers[broker_id]
        broker.kill()
        self._network.break_connections(broker_id)
        # The session outlives the process.
        self._later(SESSION_TIMEOUT_S, broker.session.end)
        self._until(self._rng.randrange(100, 6000) / 1000, lambda: self._restart(broker_id))

    def _restart(self, broker_id: int) -> None:
        if broker_id not in self._network.brokers:
            self._machines.start(broker_id)

    def fail_power(self, broker: SimBroker) -> None:
        """Loses the records that were not flushed."""
        if self._may_lose_records():
            self._note(f"the power of broker {broker.broker_id}")
            mode = self._rng.choice((CrashMode.TORN, CrashMode.DURABLE))
            self._lose(broker, lambda: broker.disk.image(mode, self._rng))

    def lose_disk(self, broker: SimBroker) -> None:
        """Loses both log directories, or one and the unflushed records of the other."""
        if self._may_lose_records():
            self._note(f"the disk of broker {broker.broker_id}")
            lost = self._rng.choice((LOG_DIRS, LOG_DIRS[:1], LOG_DIRS[1:]))

            def new_disk() -> CrashDisk:
                disk = broker.disk.image(CrashMode.TORN, self._rng)
                for path in lost:
                    disk.remove_directory(path)
                disk.make_durable()
                return disk

            self._lose(broker, new_disk)

    def _lose(self, broker: SimBroker, new_disk: Callable[[], CrashDisk]) -> None:
        self._weak.add(broker.broker_id)
        self._end_process(broker)
        self._machines.disks[broker.broker_id] = new_disk()

    def _may_lose_records(self) -> bool:
        """Whether a broker may lose records: fewer than two, which is `min.insync.replicas`.

        A failed directory counts as a lost one, because its disk may not have what was written.
        """
        return not self._weak and not self._offline

    def stop(self, broker: SimBroker) -> None:
        """A controlled shutdown, and a restart."""
        broker_id = broker.broker_id
        self._note(f"stop broker {broker_id}")

        def stopped() -> None:
            delay_s = self._rng.randrange(50, 2000) / 1000
            self._until(delay_s, lambda: self._restart(broker_id))

        self._machines.stop(broker, stopped)

    def pause(self, broker: SimBroker, seconds: float = 0.0) -> None:
        seconds = seconds or self._rng.choice((0.5, 2.0, 4.0, 8.0))
        process, session = broker.process, broker.session
        if process.is_paused:
            return
        self._note(f"pause broker {broker.broker_id} for {seconds} s")
        process.is_paused = True

        def expire() -> None:
            if process.is_paused:
                session.expire()

        def resume() -> None:
            self._note(f"broker {broker.broker_id} continues")
            self._loop.resume(process)
            session.reconnect()

        if seconds > SESSION_TIMEOUT_S:
            self._later(SESSION_TIMEOUT_S, expire)
        self._until(seconds, resume)

    def fail_directory(self, broker: SimBroker) -> None:
        """Fails writes to one log directory, until the broker is killed and its disk repaired."""
        if self._weak or broker.broker_id in self._failed_directories:
            return
        path = self._rng.choice(LOG_DIRS)
        self._note(f"{path} of broker {broker.broker_id} fails")
        self._failed_directories.add(broker.broker_id)
        self._offline.add(broker.broker_id)
        for operation in ("write", "sync", "create", "rename"):
            broker.disk.fail(operation, f"{path}/*", errno.EIO)

        def repair() -> None:
            self._note(f"{path} of broker {broker.broker_id} is repaired")
            broker.disk.heal()
            self._failed_directories.discard(broker.broker_id)
            process = self._network.brokers.get(broker.broker_id)
            if process is not None:
                self._end_process(process)

        self._until(self._rng.randrange(1000, 6000) / 1000, repair)

    def fill_disk(self, broker: SimBroker) -> None:
        """Leaves no room in a log directory for a while; the broker may be started during it.

        Then replicas leave the ISRs like those in a failed directory.
        """
        if self._weak or broker.broker_id in self._failed_directories:
            return
        path, disk = self._rng.choice(LOG_DIRS), broker.disk
        self._failed_directories.add(broker.broker_id)
        self._offline.add(broker.broker_id)
        self._note(f"{path} of broker {broker.broker_id} is full")
        faults = [
            disk.fail(operation, f"{path}/*", errno.ENOSPC)
            for operation in ("write", "create", "reserve")
        ]
        if self._rng.random() < 0.5:
            self.kill(broker)

        def make_room() -> None:
            self._note(f"{path} of broker {broker.broker_id} has room")
            self._failed_directories.discard(broker.broker_id)
            disk.end_faults(faults)

        self._until(self._rng.randrange(1000, 8000) / 1000, make_room)

    def change_clock(self, broker: SimBroker) -> None:
        """Sets the time of day of a broker, by up to 20 s.

        Transactions time out by the time of day, as in Kafka: with larger errors they stay open.
        """
        largest = self._rng.choice((100, 5_000, 20_000))
        offset_ms = self._rng.randrange(-largest, largest)
        self._note(f"the clock of broker {broker.broker_id} is wrong by {offset_ms} ms")
        self._machines.clock_offsets_ms[broker.broker_id] = offset_ms
        broker.clock.offset_ms = offset_ms

    # --- the network and the store

    def cut_link(self, broker: SimBroker) -> None:
        """Cuts a link between two brokers, in one direction or in both."""
        ids = [b for b in self._machines.broker_ids if b != broker.broker_id]
        other = self._rng.choice(ids)
        links = [(broker.broker_id, other), (other, broker.broker_id)]
        if self._rng.random() < 0.5:
            links.pop()
        self._cut(links, self._rng.choice((0.3, 1.0, 5.0)))

    def isolate(self, broker: SimBroker) -> None:
        """Cuts a broker from all others, but not from the store and the clients."""
        ids = [b for b in self._machines.broker_ids if b != broker.broker_id]
        links = [(broker.broker_id, other) for other in ids]
        if self._rng.random() < 0.5:
            links = [(other, broker.broker_id) for other in ids]
        if self._rng.random() < 0.3:
            links += [(second, first) for first, second in links]
        self._cut(links, self._rng.choice((1.0, 4.0, 6.0)))

    def _cut(self, links: list[tuple[int, int]], seconds: float) -> None:
        self._note(f"cut {links} for {seconds} s")
        self._network.cut_links.update(links)
        self._until(seconds, lambda: self._network.cut_links.difference_update(links))

    def slow_down(self, broker: SimBroker) -> None:
        """Makes messages late, so that states change while they are on their way."""
        network = self._network
        seconds = self._rng.choice((1.0, 3.0))
        network.max_delay_ms = self._rng.choice((100, 400))
        self._note(f"messages take up to {network.max_delay_ms} ms for {seconds} s")

        def end() -> None:
            network.max_delay_ms = MAX_DELAY_MS

        self._until(seconds, end)

    def lose_messages(self, broker: SimBroker) -> None:
        network = self._network
        network.loss = self._rng.choice((0.005, 0.02, 0.1))
        self._note(f"{network.loss:.1%} of the messages are lost")

        def end() -> None:
            network.loss = 0.0

        self._until(self._rng.choice((1.0, 3.0)), end)

    def stall(self, broker: SimBroker) -> None:
        """Lets messages arrive seconds later, after those that were sent again."""
        network = self._network
        network.stalls = self._rng.choice((0.01, 0.05, 0.2))
        self._note(f"{network.stalls:.0%} of the messages are late by seconds")

        def end() -> None:
            network.stalls = 0.0

        self._until(self._rng.choice((1.0, 3.0)), end)

    def cut_store(self, broker: SimBroker, seconds: float = 0.0) -> None:
        seconds = seconds or self._rng.choice((0.5, 2.0, 6.0))
        session = broker.session
        self._note(f"cut broker {broker.broker_id} from the store for {seconds} s")
        session.is_cut = True

        def expire() -> None:
            if session.is_cut:
                session.expire()

        if seconds > SESSION_TIMEOUT_S:
            self._later(SESSION_TIMEOUT_S, expire)
        self._until(seconds, session.reconnect)

    # --- the controller

    def _controller(self) -> SimBroker | None:
        controllers = [b for b in self._network.brokers.values() if b.is_controller]
        return controllers[0] if len(controllers) == 1 else None

    def isolate_controller(self, broker: SimBroker) -> None:
        """Lets a controller send its decisions when another has replaced it.

        A broker fails while the controller cannot reach another one. Then it loses its session, but
        not the network, and reaches the other broker again.
        """
        controller = self._controller()
        others = [b for b in self._network.brokers.values() if b.is_up and b is not controller]
        if controller is None or len(others) < 2:
            return
        failing, cut = self._rng.sample(others, 2)
        self._note(f"the controller {controller.broker_id} is isolated")
        self._cut([(controller.broker_id, cut.broker_id)], 8.0)
        self.kill(failing)

        def isolate() -> None:
            if not self._is_over:
                self.cut_store(controller, 6.0)

        self._later(SESSION_TIMEOUT_S + 0.5, isolate)

    def interrupt_election(self, broker: SimBroker) -> None:
        """Replaces the controller, and cuts the new one from the store as soon as it is elected.

        Before that, another broker may lose its power.
        """
        controller = self._controller()
        if controller is None:
            return
        others = [b for b in self._network.brokers.values() if b.is_up and b is not controller]
        if others and self._rng.random() < 0.5:
            self.fail_power(self._rng.choice(others))
        self._note(f"the controller {controller.broker_id} is replaced")
        self._interrupted_elections = 1
        self.kill(controller)

    def on_elected(self, broker_id: int) -> None:
        """Called when a broker has become the controller."""
        broker = self._network.brokers.get(broker_id)
        if self._interrupted_elections and broker is not None and not self._is_over:
            self._interrupted_elections -= 1
            self.cut_store(broker, self._rng.choice((0.3, 1.0, 2.0)))

    def pause_controller(self, broker: SimBroker) -> None:
        """Pauses the controller while it sends its decisions, until another has replaced it."""
        controller = self._controller()
        if controller is None:
            return
        others = [b for b in self._network.brokers.values() if b.is_up and b is not controller]
        if len(others) > 1:
            self.kill(self._rng.choice(others))
            delay_s = SESSION_TIMEOUT_S + self._rng.randrange(0, 100) / 1000

            def pause() -> None:
                if not self._is_over:
                    self.pause(controller, 5.0)

            self._later(delay_s, pause)
        else:
            self.pause(controller, 5.0)


FAULTS: Final[dict[str, Callable[[Faults, SimBroker], None]]] = {
    "kill": Faults.kill,
    "pause": Faults.pause,
    "stop": Faults.stop,
    "power": Faults.fail_power,
    "disk": Faults.lose_disk,
    "directory": Faults.fail_directory,
    "full": Faults.fill_disk,
    "clock": Faults.change_clock,
    "cut": Faults.cut_link,
    "isolate": Faults.isolate,
    "slow": Faults.slow_down,
    "loss": Faults.lose_messages,
    "stall": Faults.stall,
    "store": Faults.cut_store,
    "isolate controller": Faults.isolate_controller,
    "interrupted election": Faults.interrupt_election,
    "pause controller": Faults.pause_controller,
}
"""By name; a run has some of them, so that each is frequent in some runs."""
