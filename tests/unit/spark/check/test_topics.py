"""Topics that are not there, or may not be read, found before Spark starts (E5, E3)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from penstock.client.admin import NewTopic
from penstock.core.errors import ErrorCode, KafkaError
from penstock.spark.check.topics import broker_topics, check_topics
from penstock.spark.clients import new_admin
from penstock.spark.pipeline.api import Pipeline
from penstock.spark.pipeline.model import PipelineSpec
from penstock.testing import Broker


@dataclass
class FakeTopics:
    counts: Mapping[str, int | KafkaError] = field(default_factory=dict)
    creates: bool = True
    error: KafkaError | None = None

    def names(self) -> Sequence[str]:
        if self.error is not None:
            raise self.error
        return list(self.counts)

    def partitions(self, topics: Sequence[str]) -> Mapping[str, int | KafkaError]:
        missing = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone")
        return {each: self.counts.get(each, missing) for each in topics}

    def creates_missing(self) -> bool:
        return self.creates


def _pipeline(servers: str = "localhost:9092") -> Pipeline:
    made = Pipeline("p", bootstrap_servers=servers)
    made.source("clicks", topic="clicks", schema="a int")
    made.source("all", pattern="shop-.*", schema="a int")
    made.to_topic("clicks", "out")
    made.dead_letters(topic="dead")
    return made


def _found(topics: FakeTopics, spec: PipelineSpec | None = None) -> list[str]:
    return [str(each) for each in check_topics(spec or _pipeline().spec, topics)]


def test_topics_that_are_there() -> None:
    assert _found(FakeTopics({"clicks": 3, "shop-a": 1, "out": 1})) == []


def test_a_topic_to_write_to_may_be_made_by_the_broker() -> None:
    counts = {"clicks": 3, "shop-a": 1}
    assert _found(FakeTopics(counts)) == []
    assert _found(FakeTopics(counts, creates=False)) == [
        "sinks.clicks.topic: unknown topic out: create it (`penstock topic create out`) "
        "(there is: clicks, shop-a)"
    ]


def test_topics_that_are_not_there() -> None:
    assert _found(FakeTopics({"click": 3, "out": 1})) == [
        "sources.clicks.topic: unknown topic clicks: did you mean click?",
        "sources.all.pattern: no topic matches shop-.* (topics: click, out)",
    ]


def test_a_topic_that_may_not_be_read() -> None:
    denied = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "User:x may not DESCRIBE clicks")
    assert _found(FakeTopics({"clicks": denied, "shop-a": 1, "out": 1})) == [
        "sources.clicks.topic: topic clicks: User:x may not DESCRIBE clicks"
    ]


def test_a_broker_that_is_not_there() -> None:
    gone = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no broker answers at localhost:9092")
    assert _found(FakeTopics(error=gone)) == [
        "pipeline.bootstrap_servers: the broker cannot be reached: no broker answers at "
        "localhost:9092"
    ]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        with new_admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic("clicks", 3), NewTopic("shop-a", 1)])
        yield broker


def test_a_real_broker_is_asked(broker: Broker) -> None:
    spec = _pipeline(broker.bootstrap_servers).spec
    with broker_topics(spec) as topics:
        assert check_topics(spec, topics) == []
        assert topics.partitions(["clicks"]) == {"clicks": 3}
        counts = topics.partitions(["clicks", "klicks"])
        assert topics.partitions([]) == {}
        assert topics.creates_missing()
    assert counts["clicks"] == 3
    assert isinstance(counts["klicks"], KafkaError)


def test_validate_asks_if_it_is_told_to(broker: Broker) -> None:
    made = _pipeline(broker.bootstrap_servers)
    made.source("orders", topic="oders", schema="a int")
    assert made.validate() == []
    assert [str(each) for each in made.validate(online=True)] == [
        "sources.orders.topic: unknown topic oders: create it (`penstock topic create oders`) "
        "(there is: clicks, shop-a)"
    ]
