"""Coordinators whose partition has followers: no response precedes the commit (C4, P4)."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.broker import Broker
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.core.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from penstock.protocol.fields import Message
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.broker.simulated_followers import ReplicatedTopic, with_followers
from tests.support.cluster.brokers import running_cluster
from tests.support.coordinator.group_client import committed, fetched_group, find_group, wait_until
from tests.support.protocol.requests import make_topic


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "offsets.commit.timeout.ms": "600",
        "replica.lag.time.max.ms": "60000",
    }


def with_internal_topic(
    broker: RunningBroker, name: str
) -> AbstractContextManager[ReplicatedTopic]:
    topic_id = broker.call(lambda inside: inside.image.topics[name].topic_id)
    return with_followers(broker, name, topic_id)


def catch_up(topic: ReplicatedTopic) -> None:
    """Has all followers fetch everything, so that it is committed."""
    end = topic.call(lambda replica: replica.log.log_end_offset)
    for broker_id in (7, 8):
        with topic.follower(broker_id) as follower:
            follower.fetch(end)
    assert topic.high_watermark == end


@pytest.fixture
def offsets_topic(broker: RunningBroker, client: WireClient) -> Iterator[ReplicatedTopic]:
    if "t" not in broker.call(lambda inside: inside.image.topics):
        make_topic(client, "t", 3)
    find_group(client, "g")
    with with_internal_topic(broker, GROUP_METADATA_TOPIC) as topic:
        catch_up(topic)
        yield topic
    # The broker leads the partition alone again, so that everything in it is committed.
    alone = (topic.leader_id,)
    broker.call(lambda inside: inside.groups.leaderships_changed([], [key(topic)]))
    topic.set_state(isr=alone, replicas=alone)
    broker.call(lambda inside: inside.groups.leaderships_changed([key(topic)], []))


def key(topic: ReplicatedTopic) -> TopicPartition:
    return TopicPartition(topic.name, 0)


class Pending:
    """A request whose response is read later."""

    def __init__(self, client: WireClient, request: Message, version: int) -> None:
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
        return self._client.receive(self._request, self._version)


def pending_commit(client: WireClient, group: str, offset: int) -> Pending:
    topic = OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, offset)])
    return Pending(client, OffsetCommitRequest(group, -1, "", topics=[topic]), 9)


def code_of(pending: Pending) -> ErrorCode:
    return ErrorCode(pending.result().topics[0].partitions[0].error_code)


def test_an_offset_commit_waits_for_the_followers(
    broker: RunningBroker, client: WireClient, offsets_topic: ReplicatedTopic
) -> None:
    pending = pending_commit(client, "waits", 5)
    with broker.connect() as other:
        assert pending.is_waiting()
        catch_up(offsets_topic)
        assert code_of(pending) == ErrorCode.NONE
        assert committed(other, "waits") == {("t", 0): 5}


def test_a_read_waits_for_what_it_depends_on(
    broker: RunningBroker, client: WireClient, offsets_topic: ReplicatedTopic
) -> None:
    """An offset that may be lost must not be returned."""
    pending = pending_commit(client, "reads", 5)
    with broker.connect() as other:
        assert pending.is_waiting()
        catch_up(offsets_topic)
        assert code_of(pending) == ErrorCode.NONE
        again = pending_commit(client, "reads", 6)
        assert again.is_waiting()
        assert fetched_group(other, "reads").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_commit_times_out_and_may_take_effect_later(
    client: WireClient, offsets_topic: ReplicatedTopic
) -> None:
    pending = pending_commit(client, "late", 5)
    assert code_of(pending) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    catch_up(offsets_topic)
    assert committed(client, "late") == {("t", 0): 5}


def test_a_coordinator_that_loses_its_partition_refuses_what_waits(
    broker: RunningBroker, client: WireClient, offsets_topic: ReplicatedTopic
) -> None:
    pending = pending_commit(client, "lost", 5)
    assert pending.is_waiting()
    offsets_topic.set_state(leader=7)
    assert code_of(pending) == ErrorCode.NOT_COORDINATOR
    broker.call(lambda inside: inside.groups.leaderships_changed([], [key(offsets_topic)]))
    assert code_of(pending_commit(client, "lost", 6)) == ErrorCode.NOT_COORDINATOR
    # It leads again, with a record that is not committed.
    offsets_topic.set_state()
    broker.call(lambda inside: inside.groups.leaderships_changed([key(offsets_topic)], []))
    wait_until(lambda: broker.call(lambda inside: inside.groups._shards.get(0) is not None))
    assert fetched_group(client, "lost").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    catch_up(offsets_topic)
    assert committed(client, "lost") == {("t", 0): 5}


def test_too_few_replicas_refuse_a_commit(
    broker: RunningBroker, client: WireClient, offsets_topic: ReplicatedTopic
) -> None:
    def require(inside: Broker, count: int) -> None:
        replica = inside.replicas.find(GROUP_METADATA_TOPIC, 0)
        replica.config = replace(replica.config, min_insync_replicas=count)

    broker.call(lambda inside: require(inside, 2))
    offsets_topic.set_state(isr=(offsets_topic.leader_id,), bump_epoch=False)
    pending = pending_commit(client, "few", 5)
    assert code_of(pending) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.call(lambda inside: require(inside, 1))


def test_a_transactional_id_waits_for_the_followers(
    broker: RunningBroker, client: WireClient
) -> None:
    """P4."""
    find = FindCoordinatorRequest("tx-1", 1)
    wait_until(lambda: client.request(find, 3).error_code == 0)
    request = InitProducerIdRequest("tx-1", 60_000)
    wait_until(lambda: client.request(request, 4).error_code == 0)
    with with_internal_topic(broker, TRANSACTION_STATE_TOPIC) as topic:
        catch_up(topic)
        pending = Pending(client, InitProducerIdRequest("tx-2", 60_000), 4)
        assert pending.is_waiting()
        catch_up(topic)
        assert pending.result().error_code == 0
        pending = Pending(client, InitProducerIdRequest("tx-3", 60_000), 4)
        assert pending.is_waiting()
        topic.set_state(leader=7)
        assert pending.result().error_code == ErrorCode.NOT_COORDINATOR


def test_too_few_brokers_for_internal_topics_are_explained(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    with running_cluster(tmp_path, brokers=2) as cluster, cluster.connect(0) as client:
        (coordinator,) = client.request(request, 4).coordinators
    assert coordinator.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    messages = [record.getMessage() for record in caplog.records]
    (message,) = [text for text in messages if text.startswith("__consumer_offsets")]
    assert "offsets.topic.replication.factor is 3, and 2 brokers are up" in message
    assert "or all brokers are restarted with offsets.topic.replication.factor=2" in message
