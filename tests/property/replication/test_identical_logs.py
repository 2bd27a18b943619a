"""Random histories of replicas with real logs and crashes: followers end with the leader's bytes.

Any replica may become leader, whatever it has (an unclean election), so that logs diverge; crashes
lose what was not synced, also in the middle of an append or a truncation. After each catch-up the
log of the follower equals that of its leader: batches, leader epochs, producers and transactions.
"""

import logging
from collections.abc import Iterator
from random import Random

import pytest

from penstock.core.ids import TopicPartition
from penstock.records.append_policy import AppendOrigin
from penstock.records.control import build_end_txn_marker
from penstock.replication.follower import FollowerMachine
from penstock.replication.follower_effects import Append, Effect, InitialFetch
from penstock.replication.follower_session import FetcherSettings
from penstock.storage.log.log import Log
from penstock.storage.log.retention import delete_old_segments
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_manager import LogManager
from tests.support.broker.log_leader import TOPIC, TOPIC_ID, LogLeader
from tests.support.clock import ManualClock
from tests.support.storage.crash_disk import CrashDisk, CrashMode, SimulatedCrash
from tests.support.storage.log_dirs import run_maintenance
from tests.support.storage.log_model import ProducerSummary, StoredBatch
from tests.support.storage.log_workloads import contents, data_batch

KEY = TopicPartition(TOPIC, 0)
CONFIG = LogConfig(
    segment_bytes=1500,
    segment_index_bytes=120,
    index_interval_bytes=100,
    retention_bytes=5000,
    file_delete_delay_ms=1000,
)
STEPS = 45


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


class CurrentLog:
    """A `ReplicaLog` of a node that may be restarted."""

    def __init__(self, node: "Node") -> None:
        self._node = node

    @property
    def log_start_offset(self) -> int:
        return self._node.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._node.log.log_end_offset

    @property
    def latest_epoch(self) -> int | None:
        return self._node.log.epochs.latest_epoch

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int] | None:
        return self._node.log.end_offset_for_epoch(leader_epoch)


class Node:
    """A broker with one replica, on a disk that may crash."""

    def __init__(self, number: int, clock: ManualClock) -> None:
        self.number = number
        self.clock = clock
        self.disk = CrashDisk()
        self._open()
        self.disk.make_durable()

    def _open(self) -> None:
        self.manager = LogManager(self.disk, ["/data"], self.clock)
        self.manager.startup(lambda topic: CONFIG, node_id=self.number)
        self.manager.get_or_create(KEY, CONFIG, TOPIC_ID)

    @property
    def log(self) -> Log:
        log = self.manager.get(KEY)
        assert log is not None
        return log

    def crash(self, rng: Random) -> None:
        self.disk = self.disk.image(rng.choice(list(CrashMode)), rng)
        self._open()

    def perform(self, machine: FollowerMachine, effect: Effect) -> None:
        if isinstance(effect, Append):
            self._append(machine, effect)
        elif effect.fully:
            self.manager.begin_full_truncation(KEY, effect.offset).complete()
            machine.truncated(effect)
        else:
            self.manager.begin_truncation(KEY, effect.offset).complete()
            machine.truncated(effect)

    def _append(self, machine: FollowerMachine, append: Append) -> None:
        if append.restart is not None:
            self.manager.begin_full_truncation(KEY, *append.restart).complete()
            machine.resume(append.state)
        if append.records:
            self.log.append_as_follower(append.records, append.state.leader_epoch)
        update = machine.appended(append)
        self.log.update_high_watermark(update.high_watermark)
        if update.log_start_offset is not None:
            self.log.increment_log_start_offset(update.log_start_offset)


class History:
    """Three nodes; `rng` decides what happens."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.clock = ManualClock()
        self.nodes = [Node(number, self.clock) for number in range(3)]
        self.epoch = 0
        self.leader = self.nodes[0]
        self.truncations = 0
        self.crashes = 0

    def run(self) -> None:
        for _ in range(STEPS):
            step = self.rng.choice(
                [self.produce] * 4
                + [self.fetch] * 4
                + [self.elect, self.crash, self.flush, self.delete, self.catch_up]
            )
            step()
            self.clock.advance(self.rng.randint(1, 300))
        for node in self.nodes:
            self.follow(node, None)

    # --- the leader

    def elect(self) -> None:
        self.leader = self.rng.choice(self.nodes)
        self.epoch += 1
        log = self.leader.log
        log.epochs.assign_unsynced(self.epoch, log.log_end_offset)

    def produce(self) -> None:
        rng, log = self.rng, self.leader.log
        for _ in range(rng.randint(1, 4)):
            producer = rng.choice([None, 1, 2])
            now_ms = self.clock.now_ms()
            entry = None
            if producer is not None:
                entry = log.producers.active_producers().get(producer)
            is_in_txn = entry is not None and entry.current_txn_first_offset is not None
            if producer is not None and (is_in_txn or rng.random() < 0.2) and rng.random() < 0.4:
                marker = build_end_txn_marker(
                    rng.random() < 0.5,
                    producer_id=producer,
                    producer_epoch=0 if entry is None else entry.producer_epoch,
                    coordinator_epoch=1,
                    timestamp=now_ms,
                )
                log.append_as_leader(marker, self.epoch, origin=AppendOrigin.COORDINATOR)
                continue
            sizes = [rng.randint(0, 150) for _ in range(rng.randint(1, 3))]
            sequence = None
            if producer is not None:
                next_sequence = 0 if entry is None else entry.last_sequence + 1
                sequence = (producer, 0, next_sequence)
            data = data_batch(
                sizes,
                timestamps=[now_ms] * len(sizes),
                producer=sequence,
                transactional=producer is not None and (is_in_txn or rng.random() < 0.4),
            )
            log.append_as_leader(data, self.epoch)

    def commit(self) -> None:
        log = self.leader.log
        log.update_high_watermark(self.rng.randint(log.high_watermark, log.log_end_offset))

    def delete(self) -> None:
        self.commit()
        log = self.leader.log
        if self.rng.random() < 0.5:
            log.increment_log_start_offset(
                self.rng.randint(log.log_start_offset, log.high_watermark)
            )
        delete_old_segments(log)

    # --- any node

    def flush(self) -> None:
        node = self.rng.choice(self.nodes)
        for log, task in run_maintenance(node.manager):
            task.run()
            log.finish_flush(task)
        if self.rng.random() < 0.5:
            node.log.flush()

    def crash(self) -> None:
        node = self.rng.choice(self.nodes)
        node.crash(self.rng)
        self.crashes += 1
        if node is self.leader:
            self.elect()

    def fetch(self) -> None:
        """Some fetches of one follower, which may crash in the middle of an operation."""
        node = self.rng.choice(self.nodes)
        if self.rng.random() < 0.3:
            node.disk.crash_at = node.disk.operations + self.rng.randint(0, 12)
        try:
            self.follow(node, self.rng.randint(1, 3))
        except SimulatedCrash:
            node.crash(self.rng)
            self.crashes += 1
        node.disk.crash_at = None

    def catch_up(self) -> None:
        self.follow(self.rng.choice(self.nodes), None)

    def follow(self, node: Node, fetches: int | None) -> None:
        """Fetches so many times, or until the follower has everything; then compares."""
        if node is self.leader:
            return
        self.commit()
        service = LogLeader()
        service.lead(KEY, self.leader.log, self.epoch)
        service.cuts_batches = self.rng.random() < 0.5
        machine = FollowerMachine(
            FetcherSettings(node.number, replica_fetch_max_bytes=self.rng.choice([1, 600, 4000])),
            # Without it a follower keeps what the leader has deleted, however different.
            truncates_on_fetch=self.leader.log.log_start_offset > 0 or self.rng.random() < 0.7,
        )
        machine.add(KEY, InitialFetch(TOPIC_ID, self.epoch, CurrentLog(node)))
        for _ in range(200):
            now_ms = self.clock.monotonic_ms()
            request = machine.next_request(now_ms, 1)
            assert request is not None
            assert not machine.failures
            response = service.handle(request)
            for effect in machine.handle_response(request, response, now_ms):
                self.truncations += not isinstance(effect, Append)
                node.perform(machine, effect)
            if fetches is not None:
                fetches -= 1
                if not fetches:
                    return
            elif service.fetched.get(KEY) == self.leader.log.log_end_offset:
                compare(self.leader.log, node.log)
                return
        raise AssertionError("the follower does not catch up")


def compare(leader: Log, follower: Log) -> None:
    assert follower.log_end_offset == leader.log_end_offset
    assert follower.high_watermark == max(leader.high_watermark, follower.log_start_offset)
    assert follower.log_start_offset >= leader.log_start_offset
    start = follower.log_start_offset
    assert batches_from(follower, start) == batches_from(leader, start)
    assert epochs_from(follower, start) == epochs_from(leader, start)
    if start == 0:
        # Otherwise the leader may remember producers and transactions of deleted records.
        assert producers_of(follower) == producers_of(leader)
        end = leader.log_end_offset
        assert follower.aborted_transactions(0, end) == leader.aborted_transactions(0, end)


def batches_from(log: Log, start: int) -> list[StoredBatch]:
    return [batch for batch in contents(log) if batch.next_offset > start]


def epochs_from(log: Log, start: int) -> list[tuple[int, int]]:
    """The epochs with records; a leader has one at its end before the first record, too."""
    entries = log.epochs.entries()
    ends = [entry.start_offset for entry in entries[1:]] + [log.log_end_offset]
    return [
        (entry.epoch, max(entry.start_offset, start))
        for entry, end in zip(entries, ends, strict=False)
        if entry.start_offset < end > start
    ]


def producers_of(log: Log) -> dict[int, ProducerSummary]:
    return {
        producer_id: ProducerSummary.of(entry)
        for producer_id, entry in log.producers.active_producers().items()
    }


def test_followers_end_with_the_bytes_of_their_leader() -> None:
    truncations = crashes = 0
    for seed in range(60):
        history = History(seed)
        try:
            history.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        truncations += history.truncations
        crashes += history.crashes
    assert truncations > 60
    assert crashes > 60
