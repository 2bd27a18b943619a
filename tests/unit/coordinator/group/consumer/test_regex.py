"""Subscriptions by regex: the searches that the host runs, and their results (C3)."""

from penstock.coordinator.group.config import ConsumerGroupConfig, GroupConfig
from penstock.coordinator.group.events import RegexResolved, ResolveRegexes
from penstock.core.errors import ErrorCode
from tests.support.coordinator.consumer_groups import Consumer, consumer_host, kinds, reconcile
from tests.support.coordinator.groups import GroupHost

CONFIG = GroupConfig(
    group_consumer_regex_refresh_interval_ms=60_000,
    consumer=ConsumerGroupConfig(assignment_interval_ms=0),
)


def host_of(**topics: int) -> GroupHost:
    return consumer_host(topics, CONFIG)


def resolve(host: GroupHost, **matches: list[str]) -> None:
    """Completes the only running search."""
    (search,) = host.regexes
    host.regexes.clear()
    names = {"x.*": matches.get("x", []), "y.*": matches.get("y", [])}
    topics = {pattern: frozenset(names[pattern]) for pattern in search.patterns}
    host.event(RegexResolved("g", topics, 7, host.now))


def test_a_pattern_is_resolved_and_then_assigned() -> None:
    host = host_of(x1=1, x2=2, z=1)
    member = Consumer(host, "a", names=None, regex="x.*")
    member.join()
    assert member.assigned == {}
    assert host.regexes == [ResolveRegexes("g", frozenset(["x.*"]), None)]
    since = len(host.log)
    resolve(host, x=["x1", "x2"])
    assert kinds(host, since) == [16, 3]
    member.beat()
    assert member.assigned == {"x1": [0], "x2": [0, 1]}
    host.restart()
    assert host.consumer().topics_of(host.consumer().members["a"]) == {"x1", "x2"}


def test_names_and_patterns_add_up() -> None:
    host = host_of(x1=1, z=1)
    member = Consumer(host, "a", names=["z"], regex="x.*")
    member.join()
    assert member.assigned == {"z": [0]}
    resolve(host, x=["x1", "z"])
    member.beat()
    assert member.assigned == {"x1": [0], "z": [0]}


def test_searches_run_one_at_a_time_with_a_minimum_interval() -> None:
    host = host_of(x1=1)
    first = Consumer(host, "a", names=None, regex="x.*")
    first.join()
    second = Consumer(host, "b", names=None, regex="y.*")
    second.join()
    assert len(host.regexes) == 1
    resolve(host, x=["x1"])
    second.beat()
    assert not host.regexes
    host.advance(10_000)
    second.beat()
    assert not host.regexes
    host.advance(1)
    second.beat()
    assert host.regexes == [ResolveRegexes("g", frozenset(["x.*", "y.*"]), None)]


def test_a_search_of_the_future_delays_no_other() -> None:
    """The clock was set back, or that of the last coordinator was ahead."""
    host = host_of(x1=1)
    Consumer(host, "a", names=None, regex="x.*").join()
    resolve(host, x=["x1"])
    host.now -= 3_600_000
    Consumer(host, "b", names=None, regex="y.*").join()
    assert host.regexes == [ResolveRegexes("g", frozenset(["x.*", "y.*"]), None)]


def test_a_resolved_pattern_needs_no_search() -> None:
    host = host_of(x1=2)
    first, second = (Consumer(host, m, names=None, regex="x.*") for m in "ab")
    first.join()
    resolve(host, x=["x1"])
    reconcile(first)
    second.join()
    assert not host.regexes
    reconcile(first, second)
    assert (first.assigned, second.assigned) == ({"x1": [0]}, {"x1": [1]})


def test_new_topics_are_searched_for() -> None:
    host = host_of(x1=1)
    member = Consumer(host, "a", names=None, regex="x.*")
    member.join()
    resolve(host, x=["x1"])
    reconcile(member)
    host.make_topics({"x2": 1})
    member.beat()
    assert not host.regexes
    host.advance(10_001)
    member.beat()
    resolve(host, x=["x1", "x2"])
    member.beat()
    assert member.assigned == {"x1": [0], "x2": [0]}
    host.advance(10_001)
    member.beat()
    assert not host.regexes


def test_topics_created_during_a_search_trigger_another() -> None:
    host = host_of(x1=1)
    member = Consumer(host, "a", names=None, regex="x.*")
    member.join()
    (search,) = host.regexes
    host.regexes.clear()
    started = host.now
    host.advance(5)
    host.make_topics({"x2": 1})
    host.event(RegexResolved("g", {"x.*": frozenset(["x1"])}, 7, started))
    host.advance(10_001)
    member.beat()
    assert host.regexes == [search]


def test_patterns_are_resolved_again_periodically() -> None:
    """ACLs may have changed."""
    host = host_of(x1=1)
    member = Consumer(host, "a", names=None, regex="x.*")
    member.join()
    resolve(host, x=[])
    for _ in range(3):
        host.advance(20_000)
        member.beat()
    assert not host.regexes
    host.advance(1)
    member.beat()
    since = len(host.log)
    resolve(host, x=[])
    assert kinds(host, since) == [16], "the same topics: no new epoch"


def test_a_failed_search_is_retried() -> None:
    host = host_of(x1=1)
    member = Consumer(host, "a", names=None, regex="x.*")
    member.join()
    host.regexes.clear()
    host.event(RegexResolved("g", None, 7, host.now))
    member.beat()
    host.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    resolve(host, x=["x1"])
    assert not host.consumer().resolved
    member.beat()
    resolve(host, x=["x1"])
    member.beat()
    assert member.assigned == {"x1": [0]}


def test_a_pattern_is_removed_with_its_last_member() -> None:
    host = host_of(x1=1, t=1)
    first = Consumer(host, "a", names=["t"], regex="x.*")
    second = Consumer(host, "b", names=["t"], regex="x.*")
    first.join()
    second.join()
    resolve(host, x=["x1"])
    reconcile(first, second)
    since = len(host.log)
    second.leave()
    assert kinds(host, since) == [-8, -7, -5, 3]
    since = len(host.log)
    first.beat(regex="")
    assert -16 in kinds(host, since)
    assert not host.consumer().is_subscribed_to("x1")
    reconcile(first)
    assert first.assigned == {"t": [0]}
    second.join()
    since = len(host.log)
    second.leave()
    assert kinds(host, since) == [-8, -7, -5, -16, 3]


def test_a_late_search_result_is_ignored() -> None:
    host = host_of(x1=1)
    member = Consumer(host, "a", names=["x1"], regex="x.*")
    member.join()
    member.beat(regex="")
    since = len(host.log)
    resolve(host, x=["x1"])
    assert kinds(host, since) == []
    host.event(RegexResolved("other", {"x.*": frozenset(["x1"])}, 7, host.now))
    assert "other" not in host.shard.groups
