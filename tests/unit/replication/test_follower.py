"""The machine of a replica fetcher: requests, sessions, errors, truncation and throttling."""

from uuid import UUID

import pytest

from penstock.core.errors import ErrorCode, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
)
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from penstock.replication.follower import FollowerMachine, FollowerRequest
from penstock.replication.follower_effects import Append, Effect, InitialFetch, Restart, Truncate
from penstock.replication.follower_session import FetcherSettings
from tests.sim.replication_log import RECORD, SimLog, SimRecord

TOPIC_ID = UUID(int=5)
KEYS = [TopicPartition("t", n) for n in range(4)]
T0 = KEYS[0]
BROKER = 1


class Quota:
    is_limited = True

    def __init__(self) -> None:
        self.has_exceeded = False

    def is_throttled(self, key: TopicPartition) -> bool:
        return key == T0

    def is_exceeded(self, now_ms: int) -> bool:
        return self.has_exceeded


class Fetcher:
    """A machine with its logs, and a clock."""

    def __init__(
        self, *, count: int = 1, truncates_on_fetch: bool = True, quota: Quota | None = None
    ) -> None:
        self.machine = FollowerMachine(
            FetcherSettings(BROKER, replica_fetch_backoff_ms=1000),
            quota,
            truncates_on_fetch=truncates_on_fetch,
        )
        self.now = 10_000
        self.logs = {key: SimLog() for key in KEYS[:count]}
        self.session = 0

    def add(self, epoch: int = 7) -> None:
        for key, log in self.logs.items():
            self.machine.add(key, InitialFetch(TOPIC_ID, epoch, log))

    def request(self) -> FollowerRequest | None:
        return self.machine.next_request(self.now, 55)

    def fetch(self) -> FetchRequest:
        request = self.request()
        assert isinstance(request, FetchRequest)
        return request

    def respond(
        self, request: FollowerRequest, *partitions: FetchPartitionData, session_id: int = 9
    ) -> list[Effect]:
        topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(partitions))]
        response = FetchResponse(session_id=session_id, responses=topics if partitions else [])
        return self.machine.handle_response(request, response, self.now)

    def open_session(self) -> None:
        request = self.fetch()
        assert request.session_epoch == 0
        for effect in self.respond(request, *(data(key.partition) for key in self.logs)):
            assert isinstance(effect, Append)
            self.machine.appended(effect)


def data(
    partition: int = 0,
    error: int = 0,
    *,
    high_watermark: int = 0,
    log_start_offset: int = 0,
    records: bytes = b"",
    diverging: tuple[int, int] | None = None,
) -> FetchPartitionData:
    result = FetchPartitionData(
        partition, error, high_watermark, -1, log_start_offset, records=records
    )
    if diverging is not None:
        result.diverging_epoch = FetchEpochEndOffset(*diverging)
    return result


def records(offset: int, *epochs: int) -> bytes:
    return b"".join(RECORD.pack(offset + n, epoch << 32, 0) for n, epoch in enumerate(epochs))


def filled(*epochs: int) -> SimLog:
    log = SimLog()
    for epoch in epochs:
        log.append(SimRecord(epoch, 0))
    return log


def offsets(request: FetchRequest) -> dict[int, int]:
    return {p.partition: p.fetch_offset for topic in request.topics for p in topic.partitions}


def forgotten(request: FetchRequest) -> list[int]:
    return [index for topic in request.forgotten_topics_data for index in topic.partitions]


# --- requests and sessions


def test_the_first_request_names_every_partition() -> None:
    fetcher = Fetcher(count=3)
    fetcher.logs[KEYS[1]] = filled(2, 2, 6)
    fetcher.add()
    request = fetcher.fetch()
    assert offsets(request) == {0: 0, 1: 3, 2: 0}
    partition = request.topics[0].partitions[1]
    assert (partition.current_leader_epoch, partition.last_fetched_epoch) == (7, 6)
    assert request.topics[0].partitions[0].last_fetched_epoch == -1
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (BROKER, 55)
    assert request.topics[0].topic_id == TOPIC_ID


def test_later_requests_name_what_has_changed() -> None:
    fetcher = Fetcher(count=3)
    fetcher.add()
    fetcher.open_session()
    request = fetcher.fetch()
    assert (request.session_id, request.session_epoch, request.topics) == (9, 1, [])
    (append,) = fetcher.respond(request, data(1, records=records(0, 7), high_watermark=1))
    assert isinstance(append, Append)
    fetcher.logs[KEYS[1]].append(SimRecord(7, 0))
    update = fetcher.machine.appended(append)
    assert (update.high_watermark, update.log_start_offset) == (1, None)
    request = fetcher.fetch()
    assert request.session_epoch == 2
    assert offsets(request) == {1: 1}


def test_removed_partitions_are_forgotten_and_their_data_ignored() -> None:
    fetcher = Fetcher(count=2)
    fetcher.add()
    fetcher.open_session()
    request = fetcher.fetch()
    (state,) = fetcher.machine.remove([T0])
    assert state.is_removed
    assert fetcher.respond(request, data(0, records=records(0, 7))) == []
    request = fetcher.fetch()
    assert (offsets(request), forgotten(request)) == ({}, [0])


def test_a_new_epoch_replaces_the_partition_in_the_session() -> None:
    fetcher = Fetcher(count=2)
    fetcher.add()
    fetcher.open_session()
    request = fetcher.fetch()
    fetcher.machine.add(T0, InitialFetch(TOPIC_ID, 8, fetcher.logs[T0]))
    # The response to the request in flight belongs to the old epoch.
    assert fetcher.respond(request, data(0, records=records(0, 7))) == []
    request = fetcher.fetch()
    assert (offsets(request), forgotten(request)) == ({0: 0}, [])
    assert request.topics[0].partitions[0].current_leader_epoch == 8


def test_the_same_epoch_again_changes_nothing() -> None:
    fetcher = Fetcher()
    fetcher.add()
    state = fetcher.machine.find(T0)
    fetcher.add()
    assert fetcher.machine.find(T0) is state


def test_partitions_added_during_the_first_request_follow_in_the_second() -> None:
    fetcher = Fetcher(count=1)
    fetcher.add()
    request = fetcher.fetch()
    fetcher.machine.add(KEYS[1], InitialFetch(TOPIC_ID, 7, SimLog()))
    fetcher.respond(request, data(0))
    assert offsets(fetcher.fetch()) == {1: 0}


@pytest.mark.parametrize(
    ("code", "session_id"),
    [(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 9)],
)
def test_a_refused_session_is_opened_again(code: ErrorCode, session_id: int) -> None:
    fetcher = Fetcher(count=2)
    fetcher.add()
    fetcher.open_session()
    response = FetchResponse(error_code=code)
    assert fetcher.machine.handle_response(fetcher.fetch(), response, fetcher.now) == []
    request = fetcher.fetch()
    assert (request.session_id, request.session_epoch) == (session_id, 0)
    assert offsets(request) == {0: 0, 1: 0}
    # If that does not help, not in a tight loop.
    fetcher.machine.handle_response(request, response, fetcher.now)
    assert fetcher.request() is None
    assert fetcher.machine.wake_up_ms(fetcher.now) == fetcher.now + 50


def test_a_full_response_without_all_partitions_is_invalid() -> None:
    fetcher = Fetcher(count=2)
    fetcher.add()
    assert fetcher.respond(fetcher.fetch(), data(0)) == []
    assert fetcher.fetch().session_epoch == 0


def test_a_leader_without_sessions_gets_full_requests_in_rotation() -> None:
    fetcher = Fetcher(count=3)
    fetcher.add()
    request = fetcher.fetch()
    effects = fetcher.respond(
        request, data(0, records=records(0, 7)), data(1), data(2), session_id=0
    )
    fetcher.logs[T0].append(SimRecord(7, 0))
    for effect in effects:
        assert isinstance(effect, Append)
        fetcher.machine.appended(effect)
    assert list(offsets(fetcher.fetch())) == [1, 2, 0]


def test_a_lost_request_is_repeated_after_growing_delays() -> None:
    fetcher = Fetcher()
    fetcher.add()
    for delay_ms in (50, 100, 200, 400, 800, 1000, 1000):
        fetcher.machine.handle_failure(fetcher.fetch(), fetcher.now)
        assert fetcher.request() is None
        assert fetcher.machine.wake_up_ms(fetcher.now) == fetcher.now + delay_ms
        fetcher.now += delay_ms
    fetcher.open_session()
    fetcher.machine.handle_failure(fetcher.fetch(), fetcher.now)
    assert fetcher.machine.wake_up_ms(fetcher.now) == fetcher.now + 50


def test_the_leader_learns_of_a_log_start_that_retention_has_raised() -> None:
    fetcher = Fetcher(count=2)
    fetcher.logs[T0] = filled(1, 1, 1)
    fetcher.add()
    fetcher.fetch()
    fetcher.respond(fetcher.fetch(), data(0), data(1))
    fetcher.logs[T0].advance_log_start(2)
    assert offsets(fetcher.fetch()) == {}
    fetcher.now += 5_000
    request = fetcher.fetch()
    assert request.topics[0].partitions[0].log_start_offset == 2


# --- errors


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        9999,
    ],
)
def test_an_error_delays_its_partition_only(code: int) -> None:
    fetcher = Fetcher(count=2)
    fetcher.add()
    fetcher.open_session()
    assert fetcher.respond(fetcher.fetch(), data(0, code)) == []
    request = fetcher.fetch()
    assert forgotten(request) == [0]
    fetcher.respond(request)
    fetcher.now += 50
    assert offsets(fetcher.fetch()) == {0: 0}


def test_a_fenced_partition_waits_for_the_next_epoch() -> None:
    fetcher = Fetcher()
    fetcher.add()
    fetcher.respond(fetcher.fetch(), data(0, ErrorCode.FENCED_LEADER_EPOCH))
    assert T0 in fetcher.machine.failures
    assert fetcher.machine.find(T0) is None
    fetcher.add(epoch=8)
    assert not fetcher.machine.failures
    assert offsets(fetcher.fetch()) == {0: 0}


def test_an_offline_log_is_left_out() -> None:
    class OfflineLog(SimLog):
        is_offline = False

        @property
        def log_start_offset(self) -> int:
            if self.is_offline:
                raise KafkaStorageError("offline")
            return 0

        @log_start_offset.setter
        def log_start_offset(self, offset: int) -> None:
            pass

    fetcher = Fetcher(count=2)
    log = fetcher.logs[T0] = OfflineLog()
    fetcher.add()
    log.is_offline = True
    assert offsets(fetcher.fetch()) == {1: 0}


# --- truncation


def test_a_diverging_epoch_truncates() -> None:
    fetcher = Fetcher()
    log = fetcher.logs[T0] = filled(1, 1, 1, 3, 3)
    fetcher.add()
    (truncate,) = fetcher.respond(fetcher.fetch(), data(diverging=(1, 2), high_watermark=9))
    assert isinstance(truncate, Truncate)
    assert (truncate.offset, truncate.fully, truncate.is_final) == (2, False, True)
    # Until it is done, the partition is not fetched.
    request = fetcher.fetch()
    assert forgotten(request) == [0]
    fetcher.respond(request, session_id=0)
    log.truncate(2)
    fetcher.machine.truncated(truncate)
    assert offsets(fetcher.fetch()) == {0: 2}


def test_an_epoch_that_the_follower_lacks_truncates_to_the_one_before() -> None:
    """The leader has epochs 1 and 2, the follower 1 and 3: it compares again after epoch 1."""
    fetcher = Fetcher()
    fetcher.logs[T0] = filled(1, 1, 3, 3)
    fetcher.add()
    (truncate,) = fetcher.respond(fetcher.fetch(), data(diverging=(2, 9)))
    assert isinstance(truncate, Truncate)
    assert (truncate.offset, truncate.is_final) == (2, False)


def test_records_that_the_leader_has_deleted_do_not_remain() -> None:
    fetcher = Fetcher()
    fetcher.logs[T0] = filled(1, 1, 1, 2, 2)
    fetcher.add()
    (truncate,) = fetcher.respond(fetcher.fetch(), data(diverging=(2, 4), log_start_offset=4))
    assert isinstance(truncate, Truncate)
    assert (truncate.offset, truncate.fully) == (4, True)


def test_a_log_that_ends_where_the_leaders_starts_begins_again() -> None:
    fetcher = Fetcher()
    fetcher.logs[T0] = filled(1, 1)
    fetcher.add()
    (append,) = fetcher.respond(fetcher.fetch(), data(log_start_offset=2, records=records(2, 7)))
    assert isinstance(append, Append)
    assert append.restart == Restart(2, 2)


def test_a_first_batch_that_starts_before_the_log_does() -> None:
    fetcher = Fetcher()
    fetcher.logs[T0].truncate_fully(5)
    fetcher.add()
    (append,) = fetcher.respond(fetcher.fetch(), data(log_start_offset=5, records=records(3, 7)))
    assert isinstance(append, Append)
    assert append.restart == Restart(3, 5)


def test_old_leaders_are_requested_for_the_end_of_an_epoch() -> None:
    fetcher = Fetcher(count=2, truncates_on_fetch=False)
    log = fetcher.logs[T0] = filled(1, 1, 4)
    fetcher.add()
    request = fetcher.request()
    assert isinstance(request, OffsetForLeaderEpochRequest)
    (partition,) = request.topics[0].partitions
    assert (partition.current_leader_epoch, partition.leader_epoch) == (7, 4)

    def response(epoch: int, end: int) -> OffsetForLeaderEpochResponse:
        result = OffsetForLeaderEpochEndOffset(0, 0, epoch, end)
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult("t", [result])])

    (truncate,) = fetcher.machine.handle_response(request, response(3, 5), fetcher.now)
    assert isinstance(truncate, Truncate)
    assert (truncate.offset, truncate.is_final) == (2, False)
    log.truncate(2)
    fetcher.machine.truncated(truncate)
    request = fetcher.request()
    assert isinstance(request, OffsetForLeaderEpochRequest)
    assert request.topics[0].partitions[0].leader_epoch == 1
    (truncate,) = fetcher.machine.handle_response(request, response(1, 1), fetcher.now)
    assert isinstance(truncate, Truncate)
    log.truncate(truncate.offset)
    fetcher.machine.truncated(truncate)
    assert offsets(fetcher.fetch()) == {0: 1, 1: 0}


# --- offsets out of range


def list_offsets(fetcher: Fetcher, offset: int, error: int = 0) -> list[Effect]:
    request = fetcher.request()
    assert isinstance(request, ListOffsetsRequest)
    assert request.replica_id == BROKER
    result = ListOffsetsPartitionResponse(0, error, offset=offset)
    topics = [ListOffsetsTopicResponse("t", [result])]
    return fetcher.machine.handle_response(request, ListOffsetsResponse(topics=topics), fetcher.now)


def out_of_range() -> Fetcher:
    fetcher = Fetcher()
    fetcher.logs[T0] = filled(1, 1, 1)
    fetcher.add()
    assert fetcher.respond(fetcher.fetch(), data(0, ErrorCode.OFFSET_OUT_OF_RANGE)) == []
    return fetcher


def test_a_leader_that_ends_earlier_truncates_the_follower() -> None:
    (truncate,) = list_offsets(out_of_range(), 1)
    assert isinstance(truncate, Truncate)
    assert (truncate.offset, truncate.fully) == (1, False)


def test_a_leader_that_starts_later_empties_the_follower() -> None:
    fetcher = out_of_range()
    assert list_offsets(fetcher, 20) == []
    (truncate,) = list_offsets(fetcher, 10)
    assert isinstance(truncate, Truncate)
    assert (truncate.offset, truncate.fully) == (10, True)
    fetcher.logs[T0].truncate_fully(10)
    fetcher.machine.truncated(truncate)
    assert offsets(fetcher.fetch()) == {0: 10}


def test_offsets_that_are_in_range_again_are_fetched_later() -> None:
    fetcher = out_of_range()
    list_offsets(fetcher, 20)
    assert list_offsets(fetcher, 2) == []
    request = fetcher.fetch()
    assert (offsets(request), forgotten(request)) == ({}, [0])
    fetcher.respond(request, session_id=0)
    fetcher.now += 50
    assert offsets(fetcher.fetch()) == {0: 3}


def test_errors_of_list_offsets() -> None:
    fetcher = out_of_range()
    assert list_offsets(fetcher, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER) == []
    fetcher.now += 50
    assert offsets(fetcher.fetch()) == {0: 3}
    fetcher = out_of_range()
    list_offsets(fetcher, -1, ErrorCode.FENCED_LEADER_EPOCH)
    assert T0 in fetcher.machine.failures


# --- watermarks and throttling


@pytest.mark.parametrize(
    ("leader_start", "leader_high_watermark", "expected"),
    [(0, 9, (3, None)), (0, 2, (2, None)), (2, 2, (2, 2)), (3, 2, (2, None)), (3, 9, (3, 3))],
)
def test_offsets_never_exceed_the_local_log(
    leader_start: int, leader_high_watermark: int, expected: tuple[int, int | None]
) -> None:
    fetcher = Fetcher()
    fetcher.logs[T0] = filled(7, 7, 7)
    fetcher.add()
    (append,) = fetcher.respond(
        fetcher.fetch(),
        data(high_watermark=leader_high_watermark, log_start_offset=leader_start),
    )
    assert isinstance(append, Append)
    assert fetcher.machine.appended(append) == expected


def test_throttled_replicas_wait_unless_they_are_in_sync() -> None:
    quota = Quota()
    fetcher = Fetcher(count=2, quota=quota)
    fetcher.add()
    quota.has_exceeded = True
    assert offsets(fetcher.fetch()) == {1: 0}
    fetcher.respond(fetcher.fetch(), data(1))
    quota.has_exceeded = False
    request = fetcher.fetch()
    assert offsets(request) == {0: 0}
    (append,) = fetcher.respond(request, data(0))
    assert isinstance(append, Append)
    fetcher.machine.appended(append)
    quota.has_exceeded = True
    assert forgotten(fetcher.fetch()) == []


def test_if_all_replicas_are_throttled_it_tries_again_later() -> None:
    quota = Quota()
    quota.has_exceeded = True
    fetcher = Fetcher(quota=quota)
    fetcher.add()
    assert fetcher.request() is None
    assert fetcher.machine.wake_up_ms(fetcher.now) == fetcher.now + 1000
