"""Faults of a cluster: kills, pauses, cuts, full disks, clock steps, ZooKeeper restarted.

A fault begins, lasts, and ends. `plan` draws a schedule from a seed; faults of different tracks
overlap. `Nemesis` carries it out while the workload runs.
"""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from tests.support.history.cluster import BROKER_IDS, SESSION_TIMEOUT_S, HistoryCluster
from tests.support.history.history import HistoryRecorder
from tests.support.history.network import CLIENTS, ZOOKEEPER, broker_name

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Fault:
    """A disturbance of the cluster."""

    def begin(self, cluster: HistoryCluster) -> None:
        raise NotImplementedError

    def end(self, cluster: HistoryCluster) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class Kill(Fault):
    """kill -9 of a broker, which is started again."""

    broker_id: int

    def begin(self, cluster: HistoryCluster) -> None:
        cluster.kill(self.broker_id)

    def end(self, cluster: HistoryCluster) -> None:
        cluster.start(self.broker_id)


@dataclass(frozen=True)
class Restart(Fault):
    """A broker is stopped in order, and started again."""

    broker_id: int

    def begin(self, cluster: HistoryCluster) -> None:
        cluster.stop(self.broker_id)

    def end(self, cluster: HistoryCluster) -> None:
        cluster.start(self.broker_id)


@dataclass(frozen=True)
class Pause(Fault):
    """SIGSTOP and SIGCONT of a broker."""

    broker_id: int

    def begin(self, cluster: HistoryCluster) -> None:
        cluster.processes[self.broker_id].send_signal(signal.SIGSTOP)

    def end(self, cluster: HistoryCluster) -> None:
        cluster.processes[self.broker_id].send_signal(signal.SIGCONT)


@dataclass(frozen=True)
class Cut(Fault):
    """No bytes pass from one process to another, or in both directions."""

    source: str
    target: str
    one_way: bool = False
    resets: bool = False
    """Whether connections are reset at the begin and at the end; otherwise bytes arrive late."""

    def begin(self, cluster: HistoryCluster) -> None:
        cluster.network.cut(self.source, self.target, one_way=self.one_way, resets=self.resets)

    def end(self, cluster: HistoryCluster) -> None:
        cluster.network.heal(self.source, self.target, resets=self.resets)


@dataclass(frozen=True)
class Isolate(Fault):
    """A broker reaches no other broker; clients and ZooKeeper reach it."""

    broker_id: int
    resets: bool = False

    def begin(self, cluster: HistoryCluster) -> None:
        for cut in self._cuts():
            cut.begin(cluster)

    def end(self, cluster: HistoryCluster) -> None:
        for cut in self._cuts():
            cut.end(cluster)

    def _cuts(self) -> Iterator[Cut]:
        for other in BROKER_IDS:
            if other != self.broker_id:
                yield Cut(broker_name(self.broker_id), broker_name(other), resets=self.resets)


@dataclass(frozen=True)
class RestartZooKeeper(Fault):
    """ZooKeeper is killed and started again, with its data."""

    def begin(self, cluster: HistoryCluster) -> None:
        cluster.zookeeper.kill()

    def end(self, cluster: HistoryCluster) -> None:
        cluster.zookeeper.start()


@dataclass(frozen=True)
class FullDisk(Fault):
    """Nothing new can be written to the disk of a broker."""

    broker_id: int

    def begin(self, cluster: HistoryCluster) -> None:
        cluster.processes[self.broker_id].command("disk full")

    def end(self, cluster: HistoryCluster) -> None:
        cluster.processes[self.broker_id].command("disk free")


@dataclass(frozen=True)
class ClockStep(Fault):
    """The wall clock of a broker steps, and steps back later."""

    broker_id: int
    step_ms: int

    def begin(self, cluster: HistoryCluster) -> None:
        cluster.processes[self.broker_id].command(f"clock {self.step_ms}")

    def end(self, cluster: HistoryCluster) -> None:
        cluster.processes[self.broker_id].command("clock 0")


# --- schedules


class Step(NamedTuple):
    """When a fault begins and ends, in seconds after the start."""

    begin_s: float
    end_s: float
    fault: Fault


Draw = Callable[[Random], Fault]


def _broker(rng: Random) -> int:
    return rng.choice(BROKER_IDS)


def _draw_cut(rng: Random) -> Fault:
    """Cuts any two processes, most often two brokers."""
    first, second = rng.sample(BROKER_IDS, 2)
    target = rng.choice((broker_name(second), broker_name(second), ZOOKEEPER, CLIENTS))
    source, target = rng.sample((broker_name(first), target), 2)
    return Cut(source, target, one_way=rng.random() < 0.4, resets=rng.random() < 0.5)


PROCESS_FAULTS: tuple[Draw, ...] = (
    lambda rng: Kill(_broker(rng)),
    lambda rng: Kill(_broker(rng)),
    lambda rng: Restart(_broker(rng)),
    lambda rng: Pause(_broker(rng)),
)
OTHER_FAULTS: tuple[Draw, ...] = (
    _draw_cut,
    _draw_cut,
    _draw_cut,
    lambda rng: Isolate(_broker(rng), resets=rng.random() < 0.5),
    lambda rng: RestartZooKeeper(),
    lambda rng: FullDisk(_broker(rng)),
    lambda rng: ClockStep(_broker(rng), rng.choice((-1, 1)) * rng.choice((5000, HOUR_MS))),
)
TRACKS = (PROCESS_FAULTS, OTHER_FAULTS)


def plan(
    seed: int,
    seconds: float,
    tracks: Sequence[Sequence[Draw]] = TRACKS,
    *,
    longest_s: float = 2.5 * SESSION_TIMEOUT_S,
) -> list[Step]:
    """Returns a schedule of about so many seconds; the faults of a track follow each other."""
    steps = []
    for number, draws in enumerate(tracks):
        rng = Random(f"{seed} faults {number}")
        now = rng.uniform(0.5, 2)
        while now < seconds:
            end = now + rng.choice((rng.uniform(0.2, 1), rng.uniform(1, longest_s)))
            steps.append(Step(now, end, rng.choice(draws)(rng)))
            now = end + rng.uniform(0.5, 3)
    return sorted(steps, key=lambda step: step.begin_s)


class Nemesis:
    """Carries out a schedule. Steps that take long delay those behind them."""

    def __init__(self, cluster: HistoryCluster, recorder: HistoryRecorder) -> None:
        self._cluster = cluster
        self._recorder = recorder

    def run(self, steps: Sequence[Step]) -> None:
        """Returns when all faults have ended."""
        actions = [(step.begin_s, 0, step.fault) for step in steps]
        actions += [(step.end_s, 1, step.fault) for step in steps]
        started = time.monotonic()
        for at, is_end, fault in sorted(actions, key=lambda action: action[:2]):
            time.sleep(max(0.0, started + at - time.monotonic()))
            self._cluster.start_missing()
            self._recorder.note(f"{fault} {'ends' if is_end else 'begins'}")
            if is_end:
                fault.end(self._cluster)
            else:
                fault.begin(self._cluster)
