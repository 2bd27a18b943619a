"""Limits of connections and of repeated log messages."""

from penstock.net.server.limits import Admission, Limits, LogRateLimiter


def test_connections_are_counted_in_total_by_listener_and_by_address() -> None:
    limits = Limits(
        max_connections=4,
        max_connections_per_ip=2,
        per_ip_overrides={"10.0.0.9": 3, "10.0.0.8": 0},
        max_connections_per_listener={"SMALL": 1},
    )
    admission = Admission(limits)
    assert "max.connections.per.ip=0" in str(admission.refusal("10.0.0.8"))
    for _ in range(3):
        assert admission.refusal("10.0.0.9") is None
        admission.enter("A", "10.0.0.9")
    assert "max.connections.per.ip=3" in str(admission.refusal("10.0.0.9"))
    admission.enter("SMALL", "10.0.0.1")
    assert "max.connections=4" in str(admission.lacks_room("A"))
    limits.max_connections = 5
    assert admission.lacks_room("A") is None
    assert "listener SMALL" in str(admission.lacks_room("SMALL"))
    admission.leave("SMALL", "10.0.0.1")
    assert admission.lacks_room("SMALL") is None
    assert admission.by_ip == {"10.0.0.9": 3}
    assert (admission.total, admission.by_listener["A"]) == (3, 3)


def test_the_protected_listener_may_exceed_the_total_limit_but_not_its_own() -> None:
    limits = Limits(
        max_connections=1, protected_listener="IN", max_connections_per_listener={"IN": 2}
    )
    admission = Admission(limits)
    admission.enter("OUT", "10.0.0.1")
    assert (admission.excess, admission.lacks_room("IN")) == (0, None)
    assert admission.lacks_room("OUT") is not None
    for excess in (1, 2):
        admission.enter("IN", "10.0.0.2")
        assert admission.excess == excess
    assert "max.connections=2 of listener IN" in str(admission.lacks_room("IN"))


def test_descriptors_for_connections_include_delayed_sockets() -> None:
    limits = Limits(max_sockets=20)
    admission = Admission(limits)
    for _ in range(18):
        admission.enter("A", "10.0.0.1")
    admission.delayed = 1
    assert admission.lacks_descriptor("A") is None
    admission.delayed = 2
    assert "the 20 descriptors for connections are in use" in str(admission.lacks_descriptor("A"))
    assert "(2 connections refused so far)" in str(admission.lacks_descriptor("A"))
    admission.leave("A", "10.0.0.1")
    assert admission.lacks_descriptor("A") is None
    limits.protected_listener = "IN"
    assert admission.lacks_descriptor("A") is not None
    assert admission.lacks_descriptor("IN") is None


def test_a_limit_of_an_address_takes_precedence_over_one_of_its_host_name() -> None:
    limits = Limits(max_connections_per_ip=0, per_ip_overrides={"10.0.0.1": 1, "known": 0})
    admission = Admission(limits)
    admission.named_overrides = {"10.0.0.1": 0, "10.0.0.2": 1}
    assert admission.refusal("10.0.0.1") is None
    assert admission.refusal("10.0.0.2") is None
    assert admission.refusal("10.0.0.3") is not None


def test_repeated_messages_are_limited_and_the_suppressed_ones_counted() -> None:
    limiter = LogRateLimiter(interval_ms=1000, lines=2)
    assert [limiter.allow("x", 0) for _ in range(10)] == [0, 0] + [None] * 8
    assert limiter.allow("y", 0) == 0
    assert limiter.allow("x", 999) is None
    assert limiter.allow("x", 1000) == 9
    assert limiter.allow("x", 1001) == 0
    assert limiter.allow("x", 1002) is None
