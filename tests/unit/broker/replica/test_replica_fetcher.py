"""Replica fetchers over real logs: they copy, truncate by epoch, and isolate what fails."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.config.topic_config import TopicConfig
from penstock.broker.replica import replica_fetcher, replica_fetcher_manager
from penstock.broker.replica.log_flusher import LogFlusher
from penstock.broker.replica.replica import Replica
from penstock.broker.replica.replica_fetcher_manager import ReplicaFetcherManager
from penstock.broker.workers import Workers
from penstock.core.errors import ErrorCode, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.core.system_clock import SystemClock
from penstock.net.client.errors import DisconnectError
from penstock.protocol.messages.fetch import FetchRequest
from penstock.protocol.messages.list_offsets import ListOffsetsRequest
from penstock.records.batch import split
from penstock.replication.follower import FollowerMachine
from penstock.replication.follower_session import FetcherSettings
from penstock.replication.partition import Partition
from penstock.replication.throttle import ReplicationQuota
from penstock.storage.disk import Disk, OsDisk
from penstock.storage.log.log import Log
from penstock.storage.log.results import FetchIsolation
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_manager import LogManager
from tests.support.broker.log_leader import TOPIC, TOPIC_ID, LeaderClient, LogLeader
from tests.support.storage.gated_disk import GatedDisk
from tests.support.storage.log_dirs import SMALL
from tests.support.storage.logs import batch, filler

ME, LEADER = 1, 2
P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


def contents(log: Log) -> bytes:
    """The bytes of all batches in a log."""
    data = b""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        records = log.read(offset, 1 << 20, FetchIsolation.LOG_END).records
        if records is None:
            break
        data += records.read()
        offset = split(data)[-1][1].next_offset
    return data


class Cluster:
    """A leader broker and this broker, which follows it."""

    def __init__(self, path: Path, disk: Disk, num_fetchers: int, rate: int | None) -> None:
        self.clock = SystemClock()
        self.leader_logs = LogManager(OsDisk(), [str(path / "leader")], self.clock)
        self.leader_logs.startup(lambda topic: SMALL, node_id=LEADER)
        self.dirs = [str(path / "follower"), str(path / "other")]
        self.logs = LogManager(disk, self.dirs, self.clock)
        self.logs.startup(lambda topic: SMALL, node_id=ME)
        self.leader = LogLeader()
        self.clients: list[LeaderClient] = []
        self.workers = Workers()
        self.replicas: dict[TopicPartition, Replica] = {}
        self.manager = ReplicaFetcherManager(
            FetcherSettings(ME, replica_fetch_backoff_ms=10),
            num_fetchers=num_fetchers,
            new_client=self.new_client,
            logs=self.logs,
            workers=self.workers,
            log_flusher=LogFlusher(self.workers),
            clock=self.clock,
            broker_epoch=lambda: 77,
            quota=None if rate is None else ReplicationQuota(rate=rate),
        )

    def new_client(self, client_id: str) -> LeaderClient:
        self.clients.append(LeaderClient(self.leader))
        return self.clients[-1]

    def leader_log(self, key: TopicPartition = P0, epoch: int = 0) -> Log:
        log = self.leader_logs.get_or_create(key, SMALL, TOPIC_ID)
        self.leader.lead(key, log, epoch)
        return log

    def replica(self, key: TopicPartition = P0, config: LogConfig = SMALL) -> Replica:
        if key not in self.replicas:
            log = self.logs.get_or_create(key, config, TOPIC_ID)
            topic_config = TopicConfig(config, 1, False, (), ())
            self.replicas[key] = Replica(Partition(key, TOPIC_ID, ME), log, topic_config)
        return self.replicas[key]

    def follow(self, key: TopicPartition = P0, epoch: int = 0, leader: int = LEADER) -> Replica:
        replica = self.replica(key)
        replica.apply_state(
            leader=leader,
            leader_epoch=epoch,
            partition_epoch=replica.partition.partition_epoch + 1,
            isr=(ME, LEADER),
            replicas=(ME, LEADER),
        )
        self.manager.add([replica])
        return replica

    async def caught_up(self, *keys: TopicPartition) -> None:
        for key in keys or (P0,):
            leader, follower = self.leader.logs[key], self.replicas[key].log
            await until(
                lambda follower=follower, leader=leader: (  # type: ignore[misc]
                    follower.log_end_offset == leader.log_end_offset
                    and follower.high_watermark == leader.high_watermark
                    and follower.log_start_offset == leader.log_start_offset
                )
            )
            assert contents(follower) == contents(leader)

    async def close(self) -> None:
        await self.manager.close()
        self.workers.close()
        self.logs.shutdown()
        self.leader_logs.shutdown()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.002)


@asynccontextmanager
async def running(
    path: Path, disk: Disk | None = None, num_fetchers: int = 1, rate: int | None = None
) -> AsyncIterator[Cluster]:
    cluster = Cluster(path, disk or OsDisk(), num_fetchers, rate)
    try:
        yield cluster
    finally:
        await cluster.close()


def append(log: Log, count: int, epoch: int = 0) -> None:
    for _ in range(count):
        log.append_as_leader(filler(100), epoch)
    log.update_high_watermark(log.log_end_offset)


def test_a_follower_copies_the_log_and_the_high_watermark(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as cluster:
            leader = cluster.leader_log()
            append(leader, 35)
            replica = cluster.follow()
            await cluster.caught_up()
            assert replica.log.epochs.entries() == leader.epochs.entries()
            append(leader, 5)
            leader.update_high_watermark(37)
            await cluster.caught_up()
            assert cluster.manager.lag(P0) == 0
            assert not cluster.manager.failures
            # The leader knows that everything is stored here.
            await until(lambda: cluster.leader.fetched[P0] == 40)

    asyncio.run(work())


def test_requests_have_the_broker_epoch_and_use_a_session(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as cluster:
            append(cluster.leader_log(P0), 3)
            append(cluster.leader_log(P1), 3)
            cluster.follow(P0)
            cluster.follow(P1)
            await cluster.caught_up(P0, P1)
            append(cluster.leader.logs[P1], 3)
            await cluster.caught_up(P0, P1)
            requests = [r for r in cluster.clients[0].requests if isinstance(r, FetchRequest)]
            assert requests[0].replica_state.replica_id == ME
            assert requests[0].replica_state.replica_epoch == 77
            assert requests[0].session_epoch == 0
            assert requests[-1].session_epoch > 1
            last = [r for r in requests if r.topics][-1]
            assert [p.partition for topic in last.topics for p in topic.partitions] == [1]

    asyncio.run(work())


def test_other_work_runs_between_the_steps_of_a_large_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_fetcher, "_LARGE_REQUEST", 0)
    steps: list[tuple[int, str]] = []
    turn = 0

    def note(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **options: Any) -> Any:
            result = function(*arguments, **options)
            if result is not None:
                steps.append((turn, name))
            return result

        return noted

    for name in ("next_request", "handle_response"):
        monkeypatch.setattr(FollowerMachine, name, note(name, getattr(FollowerMachine, name)))
    monkeypatch.setattr(LeaderClient, "request", note("request", LeaderClient.request))

    def count() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(count)

    async def work() -> None:
        count()
        async with running(tmp_path) as cluster:
            append(cluster.leader_log(P0), 3)
            cluster.follow(P0)
            await cluster.caught_up(P0)
            append(cluster.leader.logs[P0], 3)
            await cluster.caught_up(P0)

    asyncio.run(work())
    first = steps[:4]
    assert [name for _, name in first] == [
        *("next_request", "request", "handle_response", "next_request")
    ]
    assert len({turn for turn, _ in first}) == len(first)


def test_a_replica_that_diverged_truncates_by_epoch(tmp_path: Path) -> None:
    """R4: its own records of epochs 1 and 2 give way to the leader's of epoch 3."""

    async def work() -> None:
        async with running(tmp_path) as cluster:
            leader = cluster.leader_log()
            append(leader, 12)
            replica = cluster.follow()
            await cluster.caught_up()
            await cluster.manager.remove([P0])
            for epoch in (1, 2):
                append(replica.log, 7, epoch)
            leader = cluster.leader_log(epoch=3)
            append(leader, 4, epoch=3)
            cluster.follow(epoch=3)
            await cluster.caught_up()
            assert replica.log.epochs.entries() == leader.epochs.entries()

    asyncio.run(work())


def test_a_replica_that_was_away_too_long_starts_at_the_leaders_first_record(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        async with running(tmp_path) as cluster:
            leader = cluster.leader_log()
            append(leader, 5)
            replica = cluster.follow()
            await cluster.caught_up()
            await cluster.manager.remove([P0])
            append(leader, 40)
            leader.increment_log_start_offset(30)
            cluster.follow()
            await cluster.caught_up()
            assert replica.log.log_start_offset == 30
            requests = cluster.clients[-1].requests
            assert sum(isinstance(request, ListOffsetsRequest) for request in requests) == 2

    asyncio.run(work())


def test_a_leader_that_starts_within_a_batch(tmp_path: Path) -> None:
    """DeleteRecords up to the middle of a batch: the first batch starts before the log does."""

    async def work() -> None:
        async with running(tmp_path) as cluster:
            leader = cluster.leader_log()
            for _ in range(4):
                leader.append_as_leader(batch(b"a", b"b", b"c"), 0)
            leader.update_high_watermark(12)
            leader.increment_log_start_offset(7)
            replica = cluster.follow()
            await cluster.caught_up()
            assert replica.log.log_start_offset == 7
            assert replica.log.local.segments.first.base_offset == 6

    asyncio.run(work())


def test_deleted_records_are_deleted_here_too(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as cluster:
            leader = cluster.leader_log()
            append(leader, 20)
            cluster.follow()
            await cluster.caught_up()
            leader.increment_log_start_offset(11)
            await cluster.caught_up()
            requests = cluster.clients[0].requests

            def is_reported() -> bool:
                return any(
                    partition.log_start_offset == 11
                    for request in requests
                    if isinstance(request, FetchRequest)
                    for topic in request.topics
                    for partition in topic.partitions
                )

            await until(is_reported)

    asyncio.run(work())


def test_responses_may_end_with_an_incomplete_batch(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as cluster:
            cluster.leader.cuts_batches = True
            append(cluster.leader_log(), 35)
            cluster.follow()
            await cluster.caught_up()

    asyncio.run(work())


def test_it_continues_when_the_leader_returns(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as cluster:
            leader = cluster.leader_log()
            append(leader, 3)
            cluster.follow()
            await cluster.caught_up()
            cluster.clients[0].error = DisconnectError("gone")
            append(leader, 3)
            count = len(cluster.clients[0].requests)
            await until(lambda: len(cluster.clients[0].requests) > count + 2)
            cluster.clients[0].error = None
            await cluster.caught_up()

    asyncio.run(work())


def test_a_lost_session_starts_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as cluster:
            leader = cluster.leader_log()
            append(leader, 3)
            cluster.follow()
            await cluster.caught_up()
            cluster.leader.sessions._sessions.clear()
            append(leader, 3)
            await cluster.caught_up()

    asyncio.run(work())


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_errors_of_one_partition_do_not_stop_the_others(tmp_path: Path, code: ErrorCode) -> None:
    async def work() -> None:
        async with running(tmp_path) as cluster:
            append(cluster.leader_log(P0), 3)
            append(cluster.leader_log(P1), 3)
            cluster.leader.errors[P0] = code
            cluster.follow(P0)
            cluster.follow(P1)
            await cluster.caught_up(P1)
            assert cluster.replicas[P0].log.log_end_offset == 0
            del cluster.leader.errors[P0]
            await cluster.caught_up(P0, P1)

    asyncio.run(work())


def test_a_fenced_partition_waits_for_its_next_epoch(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as cluster:
            append(cluster.leader_log(epoch=4), 3, 4)
            cluster.follow(epoch=3)
            await until(lambda: P0 in cluster.manager.failures)
            assert cluster.replicas[P0].log.log_end_offset == 0
            cluster.follow(epoch=4)
            await cluster.caught_up()
            assert not cluster.manager.failures

    asyncio.run(work())


def test_a_log_that_failed_is_given_up_and_the_others_continue(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as cluster:
            append(cluster.leader_log(P0), 3)
            append(cluster.leader_log(P1), 3)
            cluster.follow(P0)
            cluster.follow(P1)
            await cluster.caught_up(P0, P1)
            cluster.replicas[P0].log.guard.stop(KafkaStorageError("broken"))
            for key in (P0, P1):
                append(cluster.leader.logs[key], 3)
            await cluster.caught_up(P1)
            await until(lambda: P0 in cluster.manager.failures)

    asyncio.run(work())


def test_nothing_is_appended_after_a_removal(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as cluster:
            leader = cluster.leader_log()
            append(leader, 3)
            replica = cluster.follow()
            await cluster.caught_up()
            append(leader, 3)
            await cluster.manager.remove([P0])
            end = replica.log.log_end_offset
            await asyncio.sleep(0.03)
            assert replica.log.log_end_offset == end
            assert cluster.clients[0].is_closed

    asyncio.run(work())


def test_a_removal_waits_for_a_truncation(tmp_path: Path) -> None:
    async def work() -> None:
        disk = GatedDisk()
        disk.gate.set()
        async with running(tmp_path, disk) as cluster:
            replica = cluster.replica()
            append(replica.log, 9, 1)
            append(cluster.leader_log(epoch=2), 3, 2)
            disk.gate.clear()
            disk.reached.clear()
            cluster.follow(epoch=2)
            await until(disk.reached.is_set)
            removal = asyncio.create_task(cluster.manager.remove([P0]))
            await asyncio.sleep(0.02)
            assert not removal.done()
            disk.gate.set()
            await removal
            assert replica.log.log_end_offset == 0
            await asyncio.sleep(0.02)
            assert replica.log.log_end_offset == 0

    asyncio.run(work())


def test_a_removal_does_not_wait_for_a_disk_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates of all other partitions wait for it. The partition is reported."""
    monkeypatch.setattr(replica_fetcher_manager, "TRUNCATION_S", 0.1)

    async def work() -> None:
        disk = GatedDisk()
        disk.gate.set()
        async with running(tmp_path, disk) as cluster:
            replica = cluster.replica()
            append(replica.log, 9, 1)
            append(cluster.leader_log(epoch=2), 3, 2)
            disk.gate.clear()
            disk.reached.clear()
            cluster.follow(epoch=2)
            await until(disk.reached.is_set)
            assert await cluster.manager.remove([P0]) == {P0}
            monkeypatch.setattr(replica_fetcher_manager, "TRUNCATION_S", 60.0)
            assert await cluster.manager.remove([P0]) == {P0}, "the second time it is known"
            async with asyncio.timeout(10):
                await cluster.manager.close()
            disk.gate.set()
            await until(lambda: not cluster.manager._operations)
            assert await cluster.manager.remove([P0]) == frozenset()
            assert replica.log.log_end_offset == 0

    asyncio.run(work())


def test_a_stop_does_not_wait_for_a_disk_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_fetcher_manager, "TRUNCATION_S", 0.1)

    async def work() -> None:
        disk = GatedDisk()
        disk.gate.set()
        async with running(tmp_path, disk) as cluster:
            append(cluster.replica().log, 9, 1)
            append(cluster.leader_log(epoch=2), 3, 2)
            disk.gate.clear()
            disk.reached.clear()
            cluster.follow(epoch=2)
            await until(disk.reached.is_set)
            try:
                async with asyncio.timeout(10):
                    await cluster.manager.close()
                assert cluster.manager._operations
            finally:
                disk.gate.set()
            await until(lambda: not cluster.manager._operations)

    asyncio.run(work())


def test_a_new_epoch_during_a_truncation_begins_after_it(tmp_path: Path) -> None:
    async def work() -> None:
        disk = GatedDisk()
        disk.gate.set()
        async with running(tmp_path, disk) as cluster:
            replica = cluster.replica()
            append(replica.log, 9, 1)
            leader = cluster.leader_log(epoch=2)
            append(leader, 3, 2)
            disk.gate.clear()
            disk.reached.clear()
            cluster.follow(epoch=2)
            await until(disk.reached.is_set)
            cluster.leader.lead(P0, leader, 3)
            append(leader, 3, 3)
            cluster.follow(epoch=3)
            await asyncio.sleep(0.02)
            disk.gate.set()
            await cluster.caught_up()
            assert replica.log.epochs.entries() == leader.epochs.entries()

    asyncio.run(work())


def test_flush_messages_delays_the_next_fetch(tmp_path: Path) -> None:
    """A fetch from the end says that everything before it is stored, durably if configured."""

    async def work() -> None:
        disk = GatedDisk()
        disk.gate.set()
        async with running(tmp_path, disk) as cluster:
            cluster.replica(config=replace(SMALL, flush_messages=1))
            append(cluster.leader_log(), 3)
            disk.gate.clear()
            disk.reached.clear()
            replica = cluster.follow()
            await until(disk.reached.is_set)
            await asyncio.sleep(0.02)
            assert replica.log.log_end_offset == 3
            assert cluster.leader.fetched[P0] == 0
            disk.gate.set()
            await until(lambda: cluster.leader.fetched[P0] == 3)
            assert replica.log.recovery_point == 3

    asyncio.run(work())


def test_partitions_are_spread_over_fetchers_as_in_kafka(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path, num_fetchers=3) as cluster:
            # Utils.abs(31 * "t".hashCode() + partition) % 3, with a hash code of 116.
            assert [cluster.manager.fetcher_id(TopicPartition(TOPIC, n)) for n in range(4)] == [
                (31 * 116 + n) % 3 for n in range(4)
            ]
            # In Java the sum overflows to -1207109189: its absolute value counts.
            assert cluster.manager.fetcher_id(TopicPartition("orders", 0)) == 2

    asyncio.run(work())


def test_the_number_of_fetchers_may_change(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as cluster:
            for key in (P0, P1):
                append(cluster.leader_log(key), 3)
                cluster.follow(key)
            await cluster.caught_up(P0, P1)
            assert len(cluster.clients) == 1
            cluster.manager.resize(2)
            for key in (P0, P1):
                append(cluster.leader.logs[key], 3)
            await cluster.caught_up(P0, P1)
            assert len(cluster.clients) == 2
            cluster.manager.resize(1)
            for key in (P0, P1):
                append(cluster.leader.logs[key], 3)
            await cluster.caught_up(P0, P1)

    asyncio.run(work())


def test_a_throttled_replica_that_lags_waits(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path, rate=1500) as cluster:
            leader = cluster.leader_log()
            append(leader, 200)
            replica = cluster.replica()
            replica.config = TopicConfig(SMALL, 1, False, (), ("0:1",))
            cluster.follow()
            await until(lambda: replica.log.log_end_offset > 10)
            await asyncio.sleep(0.1)
            assert replica.log.log_end_offset < 60
            cluster.manager.quota.rate = 10**9
            await cluster.caught_up()

    asyncio.run(work())


def test_a_partition_without_leader_is_not_fetched(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as cluster:
            append(cluster.leader_log(), 3)
            cluster.follow()
            await cluster.caught_up()
            cluster.follow(epoch=1, leader=-1)
            append(cluster.leader.logs[P0], 3)
            await until(lambda: cluster.clients[0].is_closed)
            assert cluster.replicas[P0].log.log_end_offset == 3

    asyncio.run(work())


def test_a_follower_moves_between_log_directories_while_it_replicates(tmp_path: Path) -> None:
    """The fetcher continues with the new log, and a truncation makes the move start again."""

    async def move(cluster: Cluster) -> None:
        replica = cluster.replicas[P0]
        target = next(path for path in cluster.dirs if not replica.log.directory.startswith(path))
        operation = cluster.logs.begin_move(P0, target)
        assert operation is not None
        has_ended = has_replaced_log = False
        while not has_ended:
            has_ended = cluster.logs.advance_move(operation)
            if operation.is_done and not has_replaced_log:
                replica.replace_log(cluster.logs.get(P0))
                cluster.manager.restart(P0)
                has_replaced_log = True
            if not has_ended:
                await cluster.workers.run(cluster.workers.flush, operation.run)
        assert replica.log.directory.startswith(target)

    async def work() -> None:
        async with running(tmp_path) as cluster:
            leader = cluster.leader_log()
            append(leader, 30)
            replica = cluster.follow()
            await until(lambda: replica.log.log_end_offset > 0)
            moving = asyncio.create_task(move(cluster))
            for _ in range(20):
                append(leader, 3)
                await asyncio.sleep(0.002)
            await moving
            await cluster.caught_up()
            await cluster.manager.remove([P0])
            append(replica.log, 7, 1)
            moving = asyncio.create_task(move(cluster))
            append(cluster.leader_log(epoch=2), 4, 2)
            cluster.follow(epoch=2)
            await moving
            await cluster.caught_up()

    asyncio.run(work())


def test_fetchers_that_wait_can_be_closed(tmp_path: Path) -> None:
    """The removal wakes the fetcher up just when it is cancelled."""

    async def work() -> None:
        for _ in range(5):
            async with running(tmp_path) as cluster:
                append(cluster.leader_log(), 3)
                cluster.leader.errors[P0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
                cluster.follow()
                await until(lambda: bool(cluster.clients[0].requests))
                await asyncio.sleep(0.002)
                async with asyncio.timeout(60):
                    await cluster.manager.close()

    asyncio.run(work())


def test_a_broker_that_stops_fetches_in_no_later_leader_epoch(tmp_path: Path) -> None:
    """The leaders of the next epochs must not wait for it."""

    async def work() -> None:
        async with running(tmp_path) as cluster:
            for key in (P0, P1):
                append(cluster.leader_log(key), 3)
            cluster.follow(P0)
            await cluster.caught_up()
            cluster.manager.begin_shutdown()
            append(cluster.leader_log(P0), 2)
            await cluster.caught_up()
            await cluster.manager.remove([P0])
            cluster.follow(P0, epoch=1)
            cluster.follow(P1)
            assert cluster.manager.lag(P0) is None
            assert cluster.manager.lag(P1) is None

    asyncio.run(work())
