"""Subscriptions to clients' metrics: patterns that a hostile client id cannot make slow."""

from penstock.broker.client_telemetry import _subscription


def test_matching_a_hostile_client_id_takes_linear_time() -> None:
    subscription = _subscription({"match": "client_id=(a+)+b"})
    assert subscription.matches({"client_id": "aab"})
    assert not subscription.matches({"client_id": "a" * 5000})
