"""How an application on Kafka is tested with Penstock, here one that uses confluent-kafka.

    pytest examples/test_with_confluent_kafka.py

The first half is the application: it reads orders, adds them up and writes the sums. It knows
nothing of Penstock. The second half are its tests; `kafka_broker` and `kafka_topic` come from
Penstock's plugin for pytest.
"""

import json
from collections import defaultdict

import pytest
from confluent_kafka import Consumer, Producer

from penstock.testing import ApiKey, Broker

# --- the application


class Shop:
    """Writes orders."""

    def __init__(self, servers: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})

    def order(self, customer: str, cents: int) -> None:
        self._producer.produce(self._topic, json.dumps({"cents": cents}), key=customer)

    def flush(self) -> int:
        """Waits for the broker, and returns how many orders are not written yet."""
        return self._producer.flush(30)


class Bill:
    """Reads orders, and sums up what each customer owes."""

    def __init__(self, servers: str, topic: str, group: str = "bill") -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe([topic])
        self.owed: defaultdict[str, int] = defaultdict(int)

    def read(self, orders: int) -> None:
        """Reads as many orders, and commits their offsets."""
        while orders:
            message = self._consumer.poll(30)
            if message is None:
                raise TimeoutError(f"{orders} orders did not come")
            if message.error():
                continue  # the client reports a lost connection, and reconnects automatically
            orders -= 1
            customer, order = message.key(), message.value()
            assert customer is not None
            assert order is not None
            self.owed[customer.decode()] += json.loads(order)["cents"]
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


# --- its tests


@pytest.fixture
def shop(kafka_broker: Broker, kafka_topic: str) -> Shop:
    return Shop(kafka_broker.bootstrap_servers, kafka_topic)


def owed(broker: Broker, topic: str, orders: int) -> dict[str, int]:
    bill = Bill(broker.bootstrap_servers, topic)
    try:
        bill.read(orders)
    finally:
        bill.close()
    return dict(bill.owed)


@pytest.mark.kafka_topic(partitions=3)
def test_orders_are_added_up(shop: Shop, kafka_broker: Broker, kafka_topic: str) -> None:
    shop.order("ann", 100)
    shop.order("bob", 250)
    shop.order("ann", 50)
    assert shop.flush() == 0
    assert owed(kafka_broker, kafka_topic, orders=3) == {"ann": 150, "bob": 250}


def test_the_next_bill_begins_where_the_last_one_ended(
    shop: Shop, kafka_broker: Broker, kafka_topic: str
) -> None:
    for cents in (100, 7):
        shop.order("ann", cents)
        assert shop.flush() == 0
        assert owed(kafka_broker, kafka_topic, orders=1) == {"ann": cents}


def test_a_lost_response_duplicates_no_order(
    shop: Shop, kafka_broker: Broker, kafka_topic: str
) -> None:
    """The producer cannot know whether its order was written, and sends it again."""
    with kafka_broker.losing_replies(ApiKey.PRODUCE, times=1) as lost:
        shop.order("ann", 100)
        assert shop.flush() == 0
    assert lost.count == 1
    shop.order("bob", 1)
    assert shop.flush() == 0
    assert owed(kafka_broker, kafka_topic, orders=2) == {"ann": 100, "bob": 1}


def test_a_broker_that_is_killed_loses_no_order(
    shop: Shop, kafka_broker: Broker, kafka_topic: str
) -> None:
    shop.order("ann", 100)
    kafka_broker.kill()
    shop.order("ann", 50)
    kafka_broker.start()
    assert shop.flush() == 0
    assert owed(kafka_broker, kafka_topic, orders=2) == {"ann": 150}
