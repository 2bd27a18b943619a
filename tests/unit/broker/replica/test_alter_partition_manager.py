"""AlterPartition requests: one in flight, with all proposals of that time; retried (R2, R3)."""

import asyncio
from collections.abc import Callable, Coroutine
from uuid import UUID

import pytest

from penstock.broker.replica import alter_partition_manager
from penstock.broker.replica.alter_partition_manager import AlterPartitionManager
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.frames import encode_request
from penstock.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from penstock.replication.isr import CommittedState
from penstock.replication.partition import IsrChange, IsrMember, IsrProposal

TOPIC_IDS = {"a": UUID(int=1), "b": UUID(int=2)}


def proposal_of(topic: str, index: int, *, epoch: int = 5) -> IsrProposal:
    members = (IsrMember(1, 11), IsrMember(2, -1))
    key = TopicPartition(topic, index)
    return IsrProposal(key, TOPIC_IDS[topic], IsrChange.EXPAND, epoch, 7, members)


def committed(
    request: AlterPartitionRequest, *, error: ErrorCode = ErrorCode.NONE
) -> AlterPartitionResponse:
    """Returns the response of a controller that accepts everything, and names topics by id."""
    return AlterPartitionResponse(
        topics=[
            AlterPartitionResponseTopicData(
                topic_id=topic.topic_id,
                partitions=[
                    AlterPartitionResponsePartitionData(
                        partition.partition_index,
                        error,
                        request.broker_id,
                        partition.leader_epoch,
                        [member.broker_id for member in partition.new_isr_with_epochs],
                        partition_epoch=partition.partition_epoch + 1,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


class Controller:
    """Responds when the test says so."""

    def __init__(self) -> None:
        self.requests: list[AlterPartitionRequest] = []
        self.results: list[tuple[TopicPartition, CommittedState | ErrorCode]] = []
        self.epoch = 40
        self._response: asyncio.Future[AlterPartitionResponse]
        self.manager = AlterPartitionManager(1, lambda: self.epoch, self._send)

    async def _send(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.requests.append(request)
        self._response = asyncio.get_running_loop().create_future()
        return await self._response

    def submit(self, proposal: IsrProposal, *, retry: bool = False) -> None:
        self.manager.submit(
            proposal, lambda proposal, result: self._on_result(proposal, result, retry)
        )

    def _on_result(
        self, proposal: IsrProposal, result: CommittedState | ErrorCode, retry: bool
    ) -> bool:
        self.results.append((proposal.key, result))
        return retry

    async def request(self) -> list[TopicPartition]:
        """Waits for the next request; returns its partitions."""
        count = len(self.requests)
        while not count:
            await asyncio.sleep(0)
            count = len(self.requests)
        return [
            TopicPartition(topic.topic_name, partition.partition_index)
            for topic in self.requests[-1].topics
            for partition in topic.partitions
        ]

    async def respond(self, response: AlterPartitionResponse | Exception) -> None:
        if isinstance(response, Exception):
            self._response.set_exception(response)
        else:
            self._response.set_result(response)
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alter_partition_manager, "RETRY_S", 0)


def run(test: Callable[[Controller], Coroutine[None, None, None]]) -> None:
    async def main() -> None:
        controller = Controller()
        await test(controller)
        await controller.manager.close()

    asyncio.run(main())


def test_proposals_of_the_same_time_share_a_request() -> None:
    async def test(controller: Controller) -> None:
        for topic, index in (("a", 0), ("b", 1), ("a", 2)):
            controller.submit(proposal_of(topic, index))
        assert await controller.request() == [("a", 0), ("a", 2), ("b", 1)]
        request = controller.requests[0]
        assert (request.broker_id, request.broker_epoch) == (1, 40)
        data = request.topics[0].partitions[0]
        assert (data.leader_epoch, data.partition_epoch) == (5, 7)
        assert encode_request(request, 3, 1, "")
        assert [(m.broker_id, m.broker_epoch) for m in data.new_isr_with_epochs] == [
            (1, 11),
            (2, -1),
        ]
        await controller.respond(committed(request))
        state = CommittedState(5, 8, (1, 2))
        assert sorted(controller.results) == [
            (("a", 0), state),
            (("a", 2), state),
            (("b", 1), state),
        ]
        assert len(controller.requests) == 1

    run(test)


def test_later_proposals_wait_for_the_response() -> None:
    async def test(controller: Controller) -> None:
        controller.submit(proposal_of("a", 0))
        await controller.request()
        controller.submit(proposal_of("a", 1))
        controller.submit(proposal_of("b", 0))
        await asyncio.sleep(0)
        assert len(controller.requests) == 1
        await controller.respond(committed(controller.requests[0]))
        assert await controller.request() == [("a", 1), ("b", 0)]
        assert len(controller.requests) == 2

    run(test)


@pytest.mark.parametrize(
    "failure",
    [
        AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
        AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        AlterPartitionResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR),
        KafkaError(ErrorCode.NETWORK_EXCEPTION, "the controller is gone"),
        OSError("no route"),
    ],
)
def test_a_request_that_fails_is_repeated_with_everything_that_is_proposed_by_then(
    failure: AlterPartitionResponse | Exception,
) -> None:
    async def test(controller: Controller) -> None:
        controller.submit(proposal_of("a", 0))
        await controller.request()
        controller.submit(proposal_of("b", 0))
        controller.epoch = 41
        await controller.respond(failure)
        assert await controller.request() == [("a", 0), ("b", 0)]
        assert controller.requests[1].broker_epoch == 41
        assert not controller.results

    run(test)


def test_a_partition_that_the_response_leaves_out_is_sent_again() -> None:
    async def test(controller: Controller) -> None:
        controller.submit(proposal_of("a", 0))
        controller.submit(proposal_of("b", 0))
        await controller.request()
        response = committed(controller.requests[0])
        del response.topics[1]
        await controller.respond(response)
        assert await controller.request() == [("b", 0)]
        assert [key for key, _ in controller.results] == [("a", 0)]

    run(test)


def test_errors_of_partitions_are_passed_on_and_may_be_retried() -> None:
    async def test(controller: Controller) -> None:
        controller.submit(proposal_of("a", 0))
        controller.submit(proposal_of("b", 0), retry=True)
        await controller.request()
        await controller.respond(committed(controller.requests[0], error=ErrorCode.NOT_CONTROLLER))
        assert controller.results == [
            (("a", 0), ErrorCode.NOT_CONTROLLER),
            (("b", 0), ErrorCode.NOT_CONTROLLER),
        ]
        assert await controller.request() == [("b", 0)]

    run(test)


def test_a_newer_proposal_replaces_the_one_in_flight() -> None:
    """The leader has a new epoch since: the outcome of the old proposal is of no interest."""

    async def test(controller: Controller) -> None:
        controller.submit(proposal_of("a", 0))
        await controller.request()
        controller.submit(proposal_of("a", 0, epoch=6))
        await controller.respond(committed(controller.requests[0]))
        assert not controller.results
        assert await controller.request() == [("a", 0)]
        assert controller.requests[1].topics[0].partitions[0].leader_epoch == 6
        await controller.respond(committed(controller.requests[1]))
        assert controller.results == [(("a", 0), CommittedState(6, 8, (1, 2)))]

    run(test)


def test_proposals_are_sent_again_after_an_unexpected_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(controller: Controller) -> None:
        controller.submit(proposal_of("a", 0))
        await controller.request()
        await controller.respond(ValueError("a bug"))
        assert len(controller.requests) == 2
        await controller.respond(committed(controller.requests[-1]))
        assert [key for key, _ in controller.results] == [TopicPartition("a", 0)]

    run(test)
    assert "a bug" in caplog.text


@pytest.mark.parametrize("turns", range(6))
def test_a_proposal_is_sent_whenever_the_last_request_ends(turns: int) -> None:
    """Also between the end of the sending task and its callback."""

    async def test(controller: Controller) -> None:
        controller.submit(proposal_of("a", 0))
        await controller.request()
        controller._response.set_result(committed(controller.requests[0]))
        for _ in range(turns):
            await asyncio.sleep(0)
        controller.submit(proposal_of("a", 1))
        async with asyncio.timeout(10):
            while len(controller.requests) < 2:
                await asyncio.sleep(0)
        assert await controller.request() == [("a", 1)]

    run(test)
