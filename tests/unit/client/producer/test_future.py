"""Futures of records (P5)."""

import asyncio
import logging
from collections.abc import Callable
from threading import Thread

import pytest

from penstock.client.errors import ClientError, KafkaTimeoutError
from penstock.client.producer.bulk_future import BulkFuture, BulkPart, SentRecords
from penstock.client.producer.future import (
    BatchResult,
    RecordFuture,
    RecordMetadata,
    when_all_done,
)
from penstock.core.ids import TopicPartition

TP = TopicPartition("t", 3)
T = 1_700_000_000_000


def future_of(result: BatchResult, number: int = 0) -> RecordFuture:
    return RecordFuture(result, number, T, 2, 5)


def complete(result: BatchResult, offset: int = 10, time: int = -1) -> None:
    result.set_outcome(offset, time)
    result.notify_waiters()


def fail(result: BatchResult, error: ClientError) -> None:
    result.set_outcome(-1, -1, error)
    result.notify_waiters()


def in_thread(fn: Callable[[], None]) -> Thread:
    thread = Thread(target=fn)
    thread.start()
    return thread


def test_metadata() -> None:
    result = BatchResult(TP)
    future = future_of(result, 4)
    assert future.topic_partition == TP
    assert not future.done()
    complete(result)
    assert future.done()
    assert future.result() == RecordMetadata("t", 3, 14, T, 2, 5)
    assert future.exception() is None


def test_log_append_time_and_no_acknowledgement() -> None:
    """P2: without acks there is no offset."""
    result = BatchResult(TP)
    complete(result, -1, 77)
    assert future_of(result, 4).result() == RecordMetadata("t", 3, -1, 77, 2, 5)


def test_errors_of_the_batch_and_of_a_record() -> None:
    result = BatchResult(TP)
    error, own = ClientError("batch"), ClientError("record")
    result.set_outcome(-1, -1, error, {1: own})
    assert future_of(result, 0).exception() is error
    with pytest.raises(ClientError, match="record") as raised:
        future_of(result, 1).result()
    assert raised.value is own


def test_timeouts() -> None:
    """P5: the error of a timeout says that the record is still being sent."""
    result = BatchResult(TP)
    with pytest.raises(KafkaTimeoutError, match="still being sent"):
        future_of(result).result(0)
    with pytest.raises(KafkaTimeoutError, match=r"t-3 was not acknowledged within 0.001 s"):
        future_of(result).exception(0.001)
    assert not result.wait(0)
    complete(result)
    assert future_of(result).result(0).offset == 10


def test_threads_wait() -> None:
    result = BatchResult(TP)
    calls: list[int] = []
    threads = [
        in_thread(lambda number=number: calls.append(future_of(result, number).result(20).offset))  # type: ignore[misc]
        for number in range(4)
    ]
    threads.append(in_thread(lambda: calls.append(int(result.wait(60)))))
    complete(result)
    for thread in threads:
        thread.join(20)
    assert sorted(calls) == [1, 10, 11, 12, 13]


def test_callbacks(caplog: pytest.LogCaptureFixture) -> None:
    """P5: the exception of a callback is logged, and the others are called."""
    result = BatchResult(TP)
    calls: list[object] = []

    def fails(future: RecordFuture) -> None:
        raise RuntimeError("mine")

    first = future_of(result, 1)
    first.add_done_callback(fails)
    first.add_done_callback(calls.append)
    result.add_done_callback(lambda: calls.append("whole"))
    assert calls == []
    with caplog.at_level(logging.ERROR):
        complete(result)
    assert calls == [first, "whole"]
    assert "a callback of a future failed" in caplog.text
    first.add_done_callback(calls.append)
    assert calls == [first, "whole", first]


def test_awaited_on_the_same_loop_and_on_another() -> None:
    """P5: the loop itself or any thread may complete the future."""
    result = BatchResult(TP)
    elsewhere: list[int] = []

    async def await_one(number: int) -> int:
        return (await future_of(result, number)).offset

    async def scenario() -> list[int]:
        tasks = [asyncio.create_task(await_one(number)) for number in range(3)]
        cancelled = asyncio.create_task(await_one(9))
        await asyncio.sleep(0)
        cancelled.cancel()
        thread = in_thread(lambda: elsewhere.append(asyncio.run(await_one(7))))
        asyncio.get_running_loop().call_later(0.01, complete, result)
        results = await asyncio.gather(*tasks)
        thread.join(20)
        assert cancelled.cancelled()
        assert await await_one(5) == 15
        return results

    assert asyncio.run(scenario()) == [10, 11, 12]
    assert elsewhere == [17]


def test_completed_from_a_thread_while_awaited() -> None:
    result = BatchResult(TP)

    async def scenario() -> None:
        error = ClientError("no")
        thread = in_thread(lambda: fail(result, error))
        with pytest.raises(ClientError, match="no"):
            await future_of(result)
        thread.join(20)

    asyncio.run(scenario())


def test_a_closed_loop_is_ignored() -> None:
    result = BatchResult(TP)

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future_of(result), 0.001)

    asyncio.run(give_up())
    complete(result)
    assert future_of(result).done()


def test_split() -> None:
    """P7: waiters of a split batch wait for the parts."""
    result = BatchResult(TP)
    parts = [BatchResult(TP), BatchResult(TP)]
    calls: list[object] = []
    early = future_of(result, 3)
    early.add_done_callback(lambda future: calls.append(future.result(0).offset))
    result.add_done_callback(lambda: calls.append("whole"))
    result.chain([0, 2], parts)
    future_of(result, 0).add_done_callback(lambda future: calls.append(future.exception(0)))
    assert not result.done
    assert not early.done()
    complete(parts[1], 50)
    assert calls == [51]
    assert early.result(0) == RecordMetadata("t", 3, 51, T, 2, 5)
    assert not future_of(result, 1).done()
    inner = [BatchResult(TP), BatchResult(TP)]
    parts[0].chain([0, 1], inner)
    error = ClientError("too large")
    fail(inner[0], error)
    assert calls == [51, error]
    complete(inner[1], 70)
    assert calls == [51, error, "whole"]
    assert result.done
    assert result.wait(0)
    assert future_of(result, 1).result(0).offset == 70
    assert result.first_error(0, 4) is error
    assert result.first_error(1, 3) is None


def test_split_while_awaited() -> None:
    async def scenario() -> None:
        result, part = BatchResult(TP), BatchResult(TP)

        async def wait() -> RecordMetadata:
            return await future_of(result, 1)

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        result.chain([0], [part])
        late = asyncio.create_task(wait())
        await asyncio.sleep(0)
        complete(part)
        assert (await task).offset == (await late).offset == 11

    asyncio.run(scenario())


def test_when_all_done() -> None:
    results = [BatchResult(TP), BatchResult(TP)]
    calls: list[int] = []
    when_all_done([], lambda: calls.append(0))
    when_all_done(results, lambda: calls.append(1))
    assert calls == [0]
    complete(results[1])
    assert calls == [0]
    complete(results[0])
    assert calls == [0, 1]


def bulk(results: list[BatchResult], order: list[int] | None = None) -> BulkFuture:
    """Two records for each result, from number 5 of its batch on."""
    total = 2 * len(results)
    sizes = memoryview(bytearray(8 * total)).cast("i")
    for index in range(total):
        sizes[2 * index] = -1
        sizes[2 * index + 1] = index
    numbers = None
    if order is not None:
        numbers = memoryview(bytearray(4 * total)).cast("i")
        for position, index in enumerate(order):
            numbers[position] = index
    return BulkFuture(
        SentRecords(total, sizes, None, T, numbers),
        [BulkPart(result, 5, 2 * index, 2) for index, result in enumerate(results)],
    )


def test_bulk() -> None:
    """P5: one future for a call, with metadata in the order of the call."""
    results = [BatchResult(TP), BatchResult(TopicPartition("t", 4))]
    future = bulk(results, [3, 1, 0, 2])
    plain = bulk(results)
    calls: list[object] = []
    future.add_done_callback(calls.append)
    assert len(future) == 4
    with pytest.raises(KafkaTimeoutError):
        future.result(0)
    complete(results[0], 100)
    assert not future.done()
    complete(results[1], 200)
    assert calls == [future]
    metadata = future.result(0)
    assert [(entry.partition, entry.offset) for entry in metadata] == [
        (4, 205),
        (3, 106),
        (4, 206),
        (3, 105),
    ]
    assert [entry.serialized_value_size for entry in metadata] == [0, 1, 2, 3]
    assert metadata[-1] == metadata[3] == RecordMetadata("t", 3, 105, T, -1, 3)
    assert metadata[1:3] == [metadata[1], metadata[2]]
    assert len(metadata) == 4
    with pytest.raises(IndexError):
        metadata[4]
    assert [entry.offset for entry in plain.result(0)] == [105, 106, 205, 206]


def test_bulk_fails_with_its_first_error() -> None:
    results = [BatchResult(TP), BatchResult(TP)]
    future = bulk(results)
    first, second = ClientError("first"), ClientError("second")
    results[0].set_outcome(-1, -1, second, {6: first, 1: second})
    results[0].error = first
    fail(results[1], second)
    results[0].notify_waiters()
    assert future.exception(0) is first
    with pytest.raises(ClientError, match="first"):
        future.result(0)


def test_bulk_awaited() -> None:
    async def scenario() -> None:
        results = [BatchResult(TP), BatchResult(TP)]
        future = bulk(results)

        def finish() -> None:
            for result in results:
                complete(result)

        thread = in_thread(finish)
        assert [entry.offset for entry in await future] == [15, 16, 15, 16]
        thread.join(20)
        assert len(await future) == 4
        assert len(await bulk([])) == 0

    asyncio.run(scenario())
