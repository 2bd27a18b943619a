"""Responses that are not complete yet."""

import asyncio

import pytest

from penstock.broker.request import WaitingResponse
from penstock.protocol.fields import Message
from penstock.protocol.messages.produce import ProduceResponse


def test_the_response_is_delivered_once_whether_it_is_complete_or_not() -> None:
    response = ProduceResponse()
    received: list[Message] = []
    waiting = WaitingResponse()
    waiting.deliver_to(received.append)
    assert not received
    waiting.complete(response)
    complete = WaitingResponse()
    complete.complete(response)
    complete.deliver_to(received.append)
    assert received == [response, response]


def test_nothing_is_delivered_after_a_cancellation() -> None:
    received: list[Message] = []
    waiting = WaitingResponse()
    waiting.deliver_to(received.append)
    waiting.cancel()
    waiting.complete(ProduceResponse())
    assert not received


def test_it_can_be_awaited() -> None:
    asyncio.run(await_responses())


async def await_responses() -> None:
    async def wait_for(waiting: WaitingResponse) -> Message:
        return await waiting

    response = ProduceResponse()
    waiting, cancelled, ignored = WaitingResponse(), WaitingResponse(), WaitingResponse()
    tasks = [asyncio.create_task(wait_for(item)) for item in (waiting, cancelled, ignored)]
    await asyncio.sleep(0)
    waiting.complete(response)
    cancelled.cancel()
    tasks[2].cancel()
    ignored.complete(response)
    assert await tasks[0] is response
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    with pytest.raises(asyncio.CancelledError):
        await wait_for(cancelled)
