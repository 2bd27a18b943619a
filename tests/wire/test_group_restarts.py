"""Groups of both types after stops and kills of the broker, and with damaged logs (C3, S5, S7)."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.broker import Broker
from penstock.coordinator.partitioning import partition_for
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.core.internal_topics import ADMIN_CLIENT_ID, GROUP_METADATA_TOPIC
from penstock.protocol.enums import ConfigResourceType
from penstock.protocol.stored.offsets import OffsetCommitKey
from penstock.protocol.versioned import encode_record_key
from penstock.records.batch import HEADER_SIZE, split
from tests.support.broker.faults import watching
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.broker.process import PenstockBroker
from tests.support.coordinator.group_client import (
    GROUP_SETTINGS,
    commit,
    committed,
    described,
    find_group,
    listed,
    wait_until,
)
from tests.support.coordinator.group_members import (
    LEAVE_FOR_NOW,
    ClassicMember,
    ConsumerMember,
    owned_by,
    reconcile,
)
from tests.support.coordinator.transaction_client import uncommitted
from tests.support.protocol.admin import alter
from tests.support.protocol.requests import batch_of, make_topic, send_batch

SETTINGS = {
    **GROUP_SETTINGS,
    "offsets.topic.num.partitions": "2",
    "log.cleaner.backoff.ms": "10",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
PARTITIONS = [TopicPartition(GROUP_METADATA_TOPIC, index) for index in range(2)]


class Groups:
    """Groups of both types with members, in every state that is stored in records."""

    def __init__(self, client: WireClient) -> None:
        self.topic = make_topic(client, "t", 4)
        for name in ("new", "moving", "static", "old", "mixed", "tool"):
            find_group(client, name)
        self.new = [ConsumerMember(client, "new", name, names=["t"]).joined() for name in "ab"]
        reconcile(*self.new)
        self.regex = ConsumerMember(client, "pattern", "r", regex="t|u").joined()
        wait_until(lambda: self.regex.obey() and bool(self.regex.assigned))
        # One member must revoke partitions and has not done so yet.
        self.moving = [
            ConsumerMember(client, "moving", name, names=["t"]).joined() for name in "ab"
        ]
        self.moving[0].beat({self.topic: [0, 1, 2, 3]})
        static_member = ConsumerMember(client, "static", "s", names=["t"], instance="i").joined()
        static_member.leave(LEAVE_FOR_NOW)
        self.old = ClassicMember(client, "old", ["t"]).joined({"t": [0, 1, 2, 3]})
        self.mixed = ClassicMember(client, "mixed", ["t"]).joined({"t": [0, 1, 2, 3]})
        self.upgraded = ConsumerMember(client, "mixed", "m", names=["t"]).joined()
        a = self.new[0]
        assert commit(client, "new", {("t", 0): 5}, member_id="a", epoch=a.epoch) == [0]
        membership: dict[str, Any] = {
            "member_id": self.old.member_id,
            "epoch": self.old.generation,
        }
        assert commit(client, "old", {("t", 1): 6}, **membership) == [0]
        assert commit(client, "tool", {("t", 2): 7}) == [0]
        alter(client, ConfigResourceType.GROUP, "new", {"consumer.session.timeout.ms": "50000"})

    def visible_state(self, client: WireClient) -> dict[str, Any]:
        """Returns the state of the groups that tools can see."""
        names = ("new", "pattern", "moving", "static", "mixed")
        return {
            "groups": listed(client),
            "described": {name: described(client, name) for name in names},
            "offsets": {name: committed(client, name) for name in ("new", "old", "tool")},
        }

    def continue_members(self, client: WireClient) -> None:
        """Continues over another connection, with the same member ids and epochs."""
        for consumer in [*self.new, self.regex, *self.moving, self.upgraded]:
            consumer.client = client
        for classic in (self.old, self.mixed):
            classic.client = client
        epochs = [member.epoch for member in self.new]
        reconcile(*self.new)
        assert [member.epoch for member in self.new] == epochs
        assert owned_by(*self.new) == {self.topic: [0, 1, 2, 3]}
        a = self.new[0]
        assert commit(client, "new", {("t", 0): 15}, member_id="a", epoch=a.epoch) == [0]
        assert self.regex.obey().member_epoch == self.regex.epoch
        reconcile(*self.moving)
        assert owned_by(*self.moving) == {self.topic: [0, 1, 2, 3]}
        assert len(self.moving[1].assigned[self.topic]) == 2
        returned = ConsumerMember(client, "static", "s2", names=["t"], instance="i").joined()
        assert returned.assigned == {self.topic: [0, 1, 2, 3]}
        assert self.old.beat() is ErrorCode.NONE
        membership: dict[str, Any] = {
            "member_id": self.old.member_id,
            "epoch": self.old.generation,
        }
        assert commit(client, "old", {("t", 1): 16}, **membership) == [0]
        for _ in range(3):
            if self.mixed.beat() is ErrorCode.REBALANCE_IN_PROGRESS:
                assert self.mixed.join().error_code == 0
                assert self.mixed.sync().error_code == 0
            self.upgraded.obey()
        result = self.mixed.assigned["t"] + self.upgraded.assigned[self.topic]
        assert sorted(result) == [0, 1, 2, 3]
        assert committed(client, "old") == {("t", 1): 16}
        assert committed(client, "tool") == {("t", 2): 7}


def test_groups_continue_after_a_stop(tmp_path: Path) -> None:
    with watching():
        with running_broker(tmp_path, SETTINGS) as broker, broker.connect() as client:
            groups = Groups(client)
            before = groups.visible_state(client)
        with running_broker(tmp_path, SETTINGS) as broker, broker.connect() as client:
            find_group(client, "new")
            find_group(client, "old")
            assert groups.visible_state(client) == before
            groups.continue_members(client)


def test_groups_continue_after_a_kill(tmp_path: Path) -> None:
    """S7: with `kill -9`, nothing is notified."""

    def connect() -> WireClient:
        host, port = broker.bootstrap.rsplit(":", 1)
        return WireClient((host, int(port)))

    with PenstockBroker(tmp_path, SETTINGS) as broker:
        with connect() as client:
            groups = Groups(client)
            before = groups.visible_state(client)
        broker.kill()
        broker.start()
        with connect() as client:
            for name in before["groups"]:
                find_group(client, name)
            assert groups.visible_state(client) == before
            groups.continue_members(client)
    assert "Traceback" not in broker.log.read_text()


def test_groups_are_loaded_from_a_compacted_log(tmp_path: Path) -> None:
    """S5: the records that remain in `__consumer_offsets` are sufficient."""
    with watching():
        with running_broker(tmp_path, SETTINGS) as broker, broker.connect() as client:
            groups = Groups(client)
            for number in range(30):
                commit(client, "tool", {("t", 2): number})
                short = ConsumerMember(client, "short", f"m{number}", names=["t"]).joined()
                short.leave()
            commit(client, "tool", {("t", 2): 7})
            before = groups.visible_state(client)
            before_cleaning = record_count(client)
            for partition in PARTITIONS:
                clean(broker, partition)
            assert record_count(client) < before_cleaning / 2
        with running_broker(tmp_path, SETTINGS) as broker, broker.connect() as client:
            for name in before["groups"]:
                find_group(client, name)
            assert groups.visible_state(client) == before
            groups.continue_members(client)


def record_count(client: WireClient) -> int:
    return sum(len(uncommitted(client, *partition)) for partition in PARTITIONS)


def clean(broker: RunningBroker, partition: TopicPartition) -> None:
    """Cleans the partition up to its current end."""

    def roll(inside: Broker) -> int:
        log = inside.replicas.find(*partition).log
        log.roll()
        return log.log_end_offset

    end = broker.call(roll)
    deadline = time.monotonic() + 15
    while (broker.call(lambda inside: inside.cleaner.first_dirty_offset(partition)) or 0) < end:
        assert time.monotonic() < deadline, "the log is not cleaned"
        time.sleep(0.01)


# --- damage


@contextmanager
def warnings_of_groups() -> Iterator[list[str]]:
    """Collects the warnings of the coordinator."""
    result: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            result.append(record.getMessage())

    logger, collector = logging.getLogger("penstock.broker"), Collector(logging.WARNING)
    logger.addHandler(collector)
    try:
        yield result
    finally:
        logger.removeHandler(collector)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (b"\x00\x63what", b"", "type 99"),
        (b"\x00", b"x", "cannot be read"),
        (encode_record_key(OffsetCommitKey("tool", "t", 2)), b"\x00\x04\x00", "cannot be read"),
        (encode_record_key(OffsetCommitKey("tool", "t", 2)), b"\x00\x63\x00", "cannot be read"),
    ],
    ids=["unknown type", "short key", "short value", "unknown version"],
)
def test_an_unreadable_record_is_skipped(
    tmp_path: Path, key: bytes, value: bytes, message: str
) -> None:
    with watching():
        with (
            running_broker(tmp_path, SETTINGS) as broker,
            broker.connect(client_id=ADMIN_CLIENT_ID) as client,
        ):
            groups = Groups(client)
            before = groups.visible_state(client)
            batch = batch_of(value, key=key, timestamp=time.time_ns() // 1_000_000)
            for partition in range(2):
                response = send_batch(client, GROUP_METADATA_TOPIC, batch, partition=partition)
                assert response.error_code == 0
        with (
            warnings_of_groups() as warnings,
            running_broker(tmp_path, SETTINGS) as broker,
            broker.connect() as client,
        ):
            for name in before["groups"]:
                find_group(client, name)
            assert groups.visible_state(client) == before
            assert len(warnings) == 2
            assert all(
                message in warning and GROUP_METADATA_TOPIC in warning for warning in warnings
            )
            groups.continue_members(client)


def test_a_corrupt_batch_is_skipped(tmp_path: Path) -> None:
    """Only the commit in it is lost, and no other offset is returned."""
    partition = partition_for("tool", 2)
    with watching():
        with running_broker(tmp_path, SETTINGS) as broker, broker.connect() as client:
            groups = Groups(client)
            before = groups.visible_state(client)
            commit(client, "tool", {("t", 2): 8})
        (path,) = (tmp_path / "data" / f"{GROUP_METADATA_TOPIC}-{partition}").glob("*.log")
        data = bytearray(path.read_bytes())
        position, header = split(data)[-1]
        data[position + HEADER_SIZE + 40] ^= 1
        path.write_bytes(data)
        with (
            warnings_of_groups() as warnings,
            running_broker(tmp_path, SETTINGS) as broker,
            broker.connect() as client,
        ):
            for name in before["groups"]:
                find_group(client, name)
            assert groups.visible_state(client) == before
            assert len(warnings) == 1
            assert f"offset {header.base_offset}" in warnings[0]
            groups.continue_members(client)
