"""Missing and unreadable topics are found before Spark starts (E5, E3)."""

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
        return {topic: self.counts.get(topic, missing) for topic in topics}

    def creates_missing(self) -> bool:
        return self.creates


def new_pipeline(servers: str = "localhost:9092") -> Pipeline:
    pipeline = Pipeline("p", bootstrap_servers=servers)
    pipeline.source("clicks", topic="clicks", schema="a int")
    pipeline.source("all", pattern="shop-.*", schema="a int")
    pipeline.to_topic("clicks", "out")
    pipeline.dead_letters(topic="dead")
    return pipeline


def problems_of(topics: FakeTopics, spec: PipelineSpec | None = None) -> list[str]:
    return [str(problem) for problem in check_topics(spec or new_pipeline().spec, topics)]


def test_existing_topics_are_no_problem() -> None:
    assert problems_of(FakeTopics({"clicks": 3, "shop-a": 1, "out": 1})) == []


def test_the_broker_may_create_the_topic_of_a_sink() -> None:
    counts = {"clicks": 3, "shop-a": 1}
    assert problems_of(FakeTopics(counts)) == []
    assert problems_of(FakeTopics(counts, creates=False)) == [
        "sinks.clicks.topic: unknown topic out: create it (`penstock topic create out`) "
        "(there is: clicks, shop-a)"
    ]


def test_missing_topics_are_problems() -> None:
    assert problems_of(FakeTopics({"click": 3, "out": 1})) == [
        "sources.clicks.topic: unknown topic clicks: did you mean click?",
        "sources.all.pattern: no topic matches shop-.* (topics: click, out)",
    ]


def test_an_unauthorized_topic_is_a_problem() -> None:
    denied = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "User:x may not DESCRIBE clicks")
    assert problems_of(FakeTopics({"clicks": denied, "shop-a": 1, "out": 1})) == [
        "sources.clicks.topic: topic clicks: User:x may not DESCRIBE clicks"
    ]


def test_an_unreachable_broker_is_a_problem() -> None:
    timeout = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no broker responds at localhost:9092")
    assert problems_of(FakeTopics(error=timeout)) == [
        "pipeline.bootstrap_servers: the broker cannot be reached: no broker responds at "
        "localhost:9092"
    ]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        with new_admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic("clicks", 3), NewTopic("shop-a", 1)])
        yield broker


def test_topics_of_a_real_broker(broker: Broker) -> None:
    spec = new_pipeline(broker.bootstrap_servers).spec
    with broker_topics(spec) as topics:
        assert check_topics(spec, topics) == []
        assert topics.partitions(["clicks"]) == {"clicks": 3}
        counts = topics.partitions(["clicks", "klicks"])
        assert topics.partitions([]) == {}
        assert topics.creates_missing()
    assert counts["clicks"] == 3
    assert isinstance(counts["klicks"], KafkaError)


def test_validate_checks_topics_when_it_is_online(broker: Broker) -> None:
    pipeline = new_pipeline(broker.bootstrap_servers)
    pipeline.source("orders", topic="oders", schema="a int")
    assert pipeline.validate() == []
    assert [str(problem) for problem in pipeline.validate(online=True)] == [
        "sources.orders.topic: unknown topic oders: create it (`penstock topic create oders`) "
        "(there is: clicks, shop-a)"
    ]
