"""An idle query sends few requests to the broker (D1)."""

from penstock.core.ids import TopicPartition
from penstock.spark.progress import SourceOffsets
from penstock.spark.source.latest_offset_cache import LatestOffsetCache

A = TopicPartition("t", 0)
NOTHING = SourceOffsets({A: 0})


class Ends:
    def __init__(self) -> None:
        self.end = 0
        self.questions = 0

    def latest(self, known: SourceOffsets | None = None) -> SourceOffsets:
        self.questions += 1
        return SourceOffsets({A: self.end})


class Environment:
    def __init__(self) -> None:
        self.now = 100.0
        self.ends = Ends()
        self.watch = LatestOffsetCache(self.ends, lambda: self.now)

    def ask(self, times: int = 1) -> SourceOffsets:
        """Calls the cache as Spark does for an idle query: 90 times a second."""
        for _ in range(times):
            self.now += 1 / 90
            result = self.watch.latest(NOTHING)
        return result


def test_an_idle_query_sends_ten_requests_a_second() -> None:
    environment = Environment()
    environment.ask(900)
    before = environment.ends.questions
    assert environment.ask(900) == NOTHING
    assert environment.ends.questions - before <= 100
    assert before <= 130


def test_a_change_soon_after_a_change_is_detected_soon() -> None:
    environment = Environment()
    environment.ask()
    environment.ends.end = 5
    assert environment.ask(3).offsets == {A: 5}
    environment.ends.end = 6
    assert environment.ask(3).offsets == {A: 6}


def test_a_change_after_a_long_pause_is_detected_within_half_a_second() -> None:
    environment = Environment()
    environment.ask(9_000)
    environment.ends.end = 5
    assert environment.ask(46).offsets == {A: 5}


def test_the_last_offsets_can_be_reported() -> None:
    environment = Environment()
    assert environment.watch.last is None
    environment.ask()
    assert environment.watch.last == NOTHING
