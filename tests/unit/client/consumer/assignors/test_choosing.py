"""Assignors by name, and what they say to each other."""

from collections.abc import Mapping

import pytest

from penstock.client.consumer.assignors import (
    Assignment,
    Assignor,
    RebalanceProtocol,
    Subscription,
    TopicRacks,
    assignors_of,
    common_protocol,
)
from penstock.client.consumer.assignors.encoding import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from penstock.client.errors import ConfigError
from penstock.core.ids import TopicPartition


class Mine(Assignor):
    name = "mine"
    protocols = (RebalanceProtocol.COOPERATIVE,)

    def assign(
        self, topics: TopicRacks, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        return {}


def test_names() -> None:
    java = "org.apache.kafka.clients.consumer.StickyAssignor"
    result = assignors_of(["range", java, "roundrobin"])
    assert [assignor.name for assignor in result] == ["range", "sticky", "roundrobin"]
    assert [a.name for a in assignors_of("range, cooperative-sticky")] == [
        "range",
        "cooperative-sticky",
    ]
    mine = Mine()
    assert assignors_of([mine]) == [mine]
    assert isinstance(assignors_of([Mine])[0], Mine)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (["rang"], "there is no assignor 'rang'; use range, roundrobin"),
        ([], "is empty"),
        (["range", "range"], "two assignors named 'range'"),
        (["range", Mine], "no rebalance protocol in common"),
        ([dict], "extends penstock.client.consumer.assignors.Assignor"),
    ],
)
def test_invalid_choices_are_refused(choice: list[str | type[Assignor]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        assignors_of(choice)


def test_a_group_is_cooperative_only_if_all_assignors_are() -> None:
    """So that members can be moved to the cooperative protocol one by one."""
    assert common_protocol(assignors_of("cooperative-sticky")) is RebalanceProtocol.COOPERATIVE
    assert common_protocol(assignors_of("range,cooperative-sticky")) is RebalanceProtocol.EAGER


def test_subscriptions_are_decoded_as_they_were_encoded() -> None:
    subscription = Subscription(
        ["b", "a"], b"data", [TopicPartition("b", 1), TopicPartition("a", 3)], 5, "rack"
    )
    data = encode_subscription(subscription)
    assert data[:2] == b"\x00\x03"
    decoded = Subscription(
        ("a", "b"), b"data", (TopicPartition("a", 3), TopicPartition("b", 1)), 5, "rack", "me"
    )
    assert decode_subscription(data, "me") == decoded
    # Later versions begin with the same fields.
    assert decode_subscription(b"\x00\x09" + data[2:] + b"more", "me") == decoded
    # Version 0: topics and user data only.
    assert decode_subscription(b"\x00\x00\x00\x00\x00\x01\x00\x01a\xff\xff\xff\xff") == (
        Subscription(("a",))
    )


def test_assignments_are_decoded_as_they_were_encoded() -> None:
    assignment = Assignment(
        (TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("b", 0)), b"x"
    )
    data = encode_assignment(assignment)
    decoded = Assignment(
        (TopicPartition("b", 1), TopicPartition("b", 0), TopicPartition("a", 0)), b"x"
    )
    assert decode_assignment(data) == decoded
    assert decode_assignment(b"\x00\x07" + data[2:]) == decoded
