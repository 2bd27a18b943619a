"""P5: the producer when connections break, responses are lost and the broker stops."""

import threading
import time
from collections.abc import Iterator

import pytest

from penstock.client.consumer.consumer import Consumer
from penstock.client.errors import AuthenticationError, AuthorizationError, KafkaTimeoutError
from penstock.client.producer.future import RecordFuture
from penstock.client.producer.producer import Producer
from penstock.protocol.api_key import ApiKey
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from penstock.security.acl import AclOperation, ResourceType
from penstock.testing.broker import Broker
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.broker.logins import AUTHORIZER, SASL_SETTINGS, logged_in
from tests.support.coordinator.transaction_client import uncommitted
from tests.support.protocol.admin import allow
from tests.support.protocol.requests import make_topic

WAIT_S = 20.0


@pytest.fixture(scope="module")
def failing() -> Iterator[Broker]:
    """A broker in a process of its own, behind a network that fails on demand."""
    with Broker() as broker:
        yield broker


def producer_of(broker: Broker, *, batch_size: int = 16_384) -> Producer:
    """A producer that retries without long delays."""
    return Producer(
        bootstrap_servers=broker.bootstrap_servers,
        batch_size=batch_size,
        linger_ms=0,
        retry_backoff_ms=5,
        reconnect_backoff_ms=5,
        reconnect_backoff_max_ms=20,
    )


def stored(broker: Broker, topic: str, partition: int = 0) -> list[bytes | None]:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with WireClient((host, int(port))) as client:
        return uncommitted(client, topic, partition)


def metric(producer: Producer, metric_name: str) -> float:
    return next(
        value
        for name, value in producer.metrics().items()
        if (name.group, name.name) == ("producer-metrics", metric_name)
    )


def test_lost_responses_cause_no_duplicates(failing: Broker) -> None:
    """P3: the broker has the batches, the producer does not know; several are in flight."""
    failing.create_topic("lost")
    with producer_of(failing, batch_size=300) as producer:
        futures: list[RecordFuture] = []
        with failing.losing_replies(ApiKey.PRODUCE, times=6) as lost:
            futures += [producer.send("lost", b"%d" % number) for number in range(3000)]
            producer.flush(WAIT_S)
        assert lost.count == 6
        assert metric(producer, "record-retry-total") >= 6
    assert [future.result(0).offset for future in futures] == list(range(3000))
    assert stored(failing, "lost") == [b"%d" % number for number in range(3000)]


def test_broken_connections_lose_no_records(failing: Broker) -> None:
    """P5: cut again and again while records are sent."""
    failing.create_topic("cut", 2)
    count = 6000
    with producer_of(failing, batch_size=1000) as producer:
        for number in range(count):
            producer.send("cut", b"%d" % number, partition=number % 2)
            if number % 1000 == 500:
                failing.cut()
        producer.flush(WAIT_S)
        assert metric(producer, "record-error-total") == 0
    for partition in range(2):
        expected = [b"%d" % number for number in range(partition, count, 2)]
        assert stored(failing, "cut", partition) == expected


def test_a_broker_slower_than_the_timeout_causes_neither_loss_nor_duplicates(
    failing: Broker,
) -> None:
    """P5: it has the batches when the producer gives up waiting and sends them again."""
    failing.create_topic("slow")
    with Producer(
        bootstrap_servers=failing.bootstrap_servers,
        batch_size=300,
        linger_ms=0,
        request_timeout_ms=150,
        retry_backoff_ms=5,
        reconnect_backoff_ms=5,
        reconnect_backoff_max_ms=20,
    ) as producer:
        assert producer.send("slow", b"0").result(WAIT_S).offset == 0
        with failing.slow(latency_ms=400):
            futures = [producer.send("slow", b"%d" % number) for number in range(1, 1000)]
            assert not futures[-1].done()
            while not metric(producer, "record-retry-total"):
                time.sleep(0.01)
        producer.flush(WAIT_S)
        assert metric(producer, "record-error-total") == 0
    assert [future.result(0).offset for future in futures] == list(range(1, 1000))
    assert stored(failing, "slow") == [b"%d" % number for number in range(1000)]


def test_a_consumer_of_a_slow_broker_sees_every_record_once(failing: Broker) -> None:
    failing.create_topic("slow-read")
    with producer_of(failing, batch_size=500) as producer:
        for number in range(2000):
            producer.send("slow-read", b"%d" % number)
    with Consumer(
        bootstrap_servers=failing.bootstrap_servers,
        auto_offset_reset="earliest",
        request_timeout_ms=150,
        fetch_max_wait_ms=20,
        max_poll_records=50,
        max_partition_fetch_bytes=1000,
        retry_backoff_ms=5,
        reconnect_backoff_ms=5,
        reconnect_backoff_max_ms=20,
    ) as consumer:
        consumer.assign([("slow-read", 0)])
        values = [record.value for record in consumer.poll(WAIT_S)]
        with failing.slow(latency_ms=400):
            # What was fetched before is used up, then requests run out of time.
            while records := consumer.poll(0.3):
                values += [record.value for record in records]
        assert len(values) < 2000
        while len(values) < 2000:
            records = consumer.poll(WAIT_S)
            assert records
            values += [record.value for record in records]
    assert values == [b"%d" % number for number in range(2000)]


def test_a_producer_id_whose_response_is_lost_is_requested_again(failing: Broker) -> None:
    failing.create_topic("lost-id")
    with (
        failing.losing_replies(ApiKey.INIT_PRODUCER_ID, ApiKey.METADATA, times=2) as lost,
        producer_of(failing) as producer,
    ):
        assert producer.send("lost-id", b"v").result(WAIT_S).offset == 0
    assert lost.count == 4


def test_a_broker_that_is_killed_and_restarted_while_records_are_sent(
    failing: Broker,
) -> None:
    """P5: 50,000 records, each once and in order in its partition."""
    failing.create_topic("restarted", 3)
    count = 50_000
    halfway = threading.Event()
    with producer_of(failing) as producer:

        def send_all() -> None:
            for number in range(count):
                producer.send("restarted", b"%d" % number, partition=number % 3)
                if number == count // 3:
                    halfway.set()

        sending = threading.Thread(target=send_all)
        sending.start()
        assert halfway.wait(WAIT_S)
        failing.kill()
        failing.start()
        sending.join()
        producer.flush(WAIT_S)
        assert metric(producer, "record-error-total") == 0
    for partition in range(3):
        expected = [b"%d" % number for number in range(partition, count, 3)]
        assert stored(failing, "restarted", partition) == expected


def test_records_that_expire_fail_and_later_ones_are_delivered(failing: Broker) -> None:
    """delivery_timeout_ms, while no connection is possible."""
    failing.create_topic("late")
    with Producer(
        bootstrap_servers=failing.bootstrap_servers,
        delivery_timeout_ms=250,
        request_timeout_ms=200,
        linger_ms=0,
        retry_backoff_ms=5,
        reconnect_backoff_ms=5,
        reconnect_backoff_max_ms=20,
    ) as producer:
        assert producer.send("late", b"before").result(WAIT_S).offset == 0
        with failing.refused():
            error = producer.send("late", b"too late").exception(WAIT_S)
        assert isinstance(error, KafkaTimeoutError)
        assert "delivery_timeout_ms" in error.message
        assert producer.send("late", b"after").result(WAIT_S).offset == 1
    assert stored(failing, "late") == [b"before", b"after"]


def test_a_silent_broker_is_disconnected_after_request_timeout_ms(failing: Broker) -> None:
    failing.create_topic("silent")
    with Producer(
        bootstrap_servers=failing.bootstrap_servers,
        request_timeout_ms=100,
        linger_ms=0,
        retry_backoff_ms=5,
        reconnect_backoff_ms=5,
    ) as producer:
        producer.send("silent", b"0").result(WAIT_S)
        with failing.losing_replies(ApiKey.PRODUCE, times=1, silently=True) as lost:
            future = producer.send("silent", b"1")
            assert future.result(WAIT_S).offset == 1
        assert lost.count == 1
    assert stored(failing, "silent") == [b"0", b"1"]


def test_a_throttled_producer_waits(broker: RunningBroker, client: WireClient) -> None:
    """KIP-219: the broker responds at once, with the time to wait."""
    make_topic(client, "throttled")
    entity = AlterClientQuotasRequestEntityData("client-id", "slow")
    entry = AlterClientQuotasRequestEntryData([entity], [OpData("producer_byte_rate", 20_000.0)])
    response = client.request(AlterClientQuotasRequest([entry]), 1)
    assert response.entries[0].error_code == 0
    with Producer(
        bootstrap_servers=broker.bootstrap_servers, client_id="slow", linger_ms=0
    ) as producer:
        for _ in range(3):
            producer.send("throttled", b"x" * 80_000).result(WAIT_S)
        assert metric(producer, "produce-throttle-time-max") > 0


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that demands a login; ann may write to one topic and describe another."""
    settings = {
        **SASL_SETTINGS,
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin",
    }
    with running_broker(tmp_path_factory.mktemp("guarded"), settings) as running:
        with logged_in(running, "admin") as admin:
            for topic in ("hers", "seen", "secret"):
                make_topic(admin, topic)
            allow(admin, "User:ann", AclOperation.WRITE, ResourceType.TOPIC, "hers")
            allow(admin, "User:ann", AclOperation.DESCRIBE, ResourceType.TOPIC, "seen")
            allow(admin, "User:bob", AclOperation.DESCRIBE, ResourceType.TOPIC, "seen")
        yield running


def user_of(guarded: RunningBroker, name: str, password: str = "") -> Producer:
    (address,) = [a for a in guarded.addresses if a.listener == "SASL_PLAINTEXT"]
    return Producer(
        bootstrap_servers=f"{address.host}:{address.port}",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=name,
        sasl_plain_password=password or f"{name}-secret",
        max_block_ms=5000,
        linger_ms=0,
    )


def test_the_error_of_an_unauthorized_topic_has_its_name(guarded: RunningBroker) -> None:
    """E3: topics that may not be described, and one that may not be written to."""
    with user_of(guarded, "ann") as producer:
        assert producer.send("hers", b"v").result(WAIT_S).offset == 0
        with pytest.raises(AuthorizationError, match="secret"):
            producer.send("secret", b"v")
        error = producer.send("seen", b"v").exception(WAIT_S)
        assert isinstance(error, AuthorizationError)
        assert "WRITE" in error.message
        assert "seen" in error.message
        assert producer.send("hers", b"v").result(WAIT_S).offset == 1


def test_the_error_of_an_unauthorized_idempotent_producer_has_a_remedy(
    guarded: RunningBroker,
) -> None:
    """E3: bob may nothing; nothing hangs, also not the second time."""
    with user_of(guarded, "bob") as producer:
        for _ in range(2):
            error = producer.send("seen", b"v").exception(WAIT_S)
            assert isinstance(error, AuthorizationError)
            assert "IDEMPOTENT_WRITE" in error.message


def test_a_wrong_password_raises_at_once(guarded: RunningBroker) -> None:
    """E3."""
    with (
        user_of(guarded, "ann", "wrong") as producer,
        pytest.raises(AuthenticationError, match="password"),
    ):
        producer.send("hers", b"v")
