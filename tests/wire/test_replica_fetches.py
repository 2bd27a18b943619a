"""Fetches of followers and of consumers on replicated partitions (R2, R4, C1, KIP-392)."""

import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from penstock.broker.broker import Broker
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.fetch import FetchRequest
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.replication.replica_selector import RACK_AWARE_SELECTOR
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.broker.simulated_followers import (
    FOLLOWERS,
    Follower,
    PendingProduce,
    ReplicatedTopic,
    replicated_topic,
)
from tests.support.protocol.requests import (
    batch_of,
    fetch_partition,
    fetch_request,
    partitions_of,
    values_in,
)

LONG_WAIT_MS = 20_000


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {
        "replica.selector.class": RACK_AWARE_SELECTOR,
        "broker.rack": "a",
        "replica.lag.time.max.ms": "60000",
    }


def produce(client: WireClient, topic: ReplicatedTopic, *values: bytes) -> None:
    for value in values:
        assert PendingProduce(client, topic.name, value, acks=1).result().error_code == 0


def commit(topic: ReplicatedTopic, offset: int) -> None:
    """Has all followers fetch up to an offset."""
    for broker_id in FOLLOWERS:
        with topic.follower(broker_id) as follower:
            assert follower.fetch(offset).error_code == 0
    assert topic.high_watermark == offset


# --- followers


@pytest.mark.parametrize("version", [4, 9, 12, 13, 15, 17])
def test_followers_read_up_to_the_log_end(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    with (
        replicated_topic(broker, client, f"all-{version}") as topic,
        topic.follower(7) as follower,
    ):
        produce(client, topic, b"a", b"b")
        data = follower.fetch(0, version=version)
        assert (data.error_code, data.high_watermark) == (0, 0)
        assert values_in(data) == [b"a", b"b"]
        assert values_in(fetch_partition(client, topic.name)) == []


def test_the_leader_epoch_of_a_follower_is_checked(
    broker: RunningBroker, client: WireClient
) -> None:
    with replicated_topic(broker, client, "epochs") as topic, topic.follower(7) as follower:
        epoch = topic.leader_epoch
        for sent, code in (
            (epoch, ErrorCode.NONE),
            (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
            (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            assert follower.fetch(0, leader_epoch=sent).error_code == code


def test_brokers_without_a_replica_are_refused(broker: RunningBroker, client: WireClient) -> None:
    with replicated_topic(broker, client, "strangers") as topic, topic.follower(9) as stranger:
        assert stranger.fetch(0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        code = stranger.fetch(0, leader_epoch=topic.leader_epoch).error_code
        assert code == ErrorCode.UNKNOWN_LEADER_EPOCH
        topic.set_state(leader=7)
        with topic.follower(8) as follower:
            assert follower.fetch(0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_fetch_of_an_earlier_process_of_the_follower_is_refused(
    broker: RunningBroker, client: WireClient
) -> None:
    """KIP-903: what it had fetched may be lost."""
    with replicated_topic(broker, client, "reborn") as topic, topic.follower(7) as follower:
        produce(client, topic, b"a")

        def register_again(inside: Broker) -> None:
            inside.image.brokers[7] = replace(inside.image.brokers[7], epoch=50)

        broker.call(register_again)
        request = follower.request(1, version=15)
        for epoch, code in ((49, ErrorCode.NOT_LEADER_OR_FOLLOWER), (50, ErrorCode.NONE)):
            request.replica_state.replica_epoch = epoch
            (data,) = partitions_of(follower.client.request(request, 15)).values()
            assert data.error_code == code


def test_a_follower_whose_log_diverges_learns_where(
    broker: RunningBroker, client: WireClient
) -> None:
    """R4."""
    with replicated_topic(broker, client, "diverging") as topic, topic.follower(7) as follower:
        produce(client, topic, b"a", b"b", b"c")
        epoch = topic.leader_epoch
        topic.set_state()
        produce(client, topic, b"d")
        data = follower.fetch(5, last_fetched_epoch=epoch)
        assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (epoch, 3)
        assert not data.records
        assert topic.call(lambda replica: replica.partition.followers[7].log_end_offset) == -1
        data = follower.fetch(3, last_fetched_epoch=epoch)
        assert (data.diverging_epoch.epoch, values_in(data)) == (-1, [b"d"])


def test_a_new_leader_knows_its_epoch_before_the_first_record(
    broker: RunningBroker, client: WireClient
) -> None:
    """R4: a follower with records of a later epoch finds where to truncate."""
    with replicated_topic(broker, client, "first") as topic, topic.follower(7) as follower:
        produce(client, topic, b"a")
        epoch = topic.leader_epoch
        for _ in range(3):
            topic.set_state()
        data = follower.fetch(3, last_fetched_epoch=epoch + 2)
        assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (epoch, 1)


def test_an_offset_outside_of_the_log_says_nothing_about_the_follower(
    broker: RunningBroker, client: WireClient
) -> None:
    with replicated_topic(broker, client, "outside") as topic, topic.follower(7) as follower:
        assert follower.fetch(5).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert topic.call(lambda replica: replica.partition.followers[7].log_end_offset) == -1


def test_an_offset_above_the_log_end_is_refused_after_the_followers_have_fetched(
    broker: RunningBroker, client: WireClient
) -> None:
    """C1: a leader that does not know of its successor must not have consumers reset."""

    def fetch() -> int:
        return int(fetch_partition(client, topic.name, 9).error_code)

    with (
        replicated_topic(broker, client, "above") as topic,
        topic.follower(7) as first,
        topic.follower(8) as second,
    ):
        produce(client, topic, b"a")
        for follower in (first, second, first, second):
            assert fetch() == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert follower.fetch(1).error_code == ErrorCode.NONE
        assert fetch() == ErrorCode.OFFSET_OUT_OF_RANGE
        assert fetch() == ErrorCode.NOT_LEADER_OR_FOLLOWER
        topic.set_state(isr=(topic.leader_id,))
        assert fetch() == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_leader_that_is_alone_in_its_isr_asks_the_store_before_it_refuses_an_offset(
    broker: RunningBroker, client: WireClient
) -> None:
    """C1: below `min.insync.replicas` a replica outside the ISR may have been elected (KIP-966)."""
    settings = {"min.insync.replicas": "2"}
    with replicated_topic(broker, client, "alone", configs=settings) as topic:
        produce(client, topic, b"a")
        topic.set_state(isr=(topic.leader_id,))
        for _ in range(5):
            # In the store, it leads in an earlier epoch.
            code = fetch_partition(client, topic.name, 9).error_code
            assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            broker.call(lambda inside: inside.workers.store.submit(lambda: None).result())


def test_an_offset_above_the_log_end_makes_followers_fetch(
    broker: RunningBroker, client: WireClient
) -> None:
    with replicated_topic(broker, client, "above-waits") as topic, topic.follower(7) as follower:
        produce(client, topic, b"a")
        commit(topic, 1)
        waiting = waiting_follower(follower, 1)
        assert waiting.is_waiting()
        code = fetch_partition(client, topic.name, 9).error_code
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert waiting.result().error_code == ErrorCode.NONE


# --- waiting


class Waiting:
    """A fetch that waits for records."""

    def __init__(self, client: WireClient, request: FetchRequest, version: int = 12) -> None:
        self._client = client
        self._request = request
        self._version = version
        client.send(request, version)

    def is_waiting(self) -> bool:
        self._client.sock.settimeout(0.15)
        try:
            self._client.sock.recv(1, 2)  # MSG_PEEK
        except TimeoutError:
            return True
        finally:
            self._client.sock.settimeout(20)
        return False

    def result(self) -> Any:
        (data,) = partitions_of(self._client.receive(self._request, self._version)).values()
        return data


def waiting_follower(follower: Follower, offset: int) -> Waiting:
    request = follower.request(offset, max_wait_ms=LONG_WAIT_MS, min_bytes=1)
    return Waiting(follower.client, request)


def test_followers_wait_for_appends_and_consumers_for_the_high_watermark(
    broker: RunningBroker, client: WireClient
) -> None:
    """C1."""
    with (
        replicated_topic(broker, client, "waits") as topic,
        topic.follower(7) as first,
        topic.follower(8) as second,
        broker.connect() as consumer,
        broker.connect() as committed_consumer,
    ):
        follower_fetch = waiting_follower(first, 0)
        offsets: dict[str | UUID, dict[int, int]] = {topic.name: {0: 0}}
        fetches = [
            Waiting(
                connection,
                fetch_request(offsets, max_wait_ms=LONG_WAIT_MS, min_bytes=1, isolation=isolation),
            )
            for connection, isolation in ((consumer, 0), (committed_consumer, 1))
        ]
        assert follower_fetch.is_waiting()
        produce(client, topic, b"a")
        assert values_in(follower_fetch.result()) == [b"a"]
        assert all(fetch.is_waiting() for fetch in fetches)
        second.fetch(1)
        assert all(fetch.is_waiting() for fetch in fetches)
        next_fetch = waiting_follower(first, 1)
        for fetch in fetches:
            data = fetch.result()
            assert (data.high_watermark, values_in(data)) == (1, [b"a"])
        assert next_fetch.is_waiting()


def test_a_new_leader_ends_the_waits(broker: RunningBroker, client: WireClient) -> None:
    with replicated_topic(broker, client, "ends") as topic, topic.follower(7) as follower:
        fetch = waiting_follower(follower, 0)
        assert fetch.is_waiting()
        topic.set_state(leader=8)
        assert fetch.result().error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_appends_to_several_partitions_share_a_response(
    broker: RunningBroker, client: WireClient
) -> None:
    with (
        replicated_topic(broker, client, "several", partitions=3) as topic,
        topic.follower(7) as follower,
    ):
        request = fetch_request(
            {topic.name: {0: 0, 1: 0, 2: 0}}, max_wait_ms=LONG_WAIT_MS, min_bytes=1
        )
        request.replica_id = 7
        follower.client.send(request, 12)
        time.sleep(0.1)

        def append_to_all(inside: Broker) -> None:
            for partition in range(3):
                inside.replicas.find(topic.name, partition).append(bytearray(batch_of(b"v")))

        broker.call(append_to_all)
        response = partitions_of(follower.client.receive(request, 12))
        assert [values_in(data) for data in response.values()] == [[b"v"]] * 3


# --- sessions


def test_a_session_of_a_follower_keeps_its_state_current(
    broker: RunningBroker, client: WireClient
) -> None:
    """KIP-227: partitions without anything new are left out, but they are in sync."""
    with (
        replicated_topic(broker, client, "session", partitions=2) as topic,
        topic.follower(7) as first,
        topic.follower(8) as second,
    ):
        epoch = topic.leader_epoch

        def send(follower: Follower, offsets: Mapping[int, int], session: tuple[int, int]) -> Any:
            request = fetch_request(
                {topic.name: offsets}, session=session, leader_epoch=epoch, last_fetched_epoch=epoch
            )
            if session[1] == 0:
                for partition in request.topics[0].partitions:
                    partition.last_fetched_epoch = -1
            request.replica_id = follower.broker_id
            return follower.client.request(request, 12)

        produce(client, topic, b"a")
        response = send(first, {0: 0, 1: 0}, (0, 0))
        session_id = response.session_id
        assert session_id
        assert len(partitions_of(response)) == 2
        fetched_ms = topic.call(lambda replica: replica.partition.followers[7].last_fetch_ms, 1)
        time.sleep(0.01)
        response = send(first, {0: 1}, (session_id, 1))
        assert not partitions_of(response), "nothing is new"
        assert topic.call(lambda replica: replica.partition.followers[7].log_end_offset) == 1
        assert (
            topic.call(lambda replica: replica.partition.followers[7].last_fetch_ms, 1) > fetched_ms
        ), "the other partition is fetched too"
        second.fetch(1)
        assert topic.high_watermark == 1
        response = send(first, {}, (session_id, 2))
        ((_, data),) = partitions_of(response).items()
        assert (data.partition_index, data.high_watermark) == (0, 1)
        assert not partitions_of(send(first, {}, (session_id, 3)))


def test_a_late_fetch_of_a_follower_is_corrected_by_its_session(
    broker: RunningBroker, client: WireClient
) -> None:
    """Of a quiet partition too, although the session does not repeat its offset."""
    with replicated_topic(broker, client, "late", partitions=1) as topic, topic.follower(7) as one:
        produce(client, topic, b"a")
        epoch = topic.leader_epoch

        def send(offsets: Mapping[int, int], session: tuple[int, int], last_epoch: int) -> Any:
            request = fetch_request(
                {topic.name: offsets},
                session=session,
                leader_epoch=epoch,
                last_fetched_epoch=last_epoch,
                max_wait_ms=100,
                min_bytes=1,
            )
            request.replica_id = one.broker_id
            return one.client.request(request, 12)

        def end_offset() -> int:
            return topic.call(lambda replica: replica.partition.followers[7].log_end_offset)

        def read_all_soon(inside: Broker) -> None:
            changes = inside.fetch_sessions._sessions[session_id].changes
            assert changes is not None
            changes._next_full_read_ms = inside.clock.monotonic_ms() + 50

        session_id = send({0: 0}, (0, 0), -1).session_id
        send({0: 1}, (session_id, 1), epoch)
        assert end_offset() == 1
        with topic.follower(7) as late:
            late.fetch(0)
        assert end_offset() == 0
        broker.call(read_all_soon)
        send({}, (session_id, 2), epoch)
        send({}, (session_id, 3), epoch)
        assert end_offset() == 1


def test_a_follower_without_an_epoch_of_the_leader_is_not_read_again_and_again(
    broker: RunningBroker, client: WireClient
) -> None:
    """After an election the leader has an epoch without records, and new logs have none at all."""
    with replicated_topic(broker, client, "quiet", partitions=3) as topic, topic.follower(7) as one:
        produce(client, topic, b"a")
        epoch = topic.leader_epoch

        def send(offsets: Mapping[int, int], session: tuple[int, int], last_epoch: int) -> Any:
            request = fetch_request(
                {topic.name: offsets}, session=session, leader_epoch=epoch, max_wait_ms=0
            )
            for partition in request.topics[0].partitions if request.topics else ():
                partition.last_fetched_epoch = last_epoch if partition.partition == 0 else -1
            request.replica_id = one.broker_id
            return one.client.request(request, 12)

        def changed(inside: Broker) -> int:
            changes = inside.fetch_sessions._sessions[session_id].changes
            assert changes is not None
            return len(changes.partitions)

        session_id = send({0: 0, 1: 0, 2: 0}, (0, 0), -1).session_id
        for partition in range(3):
            topic.set_state(partition=partition)
        epoch = topic.leader_epoch
        send({0: 1, 1: 0, 2: 0}, (session_id, 1), epoch - 1)
        send({}, (session_id, 2), epoch)
        assert not partitions_of(send({}, (session_id, 3), epoch))
        assert broker.call(changed) == 0


def test_a_session_of_a_follower_continues_at_the_end_of_its_last_response(
    broker: RunningBroker, client: WireClient
) -> None:
    """Exactly what was appended since, also if segments, offsets or epochs have changed."""
    with replicated_topic(broker, client, "tails") as topic, topic.follower(7) as follower:
        session_id = session_epoch = 0

        def fetched(offset: int, **options: Any) -> Any:
            nonlocal session_id, session_epoch
            request = fetch_request(
                {topic.name: {0: offset}},
                session=(session_id, session_epoch),
                leader_epoch=topic.leader_epoch,
                **options,
            )
            request.replica_id = follower.broker_id
            response = follower.client.request(request, 12)
            session_id, session_epoch = response.session_id, session_epoch + 1
            data = next(iter(partitions_of(response).values()), None)
            if data is None or data.error_code:
                return data and ErrorCode(data.error_code)
            return values_in(data)

        first = {"last_fetched_epoch": topic.leader_epoch}
        produce(client, topic, b"a")
        assert fetched(0) == [b"a"]
        produce(client, topic, b"b", b"c")
        assert fetched(1, **first) == [b"b", b"c"]
        produce(client, topic, b"d")
        assert fetched(3, **first) == [b"d"]
        assert topic.call(lambda replica: replica.partition.followers[7].log_end_offset) == 3
        assert fetched(1, **first) == [b"b", b"c", b"d"], "it has not appended the last responses"
        topic.call(lambda replica: replica.log.roll())
        produce(client, topic, b"e")
        assert fetched(4, **first) == [b"e"]
        produce(client, topic, b"f", b"g")
        assert fetched(5, **first, partition_max_bytes=80) == [b"f"], "as much as fits"
        assert fetched(6, **first) == [b"g"]
        produce(client, topic, b"h")
        topic.set_state()
        produce(client, topic, b"i")
        assert fetched(7, **first) == [b"h", b"i"]
        produce(client, topic, b"j")
        assert fetched(9, last_fetched_epoch=topic.leader_epoch) == [b"j"]
        commit(topic, 10)
        topic.call(lambda replica: replica.log.increment_log_start_offset(10))
        produce(client, topic, b"k")
        assert fetched(9, last_fetched_epoch=topic.leader_epoch) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert fetched(10, last_fetched_epoch=topic.leader_epoch) == [b"k"]


# --- consumers of followers


def from_rack(client: WireClient, topic: ReplicatedTopic, rack: str, offset: int = 0) -> Any:
    request = fetch_request({topic.name: {0: offset}}, max_wait_ms=LONG_WAIT_MS, min_bytes=10_000)
    request.rack_id = rack
    (data,) = partitions_of(client.request(request, 12)).values()
    return data


def test_consumers_of_another_rack_are_sent_to_its_replica(
    broker: RunningBroker, client: WireClient
) -> None:
    with replicated_topic(broker, client, "racks", racks={7: "b", 8: "c"}) as topic:
        produce(client, topic, b"a")
        commit(topic, 1)
        data = from_rack(client, topic, "b")
        assert (data.error_code, data.preferred_read_replica) == (0, 7)
        assert (data.high_watermark, data.records) == (1, b"")
        assert from_rack(client, topic, "c").preferred_read_replica == 8
        topic.set_state(isr=(topic.leader_id, 8), bump_epoch=False)
        request = fetch_request({topic.name: {0: 0}})
        for rack in ("a", "b", "x", ""):
            request.rack_id = rack
            (data,) = partitions_of(client.request(request, 12)).values()
            assert (data.preferred_read_replica, values_in(data)) == (-1, [b"a"]), rack


def test_consumers_read_from_a_follower_up_to_its_high_watermark(
    broker: RunningBroker, client: WireClient
) -> None:
    with replicated_topic(broker, client, "near") as topic:
        produce(client, topic, b"a", b"b")
        commit(topic, 1)
        topic.set_state(leader=7)
        data = fetch_partition(client, topic.name, version=12)
        assert (data.error_code, data.high_watermark, values_in(data)) == (0, 1, [b"a"])
        code = fetch_partition(client, topic.name, version=10).error_code
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        data = fetch_partition(client, topic.name, 2, version=12)
        assert (data.error_code, values_in(data)) == (0, []), "not committed as far as it knows"
        code = fetch_partition(client, topic.name, 3, version=12).error_code
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader may have it"
        with broker.connect() as consumer:
            request = fetch_request({topic.name: {0: 1}}, max_wait_ms=LONG_WAIT_MS, min_bytes=1)
            fetch = Waiting(consumer, request)
            assert fetch.is_waiting()
            topic.call(lambda replica: replica.update_high_watermark(2))
            assert values_in(fetch.result()) == [b"b"]


# --- offsets


def listed(
    client: WireClient, topic: ReplicatedTopic, timestamp: int, version: int = 7, replica: int = -1
) -> tuple[ErrorCode, int]:
    partition = ListOffsetsPartition(0, timestamp=timestamp)
    request = ListOffsetsRequest(replica, topics=[ListOffsetsTopic(topic.name, [partition])])
    data = client.request(request, version).topics[0].partitions[0]
    return ErrorCode(data.error_code), data.offset


def test_a_new_leader_does_not_know_the_latest_offset_at_once(
    broker: RunningBroker, client: WireClient
) -> None:
    """KIP-207: its high watermark may be lower than that of its predecessor."""
    with replicated_topic(broker, client, "latest") as topic:
        produce(client, topic, b"a", b"b")
        commit(topic, 1)
        assert listed(client, topic, -1) == (ErrorCode.NONE, 1)
        topic.set_state(leader=7)
        topic.set_state()
        assert listed(client, topic, -1) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        assert listed(client, topic, -1, version=4)[0] == ErrorCode.LEADER_NOT_AVAILABLE
        assert listed(client, topic, -2) == (ErrorCode.NONE, 0)
        assert listed(client, topic, -1, replica=7) == (ErrorCode.NONE, 2)
        assert listed(client, topic, 0) == (ErrorCode.NONE, 0), "it is committed for sure"
        assert listed(client, topic, 10**15)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
        commit(topic, 2)
        assert listed(client, topic, -1) == (ErrorCode.NONE, 2)
        assert listed(client, topic, 10**15) == (ErrorCode.NONE, -1)


# --- DeleteRecords


def test_deleted_records_are_deleted_by_all_replicas(
    broker: RunningBroker, client: WireClient
) -> None:
    with (
        replicated_topic(broker, client, "deleted") as topic,
        topic.follower(7) as first,
        topic.follower(8) as second,
    ):
        produce(client, topic, b"a", b"b", b"c")
        commit(topic, 3)

        def send(offset: int, timeout_ms: int) -> DeleteRecordsRequest:
            partition = DeleteRecordsPartition(0, offset)
            request = DeleteRecordsRequest(
                [DeleteRecordsTopic(topic.name, [partition])], timeout_ms
            )
            client.send(request, 2)
            return request

        def result(request: DeleteRecordsRequest) -> tuple[ErrorCode, int]:
            response: Any = client.receive(request, 2)
            data = response.topics[0].partitions[0]
            return ErrorCode(data.error_code), data.low_watermark

        request = send(2, 20_000)
        assert first.fetch(3, log_start_offset=2).log_start_offset == 2
        assert topic.call(lambda replica: len(replica.low_watermark_watchers)) == 1
        second.fetch(3, log_start_offset=3)
        assert result(request) == (ErrorCode.NONE, 2)
        assert result(send(3, 50)) == (ErrorCode.REQUEST_TIMED_OUT, 2)
        request = send(-1, 20_000)
        first.fetch(3, log_start_offset=3)
        assert result(request) == (ErrorCode.NONE, 3)


def test_replicas_of_dead_brokers_are_not_waited_for(
    broker: RunningBroker, client: WireClient
) -> None:
    with replicated_topic(broker, client, "half") as topic:
        produce(client, topic, b"a", b"b")
        commit(topic, 2)

        def stop_followers(inside: Broker) -> None:
            for broker_id in FOLLOWERS:
                del inside.image.brokers[broker_id]

        broker.call(stop_followers)
        partition = DeleteRecordsPartition(0, 1)
        request = DeleteRecordsRequest([DeleteRecordsTopic(topic.name, [partition])], 20_000)
        data = client.request(request, 2).topics[0].partitions[0]
        assert (data.error_code, data.low_watermark) == (0, 1)


# --- throttles


def test_followers_outside_of_the_isr_are_throttled(
    broker: RunningBroker, client: WireClient
) -> None:
    """R8."""
    configs = {"leader.replication.throttled.replicas": "*"}
    with (
        replicated_topic(broker, client, "throttled", configs=configs) as topic,
        topic.follower(7) as first,
        topic.follower(8) as second,
    ):
        topic.set_state(isr=(topic.leader_id, 7))
        topic.controller.is_open.clear()
        produce(client, topic, b"x" * 5000)
        set_rate(broker, 1000)
        try:
            assert len(second.fetch(0).records) > 5000, "the first one exceeds the rate"
            data = second.fetch(0)
            assert (data.error_code, data.records) == (0, b"")
            assert len(first.fetch(0).records) > 5000, "it is in sync"
            assert len(fetch_partition(client, topic.name).records or b"") == 0
            set_rate(broker, 2**63 - 1)
            assert len(second.fetch(0).records) > 5000
        finally:
            set_rate(broker, 2**63 - 1)


def set_rate(broker: RunningBroker, rate: int) -> None:
    name = "leader.replication.throttled.rate"
    broker.call(lambda inside: inside.config.set_dynamic({}, {name: str(rate)}))
