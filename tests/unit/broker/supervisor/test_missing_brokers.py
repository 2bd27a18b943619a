"""Brokers whose replicas would be missing are named."""

import pytest

from penstock.broker.supervisor.missing_brokers import missing_brokers, warn_of_missing_brokers
from penstock.controller.metadata import Assignment, Record, TopicRecord
from tests.support.cluster.metadata_changes import config as config_record
from tests.support.cluster.metadata_changes import topic


def test_brokers_that_are_not_started_but_have_replicas_are_named() -> None:
    records: list[Record] = [
        config_record(("users", "ann"), a="1"),
        TopicRecord("a", topic("a").topic_id, {0: Assignment((0, 3)), 1: Assignment((3, 2))}),
        TopicRecord("b", topic("b").topic_id, {0: Assignment((3,))}),
        TopicRecord("c", topic("c").topic_id, {0: Assignment((0, 1))}),
    ]
    assert missing_brokers(records, range(2)) == {2: ["a"], 3: ["a", "b"]}
    assert missing_brokers(records, range(4)) == {}


def test_the_warning_names_a_few_topics(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_missing_brokers([topic(f"t{number}") for number in range(7)], [0])
    assert caplog.messages == [
        "broker 1 has replicas of t0, t1, t2, t3, t4 and 2 more, but only 1 broker is started: "
        "those replicas are offline; start penstock serve with more --brokers, or move the "
        "replicas first"
    ]
