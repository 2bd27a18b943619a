"""A leader with two followers: high watermark, acks=all and the ISR (R2, R3, P2)."""

import time
from collections.abc import Iterator, Mapping

import pytest

from penstock.broker.broker import Broker
from penstock.controller.metadata import BrokerKey, Delete
from penstock.core.errors import ErrorCode
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.broker.simulated_followers import (
    PendingProduce,
    ReplicatedTopic,
    replicated_topic,
)
from tests.support.protocol.requests import batch_of, fetch_partition, values_in

LAG_MS = 600


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"replica.lag.time.max.ms": str(LAG_MS)}


@pytest.fixture
def topic(
    broker: RunningBroker, client: WireClient, request: pytest.FixtureRequest
) -> Iterator[ReplicatedTopic]:
    name = f"t-{abs(hash(request.node.name))}"
    with replicated_topic(broker, client, name) as topic:
        yield topic


def pending(
    client: WireClient, topic: ReplicatedTopic, *values: bytes, **options: object
) -> PendingProduce:
    return PendingProduce(client, topic.name, *values, **options)


# version 9 takes the fast path, 8 and 13 do not
@pytest.mark.parametrize("version", [8, 9])
def test_a_produce_waits_until_all_in_sync_replicas_have_the_records(
    client: WireClient, topic: ReplicatedTopic, version: int
) -> None:
    with topic.follower(7) as first, topic.follower(8) as second:
        first.fetch(0), second.fetch(0)
        produce = pending(client, topic, b"a", version=version)
        assert produce.is_waiting()
        assert values_in(first.fetch(0)) == [b"a"]
        first.fetch(1)
        assert topic.high_watermark == 0
        assert produce.is_waiting()
        data = second.fetch(1)
        assert (data.error_code, data.high_watermark) == (0, 1)
        response = produce.result()
        assert (response.error_code, response.base_offset) == (0, 0)
        assert values_in(fetch_partition(client, topic.name)) == [b"a"]


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("acks", [1, 0])
def test_other_produces_do_not_wait_and_consumers_do_not_see_them(
    client: WireClient, topic: ReplicatedTopic, version: int, acks: int
) -> None:
    produce = pending(client, topic, b"a", version=version, acks=acks)
    if acks:
        assert produce.result().error_code == 0
    data = fetch_partition(client, topic.name)
    assert (data.error_code, data.high_watermark, values_in(data)) == (0, 0, [])
    with topic.follower(7) as first, topic.follower(8) as second:
        first.fetch(1), second.fetch(1)
    assert values_in(fetch_partition(client, topic.name)) == [b"a"]


@pytest.mark.parametrize("version", [8, 9])
def test_responses_are_in_the_order_of_the_requests(
    broker: RunningBroker, client: WireClient, topic: ReplicatedTopic, version: int
) -> None:
    produces = [pending(client, topic, b"%d" % number, version=version) for number in range(5)]
    last = pending(client, topic, b"last", acks=1, version=version)
    assert last.is_waiting(), "its response comes after those before it"
    with topic.follower(7) as first, topic.follower(8) as second:
        first.fetch(6), second.fetch(3)
        assert [produce.result().base_offset for produce in produces[:3]] == [0, 1, 2]
        assert produces[3].is_waiting()
        second.fetch(5)
    assert [produce.result().base_offset for produce in produces[3:]] == [3, 4]
    assert last.result().base_offset == 5


@pytest.mark.parametrize("version", [8, 9])
def test_a_produce_times_out(client: WireClient, topic: ReplicatedTopic, version: int) -> None:
    response = pending(client, topic, b"a", timeout_ms=50, version=version).result()
    assert response.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert response.base_offset == 0, "the records are appended nevertheless"
    assert not topic.call(lambda replica: len(replica.commit_watchers))


@pytest.mark.parametrize("version", [8, 9, 10])
def test_a_produce_to_a_leader_that_resigns_fails(
    client: WireClient, topic: ReplicatedTopic, version: int
) -> None:
    produce = pending(client, topic, b"a", version=version)
    assert produce.is_waiting()
    topic.set_state(leader=7)
    assert produce.result().error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (
        pending(client, topic, b"a", version=version).result().error_code
        == ErrorCode.NOT_LEADER_OR_FOLLOWER
    )


def test_a_new_epoch_of_the_same_leader_does_not_end_the_wait(
    client: WireClient, topic: ReplicatedTopic
) -> None:
    produce = pending(client, topic, b"a")
    assert produce.is_waiting()
    topic.set_state(isr=(topic.leader_id,))
    assert produce.result().error_code == 0


@pytest.mark.parametrize("version", [8, 9])
def test_too_few_replicas_before_the_append(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    name = f"few-{version}"
    with replicated_topic(broker, client, name, configs={"min.insync.replicas": "2"}) as topic:
        topic.set_state(isr=(topic.leader_id,))
        produce = pending(client, topic, b"a", version=version)
        assert produce.result().error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert pending(client, topic, b"b", version=version, acks=1).result().base_offset == 0
        data = fetch_partition(client, topic.name)
        assert (data.high_watermark, values_in(data)) == (0, []), "as in Kafka 3.9 and later"
        with topic.follower(7) as follower:
            follower.fetch(1)
            deadline = time.monotonic() + 5
            while topic.isr != (topic.leader_id, 7):
                assert time.monotonic() < deadline
        assert values_in(fetch_partition(client, topic.name)) == [b"b"]


@pytest.mark.parametrize("version", [8, 9])
def test_too_few_replicas_after_the_append(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    name = f"fewer-{version}"
    with (
        replicated_topic(broker, client, name, configs={"min.insync.replicas": "3"}) as topic,
        topic.follower(7) as first,
        topic.follower(8) as second,
    ):
        produce = pending(client, topic, b"a", version=version)
        first.fetch(1)
        second.fetch(0)
        topic.set_state(isr=(topic.leader_id, 7), bump_epoch=False)
        assert produce.is_waiting()
        # The ISR is smaller than min.insync.replicas: nothing is committed any more.
        assert topic.high_watermark == 0
        topic.set_state(isr=(topic.leader_id, 7, 8), bump_epoch=False)
        second.fetch(1)
        assert produce.result().error_code == 0


# --- ISR


def wait_for_isr(topic: ReplicatedTopic, *isr: int) -> None:
    deadline = time.monotonic() + 10
    while topic.isr != isr:
        assert time.monotonic() < deadline, topic.isr
        time.sleep(0.01)


def test_a_follower_that_lags_leaves_the_isr_and_returns(
    client: WireClient, topic: ReplicatedTopic
) -> None:
    with topic.follower(7) as first, topic.follower(8) as second:
        first.fetch(0), second.fetch(0)
        produce = pending(client, topic, b"a")
        assert produce.is_waiting()
        first.fetch(1)
        assert produce.result().error_code == 0, "the other one left after a while"
        assert topic.isr == (topic.leader_id, 7)
        assert topic.controller.proposals == [[topic.leader_id, 7]]
        assert second.fetch(0).error_code == 0
        assert topic.isr == (topic.leader_id, 7)
        second.fetch(1)
        wait_for_isr(topic, topic.leader_id, 7, 8)


def test_a_follower_that_caught_up_while_another_joined_the_isr_joins_it_too(
    topic: ReplicatedTopic,
) -> None:
    """Its session does not read a partition without new records again."""
    topic.set_state(isr=(topic.leader_id,))
    topic.controller.is_open.clear()
    with topic.follower(7) as first, topic.follower(8) as second:
        first.fetch(0), second.fetch(0)
        topic.controller.is_open.set()
        wait_for_isr(topic, topic.leader_id, 7, 8)


def test_followers_of_a_quiet_partition_are_in_sync_when_it_is_written_to(
    broker: RunningBroker, client: WireClient, topic: ReplicatedTopic
) -> None:
    """Their sessions do not read partitions without changes, but they have fetched them."""
    epoch = topic.leader_epoch
    with topic.follower(7) as first, topic.follower(8) as second:
        produce = pending(client, topic, b"a", acks=1)
        sessions = {}
        for follower in (first, second):
            request = follower.request(0, session=(0, 0), leader_epoch=epoch)
            sessions[follower] = follower.client.request(request, 12).session_id
        assert produce.result().error_code == 0
        for number in range(1, 15):
            for follower, session_id in sessions.items():
                request = follower.request(
                    1, session=(session_id, number), leader_epoch=epoch, last_fetched_epoch=epoch
                )
                if number > 1:
                    request.topics = []
                follower.client.request(request, 12)
            time.sleep(LAG_MS / 10_000)

        def write_and_check(inside: Broker) -> int:
            replica = inside.replicas.find(topic.name, 0)
            replica.append(bytearray(batch_of(b"b")))
            inside.isr_manager.shrink(replica)
            return replica.partition.followers[7].last_caught_up_ms

        before_ms = topic.call(lambda replica: replica.log.clock.monotonic_ms())
        assert broker.call(write_and_check) > before_ms - LAG_MS / 2
        assert topic.controller.proposals == []


def test_the_high_watermark_waits_for_a_follower_whose_return_is_not_confirmed(
    client: WireClient, topic: ReplicatedTopic
) -> None:
    topic.set_state(isr=(topic.leader_id, 7))
    topic.controller.is_open.clear()
    with topic.follower(7) as first, topic.follower(8) as second:
        first.fetch(0), second.fetch(0)
        assert topic.isr == (topic.leader_id, 7)
        produce = pending(client, topic, b"a")
        first.fetch(1)
        assert produce.is_waiting()
        topic.controller.is_open.set()
        wait_for_isr(topic, topic.leader_id, 7, 8)
        assert produce.is_waiting()
        second.fetch(1)
        assert produce.result().error_code == 0


def test_the_high_watermark_waits_for_a_follower_whose_removal_is_not_confirmed(
    client: WireClient, topic: ReplicatedTopic
) -> None:
    topic.controller.is_open.clear()
    with topic.follower(7) as first, topic.follower(8) as second:
        first.fetch(0), second.fetch(0)
        produce = pending(client, topic, b"a")
        first.fetch(1)
        deadline = time.monotonic() + 10
        while not topic.controller.proposals:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert produce.is_waiting()
        topic.controller.is_open.set()
        assert produce.result().error_code == 0


def test_a_follower_that_the_controller_refuses_may_be_proposed_again(
    client: WireClient, topic: ReplicatedTopic
) -> None:
    topic.set_state(isr=(topic.leader_id, 7))
    topic.controller.error = ErrorCode.INELIGIBLE_REPLICA
    with topic.follower(8) as second:
        second.fetch(0)
        deadline = time.monotonic() + 10
        while topic.call(lambda replica: replica.partition.pending is not None):
            assert time.monotonic() < deadline
        topic.controller.error = ErrorCode.NONE
        second.fetch(0)
        wait_for_isr(topic, topic.leader_id, 7, 8)


def _lose(topic: ReplicatedTopic, broker_id: int) -> None:
    """A broker's session ends, as the controller announces it."""

    def apply(broker: Broker) -> None:
        changes = [Delete(BrokerKey(broker_id))]
        broker.image.apply(changes)
        broker.isr_manager.apply(changes)

    topic.broker.call(apply)


def test_a_broker_that_is_down_releases_the_high_watermark(
    client: WireClient, topic: ReplicatedTopic
) -> None:
    """It had caught up, so that the high watermark waited for it although it is not in sync."""
    topic.set_state(isr=(topic.leader_id, 7))
    topic.controller.error = ErrorCode.INELIGIBLE_REPLICA
    with topic.follower(7) as first, topic.follower(8) as second:
        first.fetch(0), second.fetch(0)
        produce = pending(client, topic, b"a")
        first.fetch(1)
        assert produce.is_waiting()
        _lose(topic, 8)
        assert produce.result().error_code == 0


def test_a_refused_return_releases_the_high_watermark(
    client: WireClient, topic: ReplicatedTopic
) -> None:
    topic.set_state(isr=(topic.leader_id, 7))
    topic.controller.error = ErrorCode.INELIGIBLE_REPLICA
    topic.controller.is_open.clear()
    with topic.follower(7) as first, topic.follower(8) as second:
        first.fetch(0), second.fetch(0)
        produce = pending(client, topic, b"a")
        first.fetch(1)
        _lose(topic, 8)
        assert produce.is_waiting(), "the controller may have accepted its return"
        topic.controller.is_open.set()
        assert produce.result().error_code == 0


def test_the_status_counts_partitions_and_changes(
    broker: RunningBroker, client: WireClient, topic: ReplicatedTopic
) -> None:
    before = broker.call(lambda inside: inside.isr_manager.status())
    topic.set_state(isr=(topic.leader_id,))
    with topic.follower(7) as follower:
        under = broker.call(lambda inside: inside.isr_manager.status())
        assert under.under_replicated == before.under_replicated + 1
        assert under.leaders == before.leaders
        follower.fetch(0)
        wait_for_isr(topic, topic.leader_id, 7)
    assert (
        broker.call(lambda inside: inside.isr_manager.status()).isr_expands
        == before.isr_expands + 1
    )
