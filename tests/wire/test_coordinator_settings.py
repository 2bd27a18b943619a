"""Broker settings for coordinators: durability, protocols, compression, clocks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.broker import Broker
from penstock.core.errors import ErrorCode
from penstock.core.ids import TimestampMs
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.records.batch import split
from penstock.records.compress import Compression
from penstock.storage.disk import OsFile
from penstock.storage.log.log import Log
from penstock.storage.log.results import FetchIsolation
from tests.support.broker.in_process import RunningBroker, running_broker
from tests.support.coordinator.group_client import (
    GROUP_SETTINGS,
    MovedClock,
    commit,
    committed,
    find_group,
)
from tests.support.coordinator.group_members import ClassicMember, ConsumerMember
from tests.support.coordinator.transaction_client import Generation, TxnProducer
from tests.support.protocol.requests import make_topic

ONE_PARTITION = {**GROUP_SETTINGS, "offsets.topic.num.partitions": "1"}
DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def durable_broker(tmp_path: Path) -> Iterator[RunningBroker]:
    settings = {
        **ONE_PARTITION,
        "transaction.state.log.num.partitions": "1",
        "log.flush.interval.messages": "1",
    }
    with running_broker(tmp_path, settings) as broker:
        yield broker


def log_of(broker: RunningBroker, topic: str) -> Log:
    return broker.call(lambda inside: inside.replicas.find(topic, 0).log)


def test_responses_are_sent_after_the_flush(durable_broker: RunningBroker) -> None:
    """S6: `log.flush.interval.messages=1` applies to groups and transactions."""
    with durable_broker.connect() as client:
        make_topic(client, "t")
        find_group(client, "g")
        offsets = log_of(durable_broker, "__consumer_offsets")
        for number in range(5):
            assert commit(client, "g", {("t", 0): number}) == [ErrorCode.NONE]
            assert offsets.recovery_point == offsets.log_end_offset == number + 1
        producer = TxnProducer.started(client, "id", Generation.V2)
        transactions = log_of(durable_broker, "__transaction_state")
        for _ in range(3):
            producer.write("t", b"x")
            before = transactions.log_end_offset
            assert transactions.recovery_point == before
            producer.commit()
            assert transactions.recovery_point > before


def test_a_failed_flush_causes_an_error_response(
    durable_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with durable_broker.connect() as client:
        make_topic(client, "t")
        find_group(client, "g")
        assert commit(client, "g", {("t", 0): 1}) == [ErrorCode.NONE]

        def fail_sync(_: OsFile) -> None:
            raise OSError(5, "the disk is broken")

        with monkeypatch.context() as patch:
            patch.setattr(OsFile, "sync", fail_sync)
            codes = commit(client, "g", {("t", 0): 2})
        assert codes in ([ErrorCode.NOT_COORDINATOR], [ErrorCode.COORDINATOR_NOT_AVAILABLE])


class WallClock(MovedClock):
    """A wall clock that was changed; the monotonic clock is not affected."""

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()


def test_sessions_do_not_depend_on_the_wall_clock(tmp_path: Path) -> None:
    """C3: applies to classic and consumer members."""
    with running_broker(tmp_path, ONE_PARTITION) as broker, broker.connect() as client:
        make_topic(client, "t")
        find_group(client, "new")
        member = ConsumerMember(client, "new", "m", names=["t"]).joined()
        classic = ClassicMember(client, "old", topics=["t"]).joined()

        def advance_wall_clock(inside: Broker) -> TimestampMs:
            clock = inside.groups._clock = WallClock(inside.groups._clock)
            clock.ahead_ms = DAY_MS
            inside.groups._fire_due_timers()
            return clock.now_ms()

        broker.call(advance_wall_clock)
        assert member.beat().error_code == 0
        assert classic.beat() == ErrorCode.NONE


def test_the_consumer_protocol_can_be_disabled(tmp_path: Path) -> None:
    settings = {**ONE_PARTITION, "group.coordinator.rebalance.protocols": "classic"}
    with running_broker(tmp_path, settings) as broker, broker.connect() as client:
        make_topic(client, "t")
        find_group(client, "g")
        request = ConsumerGroupHeartbeatRequest("g", "m", 0, subscribed_topic_names=["t"])
        response = client.request(request, 1)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "group.coordinator.rebalance.protocols" in response.error_message


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
def test_offset_commits_can_be_compressed(tmp_path: Path, codec: Compression) -> None:
    """P6."""
    settings = {**ONE_PARTITION, "offsets.topic.compression.codec": str(codec.value)}
    with running_broker(tmp_path, settings) as broker, broker.connect() as client:
        make_topic(client, "t")
        find_group(client, "g")
        assert commit(client, "g", {("t", 0): 7}) == [ErrorCode.NONE]
        log = log_of(broker, "__consumer_offsets")
        records = broker.call(lambda _: log.read(0, 1_000_000, FetchIsolation.LOG_END)).records
        assert records is not None
        assert {header.compression for _, header in split(records.read())} == {codec}
    with running_broker(tmp_path, settings) as broker, broker.connect() as client:
        find_group(client, "g")
        assert committed(client, "g") == {("t", 0): 7}
