"""An idle query sends few requests to the broker (D1)."""

from penstock.core.ids import TopicPartition
from penstock.spark.progress import SourceOffsets
from penstock.spark.source.latest_offset_cache import LatestOffsetCache

A = TopicPartition("t", 0)
NOTHING = SourceOffsets({A: 0})


class FakeBroker:
    def __init__(self) -> None:
        self.end = 0
        self.requests = 0

    def latest(self, previous: SourceOffsets | None = None) -> SourceOffsets:
        self.requests += 1
        return SourceOffsets({A: self.end})


class Environment:
    def __init__(self) -> None:
        self.now = 100.0
        self.broker = FakeBroker()
        self.cache = LatestOffsetCache(self.broker, lambda: self.now)

    def latest(self, times: int = 1) -> SourceOffsets:
        """Calls the cache as Spark does for an idle query: 90 times a second."""
        for _ in range(times):
            self.now += 1 / 90
            result = self.cache.latest(NOTHING)
        return result


def test_an_idle_query_sends_ten_requests_a_second() -> None:
    environment = Environment()
    environment.latest(900)
    first_requests = environment.broker.requests
    assert environment.latest(900) == NOTHING
    assert environment.broker.requests - first_requests <= 100
    assert first_requests <= 130


def test_a_change_soon_after_a_change_is_detected_soon() -> None:
    environment = Environment()
    environment.latest()
    environment.broker.end = 5
    assert environment.latest(3).offsets == {A: 5}
    environment.broker.end = 6
    assert environment.latest(3).offsets == {A: 6}


def test_a_change_after_a_long_pause_is_detected_within_half_a_second() -> None:
    environment = Environment()
    environment.latest(9_000)
    environment.broker.end = 5
    assert environment.latest(46).offsets == {A: 5}


def test_the_last_offsets_can_be_reported() -> None:
    environment = Environment()
    assert environment.cache.last is None
    environment.latest()
    assert environment.cache.last == NOTHING
