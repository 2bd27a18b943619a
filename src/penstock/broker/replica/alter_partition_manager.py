"""Sends the ISR proposals of all partitions that this broker leads to the controller.

There is one AlterPartition request in flight at a time. Proposals that are submitted in between are
sent together with the next one (as by Kafka's DefaultAlterPartitionManager).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple
from uuid import UUID

from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    BrokerState,
)
from penstock.replication.isr import CommittedState
from penstock.replication.partition import IsrProposal

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.05
"""The pause after a request that failed as a whole, or a proposal that must be sent again."""

Send = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]
"""Sends a request to the controller, in process or by the network."""
OnResult = Callable[[IsrProposal, CommittedState | ErrorCode], bool]
"""Receives the controller's response to a proposal; returns whether it must be sent again."""


class _Unsent(NamedTuple):
    """A proposal without a response."""

    proposal: IsrProposal
    on_result: OnResult


class AlterPartitionManager:
    """The queue of proposals: at most one for each partition. It belongs to the event loop."""

    def __init__(self, broker_id: int, broker_epoch: Callable[[], int], send: Send) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self.send = send
        """It may be replaced, when the way to the controller changes."""
        self._unsent: dict[TopicPartition, _Unsent] = {}
        """Proposals stay here until they have a response."""
        self._sending: asyncio.Task[None] | None = None
        self._is_reachable = True
        """Whether the controller responded to the last request."""

    def submit(self, proposal: IsrProposal, on_result: OnResult) -> None:
        """Sends a proposal as soon as possible, and again until the controller has responded.

        It replaces an earlier one of the partition, whose response is then ignored.
        """
        self._unsent[proposal.key] = _Unsent(proposal, on_result)
        if self._sending is None:
            self._start()

    async def close(self) -> None:
        """Stops sending; proposals without a response are dropped."""
        self._unsent.clear()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    def _start(self) -> None:
        self._sending = asyncio.get_running_loop().create_task(self._send_all())
        self._sending.add_done_callback(self._stopped)

    def _stopped(self, task: "asyncio.Task[None]") -> None:
        self._sending = None
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            logger.error("ISR changes cannot be sent", exc_info=error)
        if self._unsent:
            # Submitted after the task had found nothing more to send, and before this call.
            self._start()

    async def _send_all(self) -> None:
        while self._unsent:
            sent = list(self._unsent.values())
            epoch = self._broker_epoch()
            request = alter_partition_request(
                self._broker_id, epoch, [unsent.proposal for unsent in sent]
            )
            try:
                response = await self.send(request)
            except (KafkaError, OSError) as error:
                # Once, and not again with every attempt.
                level = logging.WARNING if self._is_reachable else logging.DEBUG
                self._is_reachable = False
                logger.log(
                    level, "ISR changes cannot be sent to the controller: %s; retrying", error
                )
                await asyncio.sleep(RETRY_S)
                continue
            except Exception:
                # Without another attempt, these partitions could never change their ISRs again.
                logger.exception("ISR changes cannot be sent to the controller; retrying")
                await asyncio.sleep(RETRY_S)
                continue
            self._is_reachable = True
            code = ErrorCode(response.error_code)
            if code is not ErrorCode.NONE:
                _log_error(code, epoch)
                await asyncio.sleep(RETRY_S)
            elif self._apply(sent, committed_states(request, response)):
                await asyncio.sleep(RETRY_S)

    def _apply(
        self, sent: list[_Unsent], results: dict[TopicPartition, CommittedState | ErrorCode]
    ) -> bool:
        """Passes the results on; returns whether a proposal must be sent again."""
        retries = False
        for unsent in sent:
            proposal, on_result = unsent
            if self._unsent.get(proposal.key) is not unsent:
                continue
            result = results.get(proposal.key)
            if result is None:
                logger.warning("the controller did not respond about the ISR of %s", proposal.key)
                retries = True
                continue
            # Removed first: the result may lead to the next proposal.
            del self._unsent[proposal.key]
            if on_result(proposal, result):
                self._unsent.setdefault(proposal.key, unsent)
                retries = True
        return retries


def alter_partition_request(
    broker_id: int, broker_epoch: int, proposals: list[IsrProposal]
) -> AlterPartitionRequest:
    """Returns one request for all proposals, in the form of version 3."""
    topics: dict[tuple[str, UUID], AlterPartitionRequestTopicData] = {}
    for proposal in proposals:
        name, index = proposal.key
        topic = topics.setdefault(
            (name, proposal.topic_id), AlterPartitionRequestTopicData(name, proposal.topic_id, [])
        )
        topic.partitions.append(
            AlterPartitionRequestPartitionData(
                index,
                proposal.leader_epoch,
                new_isr_with_epochs=[BrokerState(*member) for member in proposal.members],
                partition_epoch=proposal.partition_epoch,
            )
        )
    return AlterPartitionRequest(broker_id, broker_epoch, list(topics.values()))


def committed_states(
    request: AlterPartitionRequest, response: AlterPartitionResponse
) -> dict[TopicPartition, CommittedState | ErrorCode]:
    """Returns the result of each partition in a response; it may name topics by id only."""
    names = {topic.topic_id: topic.topic_name for topic in request.topics}
    results: dict[TopicPartition, CommittedState | ErrorCode] = {}
    for topic in response.topics:
        name = topic.topic_name or names.get(topic.topic_id, "")
        for partition in topic.partitions:
            key = TopicPartition(name, partition.partition_index)
            if partition.error_code:
                results[key] = ErrorCode(partition.error_code)
            else:
                results[key] = CommittedState(
                    partition.leader_epoch, partition.partition_epoch, tuple(partition.isr)
                )
    return results


def _log_error(code: ErrorCode, broker_epoch: int) -> None:
    if code is ErrorCode.STALE_BROKER_EPOCH:
        logger.warning("the controller knows another broker epoch than %d; retrying", broker_epoch)
    elif code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        logger.error(
            "this broker may not change ISRs; allow its principal CLUSTER_ACTION on the cluster"
        )
    else:
        logger.warning("the controller refused ISR changes with %s; retrying", code.name)
