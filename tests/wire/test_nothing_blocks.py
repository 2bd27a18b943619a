"""The event loop never waits for the disk.

Every sync, metadata commit, removal of a directory and sleep on the thread of the event loop
fails the test, with its stack. Start and stop are not covered: no client is connected then.
"""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from penstock.broker.broker import Broker
from penstock.controller.broker_updates import PartitionUpdate
from penstock.controller.metadata import Assignment, PartitionRecord
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.storage.log.log import Log
from tests.support.broker.blocking import BlockingCalls, blocking_calls
from tests.support.broker.faults import watching
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.protocol.admin import BROKER, TOPIC, alter
from tests.support.protocol.requests import (
    batch_of,
    make_topic,
    new_producer,
    produce_values,
    send_batch,
)

DEADLINE_S = 15.0
SEGMENT = "1048576"
LARGE_VALUE = b"x" * 400_000
"""Three of these fill a segment."""

SETTINGS = {
    "log.retention.check.interval.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "log.cleaner.backoff.ms": "20",
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "2",
}


class WatchedBroker(NamedTuple):
    broker: RunningBroker
    client: WireClient
    calls: BlockingCalls
    a: str
    b: str

    def log(self, topic: str) -> Log:
        result = self.broker.call(lambda broker: broker.logs.get(TopicPartition(topic, 0)))
        assert result is not None
        return result

    def until(self, condition: Callable[[Broker], bool]) -> None:
        """Waits for an effect of a background task."""
        deadline = time.monotonic() + DEADLINE_S
        while not self.broker.call(condition):
            assert time.monotonic() < deadline, "the condition was not met in time"
            time.sleep(0.01)


def settings(root: Path) -> dict[str, str]:
    return {**SETTINGS, "log.dirs": f"{root / 'a'},{root / 'b'}"}


@pytest.fixture(scope="module")
def calls() -> Iterator[BlockingCalls]:
    with blocking_calls() as result:
        yield result


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, calls: BlockingCalls
) -> Iterator[tuple[RunningBroker, Path]]:
    root = tmp_path_factory.mktemp("watched")
    with watching(), running_broker(root, settings(root)) as running:
        yield running, root


@pytest.fixture
def watched(broker: tuple[RunningBroker, Path], calls: BlockingCalls) -> Iterator[WatchedBroker]:
    running, root = broker
    calls.elsewhere.clear()
    with running.connect() as client, calls.on(running.call(lambda _: threading.get_ident())):
        yield WatchedBroker(running, client, calls, str(root / "a"), str(root / "b"))


def fill(client: WireClient, topic: str, count: int, key: bytes | None = None) -> None:
    for _ in range(count):
        assert send_batch(client, topic, batch_of(LARGE_VALUE, key=key)).error_code == 0


def delete_topic(client: WireClient, topic: str) -> None:
    (result,) = client.request(DeleteTopicsRequest([DeleteTopicState(topic)]), 6).responses
    assert result.error_code == 0


def test_a_sync_on_the_event_loop_is_detected(
    broker: tuple[RunningBroker, Path], calls: BlockingCalls
) -> None:
    running, root = broker
    thread = running.call(lambda _: threading.get_ident())
    with (
        pytest.raises(AssertionError, match=r"fsync on the event loop(?s:.*)sync_directory"),
        calls.on(thread),
    ):
        running.call(lambda broker: broker.logs.disk.sync_directory(str(root)))


def test_produce_roll_and_flush_do_not_block(watched: WatchedBroker) -> None:
    """S3, S6: includes the producer state that is written when a segment is rolled."""
    client = watched.client
    make_topic(client, "rolled", configs={"segment.bytes": SEGMENT})
    producer_id, epoch = new_producer(client)
    for sequence in range(6):
        data = batch_of(LARGE_VALUE, producer=(producer_id, epoch, sequence))
        assert send_batch(client, "rolled", data).error_code == 0
    log = watched.log("rolled")
    assert len(log.local.segments) == 3
    watched.until(lambda _: not log.local.has_unflushed_sealed_segment)
    alter(client, TOPIC, "rolled", {"flush.messages": "1"})
    assert produce_values(client, "rolled", b"durable") == 6
    assert log.recovery_point == 7
    assert "fdatasync" in watched.calls.elsewhere


def test_delete_records_and_retention_do_not_block(watched: WatchedBroker) -> None:
    """S4: deletes segments, and later the epochs in the checkpoint file."""
    client = watched.client
    configs = {"segment.bytes": SEGMENT, "file.delete.delay.ms": "0"}
    make_topic(client, "deleted", configs=configs)
    fill(client, "deleted", 6)
    log = watched.log("deleted")
    deletion = DeleteRecordsTopic("deleted", [DeleteRecordsPartition(0, 3)])
    (response,) = client.request(DeleteRecordsRequest([deletion], 1000), 2).topics
    assert response.partitions[0].low_watermark == 3
    first = log.epochs.earliest_entry
    assert first is not None
    assert first.start_offset == 3, "in memory; the file follows with a flush"
    watched.until(lambda _: log.local.segments.first.base_offset == 2)
    alter(client, TOPIC, "deleted", {"retention.bytes": "0"})
    watched.until(lambda _: log.log_start_offset == 6)
    watched.until(lambda _: not list(Path(log.directory).glob("*.deleted")))


def test_creating_and_deleting_topics_does_not_block(watched: WatchedBroker) -> None:
    """S1: several times with the same name; the directories are removed before the response."""
    client = watched.client
    for n in range(3):
        make_topic(client, "brief", 5)
        assert produce_values(client, "brief", b"%d" % n) == 0
        directories = [
            path for root in (watched.a, watched.b) for path in Path(root).glob("brief-?")
        ]
        assert len(directories) == 5
        delete_topic(client, "brief")
        assert not any(path.exists() for path in directories)
    assert "EmbeddedStore.commit" in watched.calls.elsewhere


def test_compaction_does_not_block(watched: WatchedBroker) -> None:
    """S5: covers the checkpoints and the replacement of segments."""
    client = watched.client
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": SEGMENT,
        "min.cleanable.dirty.ratio": "0.01",
        "file.delete.delay.ms": "0",
    }
    make_topic(client, "compacted", configs=configs)
    fill(client, "compacted", 8, key=b"k")
    log = watched.log("compacted")
    key = TopicPartition("compacted", 0)
    watched.until(lambda broker: broker.cleaner.first_dirty_offset(key) == 6)
    assert log.size < 4 * len(LARGE_VALUE)
    fill(client, "compacted", 4, key=b"k")
    watched.until(lambda broker: broker.cleaner.first_dirty_offset(key) == 10)
    delete_topic(client, "compacted")


def test_a_move_between_log_directories_does_not_block(watched: WatchedBroker) -> None:
    """S1: with a flush per append; to the other directory, back, and with a deletion during it."""
    client = watched.client
    make_topic(client, "moved", configs={"segment.bytes": SEGMENT, "flush.messages": "1"})
    fill(client, "moved", 4)
    source = watched.log("moved").directory.rpartition("/")[0]
    target = watched.b if source == watched.a else watched.a
    offset = 4
    for path in (target, source, target):
        move(client, "moved", path)
        while watched.log("moved").directory != f"{path}/moved-0":
            assert produce_values(client, "moved", b"during") == offset
            offset += 1
    assert watched.log("moved").log_end_offset == offset
    move(client, "moved", source)
    delete_topic(client, "moved")
    assert not [path for root in (source, target) for path in Path(root).glob("moved-0")]
    make_topic(client, "moved")
    assert produce_values(client, "moved", b"again") == 0


def move(client: WireClient, topic: str, path: str) -> None:
    move_request = AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(topic, [0])])
    (result,) = client.request(AlterReplicaLogDirsRequest([move_request]), 2).results
    assert result.partitions[0].error_code == 0


@pytest.mark.parametrize("is_new", [True, False])
def test_replicas_whose_logs_are_missing_do_not_block(watched: WatchedBroker, is_new: bool) -> None:
    """R2: those of a broker that has lost its disks are not new."""
    topic = f"lost-{is_new}"
    updates = [
        PartitionUpdate(
            PartitionRecord(topic, number, 0, 3, (0,), 1, 0), Assignment((0,)), uuid4(), is_new
        )
        for number in range(3)
    ]
    errors = watched.broker.wait(lambda broker: broker.replicas.apply_updates(updates))
    assert set(errors.values()) == {ErrorCode.NONE}
    assert watched.log(topic).log_end_offset == 0
    assert "fsync" in watched.calls.elsewhere


def test_changing_settings_does_not_block(watched: WatchedBroker) -> None:
    make_topic(watched.client, "set")
    alter(watched.client, TOPIC, "set", {"max.message.bytes": "100000"})
    alter(watched.client, BROKER, "0", {"log.cleaner.backoff.ms": "20"})
    alter(watched.client, BROKER, "", {"log.retention.bytes": "1000000000"})
    assert watched.log("set").config.max_message_bytes == 100_000


def test_committing_offsets_does_not_block(watched: WatchedBroker) -> None:
    make_topic(watched.client, "read")
    commit_offsets(watched.client, 5)


def commit_offsets(client: WireClient, offset: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    offsets = OffsetCommitRequestTopic("read", partitions=[OffsetCommitRequestPartition(0, offset)])
    while True:
        client.request(FindCoordinatorRequest(key="g"), 2)
        response = client.request(OffsetCommitRequest("g", topics=[offsets]), 8)
        if response.topics[0].partitions[0].error_code == 0:
            return
        assert time.monotonic() < deadline, response
        time.sleep(0.01)


def test_checkpoints_do_not_block(watched: WatchedBroker) -> None:
    """S7: the background task that stores the high watermarks."""
    make_topic(watched.client, "stored")
    assert produce_values(watched.client, "stored", b"v") == 0
    files = [Path(root) / "replication-offset-checkpoint" for root in (watched.a, watched.b)]
    # Only the directory of the topic is sure to have a checkpoint by then.
    watched.until(
        lambda _: any(file.exists() and b"stored 0 1\n" in file.read_bytes() for file in files)
    )


def test_the_first_append_after_a_restart_does_not_block(
    tmp_path: Path, calls: BlockingCalls
) -> None:
    """R4: they begin a new leader epoch, for clients and for the group coordinator."""
    with running_broker(tmp_path, settings(tmp_path)) as broker, broker.connect() as client:
        make_topic(client, "read")
        assert produce_values(client, "read", b"before") == 0
        commit_offsets(client, 1)
    with (
        running_broker(tmp_path, settings(tmp_path)) as broker,
        broker.connect() as client,
        calls.on(broker.call(lambda _: threading.get_ident())),
    ):
        assert produce_values(client, "read", b"after") == 1
        commit_offsets(client, 2)
