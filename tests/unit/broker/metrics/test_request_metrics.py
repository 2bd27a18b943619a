"""Requests are counted exactly, and measured as far as that is cheap."""

from penstock.broker.metrics.request_metrics import (
    MEASURED_PER_S,
    ApiMetrics,
    RequestMetrics,
    error_name,
)
from penstock.protocol.api_key import ApiKey


def handle(api: ApiMetrics, requests: int) -> int:
    """Counts requests as the dispatcher does; returns how many of them are measured."""
    measured = 0
    for _ in range(requests):
        api.requests += 1
        if not api.requests & api.mask:
            measured += 1
            api.record(1.0, 1.5, 2.0, 4.0, 4.25)
    return measured


def test_the_phases_of_a_request_add_up() -> None:
    api = RequestMetrics(enabled=True).produce
    handle(api, 1)
    phases = (api.queue, api.local, api.remote, api.response)
    assert [phase.sum for phase in phases] == [0.5, 0.5, 2.0, 0.25]
    assert api.total.sum == 3.25
    assert {phase.count for phase in (*phases, api.total)} == {1}


def test_few_requests_are_all_measured() -> None:
    api = RequestMetrics(enabled=True).produce
    assert handle(api, MEASURED_PER_S - 1) == MEASURED_PER_S - 1
    api.adapt(1.0)
    assert handle(api, 100) == 100


def test_of_many_requests_some_stand_for_all() -> None:
    api = RequestMetrics(enabled=True).produce
    handle(api, 50_000)
    api.adapt(1.0)
    before = api.total.count
    measured = handle(api, 50_000)
    assert 0 < measured <= 2 * MEASURED_PER_S
    assert abs(api.total.count - before - 50_000) <= 50_000 / measured
    assert api.requests == 100_000


def test_after_a_burst_all_are_measured_again() -> None:
    api = RequestMetrics(enabled=True).produce
    handle(api, 50_000)
    api.adapt(1.0)
    for _ in range(10):
        api.adapt(0.25)
    assert handle(api, 10) == 10


def test_without_metrics_requests_are_only_counted() -> None:
    metrics = RequestMetrics(enabled=False)
    assert handle(metrics.produce, 100) == 0
    metrics.adapt(1.0)
    assert handle(metrics.produce, 100) == 0
    assert metrics.produce.requests == 200


def test_fetches_of_followers_are_apart_and_measured_as_often() -> None:
    metrics = RequestMetrics(enabled=True)
    consumer = metrics.by_api[ApiKey.FETCH]
    handle(consumer, 10_000)
    assert metrics.move_to_follower() is metrics.follower_fetch
    assert (consumer.requests, metrics.follower_fetch.requests) == (9_999, 1)
    metrics.adapt(1.0)
    assert consumer.mask == metrics.follower_fetch.mask > 0


def test_names_are_kafkas() -> None:
    metrics = RequestMetrics(enabled=True)
    assert metrics.by_api[ApiKey.INIT_PRODUCER_ID].name == "InitProducerId"
    assert error_name(3) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert error_name(30_000) == "30000"
