"""Fetch sessions without a broker: a model predicts the contents of each response."""

import itertools
from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.pacer import run_to_end
from penstock.broker.replica.fetch_sessions import CachedPartition, FetchContext, FetchSessionCache
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartitionData,
    FetchRequest,
)
from tests.support.protocol.requests import fetch_request

NAMES = {UUID(int=1): "a", UUID(int=2): "b"}


def counting() -> Callable[[], int]:
    return itertools.count(1).__next__


def open_session(
    sessions: FetchSessionCache, request: FetchRequest, *, ids: bool = False, now_ms: int = 0
) -> FetchContext:
    """Opens the session as the response to a request does."""
    context = run_to_end(
        sessions.open(
            request,
            uses_topic_ids=ids,
            name_of=lambda topic_id: NAMES.get(topic_id, ""),
            now_ms=now_ms,
        )
    )
    context.open_session(now_ms)
    return context


def responses(
    context: FetchContext, result: list[tuple[CachedPartition, FetchPartitionData]]
) -> list[FetchableTopicResponse]:
    return run_to_end(context.responses(result))


def responded_partitions(
    context: FetchContext, ends: dict[tuple[str, int], int]
) -> set[tuple[str, int]]:
    """Returns the partitions of a response for these log end offsets and high watermarks."""
    result = [
        (
            entry,
            FetchPartitionData(
                entry.index,
                0,
                ends[entry.topic, entry.index],
                log_start_offset=0,
                records=b"x" if entry.fetch_offset < ends[entry.topic, entry.index] else b"",
            ),
        )
        for entry in context.partitions.values()
    ]
    return {
        (topic.topic, partition.partition_index)
        for topic in responses(context, result)
        for partition in topic.partitions
    }


KEYS = [("a", 0), ("a", 1), ("b", 0)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["produce", "fetch", "move", "forget", "add"]), st.sampled_from(KEYS)
        ),
        max_size=30,
    )
)
def test_a_response_contains_exactly_the_changed_partitions(
    steps: list[tuple[str, tuple[str, int]]],
) -> None:
    sessions = FetchSessionCache(10, counting())
    ends = dict.fromkeys(KEYS, 0)
    fetch_offsets = dict.fromkeys(KEYS, 0)
    context = open_session(
        sessions, fetch_request({"a": {0: 0, 1: 0}, "b": {0: 0}}, session=(0, 0))
    )
    assert responded_partitions(context, ends) == set(KEYS)
    sent_high_watermarks = dict(ends)
    epoch = 1
    for step, key in steps:
        topic, index = key
        updates: dict[str | UUID, dict[int, int]] = {}
        forgotten: dict[str | UUID, list[int]] = {}
        if step == "produce":
            ends[key] += 1
            continue
        if step == "move" and key in fetch_offsets:
            fetch_offsets[key] = ends[key]
            updates = {topic: {index: ends[key]}}
        if step == "add" and key not in fetch_offsets:
            fetch_offsets[key] = 0
            sent_high_watermarks[key] = -1
            updates = {topic: {index: 0}}
        if step == "forget" and key in fetch_offsets and len(fetch_offsets) > 1:
            del fetch_offsets[key]
            forgotten = {topic: [index]}
        request = fetch_request(updates, session=(context.session_id, epoch), forgotten=forgotten)
        context = open_session(sessions, request)
        epoch += 1
        expected = {
            item
            for item, offset in fetch_offsets.items()
            if offset < ends[item] or sent_high_watermarks[item] != ends[item]
        }
        assert {(entry.topic, entry.index) for entry in context.partitions.values()} == set(
            fetch_offsets
        )
        assert responded_partitions(context, ends) == expected
        sent_high_watermarks.update(
            {fetch_offset: ends[fetch_offset] for fetch_offset in fetch_offsets}
        )


def test_partitions_of_unknown_topic_ids_have_no_name() -> None:
    sessions = FetchSessionCache(10, counting())
    request = fetch_request({UUID(int=1): {0: 0}, UUID(int=9): {0: 0}}, session=(0, 0))
    context = open_session(sessions, request, ids=True)
    assert {(partition.topic, partition.topic_id) for partition in context.partitions.values()} == {
        ("a", UUID(int=1)),
        ("", UUID(int=9)),
    }
    request = fetch_request({}, session=(1, 1), forgotten={UUID(int=9): [0]})
    context = open_session(sessions, request, ids=True)
    assert [partition.topic for partition in context.partitions.values()] == ["a"]


def test_the_epoch_wraps_to_1_after_the_maximum() -> None:
    sessions = FetchSessionCache(10, counting())
    open_session(sessions, fetch_request({"a": {0: 0}}, session=(0, 0)))
    sessions._sessions[1].epoch = 2**31 - 1
    open_session(sessions, fetch_request({}, session=(1, 2**31 - 1)))
    open_session(sessions, fetch_request({}, session=(1, 1)))
    with pytest.raises(KafkaError) as caught:
        open_session(sessions, fetch_request({}, session=(1, 1)))
    assert caught.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_the_session_that_was_idle_longest_is_evicted() -> None:
    sessions = FetchSessionCache(2, counting(), eviction_ms=100)
    full = fetch_request({"a": {0: 0}}, session=(0, 0))
    assert open_session(sessions, full, now_ms=0).session_id == 1
    assert open_session(sessions, full, now_ms=0).session_id == 2
    open_session(sessions, fetch_request({}, session=(1, 1)), now_ms=90)
    assert open_session(sessions, full, now_ms=100).session_id == 0, (
        "no session was idle for long enough"
    )
    assert open_session(sessions, full, now_ms=101).session_id == 3
    with pytest.raises(KafkaError) as caught:
        open_session(sessions, fetch_request({}, session=(2, 1)), now_ms=101)
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    open_session(sessions, fetch_request({}, session=(1, 2)), now_ms=101)
    assert len(sessions) == 2


def test_a_session_id_in_use_is_not_assigned_again() -> None:
    random_ids = iter([7, 7, 0, 8])
    sessions = FetchSessionCache(10, lambda: next(random_ids))
    full = fetch_request({"a": {0: 0}}, session=(0, 0))
    assert [open_session(sessions, full).session_id for _ in range(2)] == [7, 8]


def test_followers_replace_sessions_of_consumers() -> None:
    sessions = FetchSessionCache(2, counting(), eviction_ms=100)

    def open_as(broker_id: int) -> int:
        request = fetch_request({"a": {0: 0}}, session=(0, 0))
        request.replica_id = broker_id
        return open_session(sessions, request).session_id

    assert open_as(-1) == 1
    assert open_as(7) == 2
    assert open_as(8) == 3, "the consumer's session is replaced"
    assert open_as(9) == 0, "but no other follower's"
    assert open_as(-1) == 0
    assert len(sessions) == 2


def test_no_session_without_partitions_or_slots() -> None:
    sessions = FetchSessionCache(10, counting())
    assert open_session(sessions, fetch_request({}, session=(0, 0))).session_id == 0
    no_slots = FetchSessionCache(0, counting())
    assert open_session(no_slots, fetch_request({"a": {0: 0}}, session=(0, 0))).session_id == 0


def test_an_error_and_its_end_are_both_sent() -> None:
    sessions = FetchSessionCache(10, counting())
    context = open_session(sessions, fetch_request({"a": {0: 0}}, session=(0, 0)))
    (entry,) = context.partitions.values()
    good = FetchPartitionData(0, 0, 0, log_start_offset=0, records=b"")
    bad = FetchPartitionData(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, records=b"")
    responses(context, [(entry, good)])
    context = open_session(sessions, fetch_request({}, session=(1, 1)))
    assert responses(context, [(entry, good)]) == []
    assert len(responses(context, [(entry, bad)])) == 1
    assert len(responses(context, [(entry, bad)])) == 1
    assert len(responses(context, [(entry, good)])) == 1
    assert responses(context, [(entry, good)]) == []
