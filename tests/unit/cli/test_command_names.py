"""How topics, partitions and settings are named on the command line."""

import pytest

from penstock.cli.names import (
    PartitionSet,
    TopicSelection,
    and_more,
    choose_partitions,
    choose_topics,
    count_of,
    key_values,
    one_partition,
    replica_lists,
)
from penstock.cli.output import UsageError
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition

TOPICS = ["orders", "orders.eu", "orders-us", "other"]


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        (["orders"], ["orders"]),
        (["orders.eu"], ["orders.eu"]),
        (["orders.*"], ["orders", "orders-us", "orders.eu"]),
        (["orders.*", "orders"], ["orders", "orders-us", "orders.eu"]),
        (["orders,other"], ["orders", "other"]),
        (["o.*r,orders.eu"], ["orders.eu", "other"]),
        (["missing"], ["missing"]),
        (["__hidden"], ["__hidden"]),
    ],
)
def test_a_word_is_a_name_or_a_pattern(words: list[str], chosen: list[str]) -> None:
    assert choose_topics(words, TOPICS, ["__hidden"]) == chosen


def test_a_pattern_that_fits_nothing() -> None:
    with pytest.raises(KafkaError, match=r"no topic matches 'x\.\*'") as error:
        choose_topics(["x.*"], TOPICS)
    assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError, match="--internal"):
        choose_topics(["__.*"], TOPICS, ["__hidden"])
    assert choose_topics(["x.*"], TOPICS, must_match=False) == []
    with pytest.raises(UsageError, match="is not a regular expression"):
        choose_topics(["(x"], TOPICS)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("3", {3}), ("0,2", {0, 2}), ("1-3", {1, 2, 3}), ("4-", {4, 5}), ("0,4-5", {0, 4, 5})],
)
def test_numbers_of_partitions(text: str, numbers: set[int]) -> None:
    chosen = PartitionSet.parse(text)
    assert {index for index in range(6) if chosen.has(index)} == numbers


@pytest.mark.parametrize("text", ["", "a", "-3", "3-1", "1 2", "1,,2", "٣"])
def test_numbers_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        PartitionSet.parse(text)


def test_partitions_of_topics() -> None:
    counts = {"orders": 3, "other": 2, "__hidden": 5}
    at = TopicPartition
    assert choose_partitions(["orders:1-", "o.*:0"], counts, ["__hidden"]) == [
        at("orders", 0),
        at("orders", 1),
        at("orders", 2),
        at("other", 0),
    ]
    assert choose_partitions(["__hidden:4"], counts, ["__hidden"]) == [at("__hidden", 4)]
    with pytest.raises(KafkaError, match="there is no topic missing"):
        choose_partitions(["missing"], counts)
    with pytest.raises(KafkaError, match="topic orders has no partition 3: it has 0 to 2"):
        choose_partitions(["orders:3"], counts)
    with pytest.raises(UsageError, match="does not name a topic"):
        TopicSelection.parse(":3")


def test_one_partition() -> None:
    assert one_partition("a-b:3") == TopicPartition("a-b", 3)
    for word in ("orders", "orders:", ":1", "orders:x", "orders:-1"):
        with pytest.raises(UsageError, match="such as orders:0"):
            one_partition(word)


def test_keys_and_values() -> None:
    assert key_values(["a=1", "b=", "c=x=y"], "--set") == {"a": "1", "b": "", "c": "x=y"}
    for word in ("a", "=1"):
        with pytest.raises(UsageError, match=r"--set .*KEY=VALUE"):
            key_values([word], "--set")


def test_replica_lists() -> None:
    assert replica_lists("0:1,1:2") == [[0, 1], [1, 2]]
    with pytest.raises(UsageError, match="such as 0:1,1:2"):
        replica_lists("0;1")


def test_words_for_people() -> None:
    assert (count_of(1, "copy", "copies"), count_of(2, "copy", "copies")) == ("1 copy", "2 copies")
    assert and_more([1, 2, 3], at_most=2) == "1, 2 and 1 more"
