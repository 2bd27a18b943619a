"""Commits and lookups of a group's offsets, with retries until a deadline (C3)."""

from collections.abc import Collection, Mapping
from typing import Protocol, TypeVar

from penstock.client.consumer.group.actions import Identity
from penstock.client.consumer.group.commits import (
    COORDINATOR_ERRORS,
    MEMBERSHIP_ERRORS,
    NEWEST_VERSION,
    commit_errors,
    commit_request,
    fetch_request,
    read_offset_fetch,
)
from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.coordinators import CoordinatorKind, Coordinators
from penstock.client.errors import CommitFailedError, error_of
from penstock.client.metrics import Sensor
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.network_client import NetworkClient, Request
from penstock.protocol.fields import Message
from penstock.protocol.messages.offset_commit import OffsetCommitResponse
from penstock.protocol.messages.offset_fetch import OffsetFetchResponse

R = TypeVar("R", bound=Message)

_STALE_MEMBER_ERRORS = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
"""Errors of an OffsetFetch: the next heartbeat fails with the same, and the member rejoins."""
_RETRIED_ERRORS = frozenset(
    {
        *COORDINATOR_ERRORS,
        *_STALE_MEMBER_ERRORS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)


class Committer(Protocol):
    """The membership that commits."""

    def commit_identity(self) -> Identity: ...

    def fetch_identity(self) -> Identity | None:
        """Returns the identity for OffsetFetch; None with the classic protocol."""

    def handle_commit_error(self, code: ErrorCode, identity: Identity) -> KafkaError | None: ...

    def connection(self, node_id: int) -> int: ...


class GroupOffsets:
    """Sends OffsetCommit and OffsetFetch to the coordinator of `group_id`."""

    def __init__(
        self,
        network: NetworkClient,
        coordinators: Coordinators,
        group_id: str,
        committer: Committer,
        *,
        latency: Sensor | None = None,
    ) -> None:
        """`latency` records the time of commits in ms."""
        self._latency = latency
        self._network = network
        self._coordinators = coordinators
        self._group_id = group_id
        self._committer = committer

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline_ms: int,
        *,
        retry: bool = True,
    ) -> None:
        """Commits; with `retry`, repeats retriable failures until the deadline.

        Raises CommitFailedError if the consumer is not a member any more, RebalanceInProgressError
        if it may succeed after a poll, AuthorizationError, KafkaTimeoutError and others.
        """
        started_ms = self._network.clock.monotonic_ms()
        attempts = 0
        while offsets:
            try:
                await self._commit_once(offsets, deadline_ms)
                break
            except KafkaError as error:
                if not retry or not _may_retry(error):
                    raise
                await self._network.wait_before_retry(error, attempts, deadline_ms)
            attempts += 1
        if self._latency is not None:
            self._latency.record(self._network.clock.monotonic_ms() - started_ms)

    async def _commit_once(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline_ms: int
    ) -> None:
        identity = self._committer.commit_identity()
        request = commit_request(self._group_id, identity, offsets)
        node_id, response = await self._request(request, OffsetCommitResponse, deadline_ms)
        errors = commit_errors(response)
        denied_topics = sorted(
            {
                partition.topic
                for partition, code in errors.items()
                if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            }
        )
        for partition, code in errors.items():
            if code in MEMBERSHIP_ERRORS:
                error = self._committer.handle_commit_error(code, identity)
                raise error or _stale_member_error(code)
            if code in COORDINATOR_ERRORS:
                self._forget(node_id)
            if code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise error_of(code, self._commit_error_message(partition, code))
        if denied_topics:
            raise error_of(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                f"offsets of {', '.join(denied_topics)} are not committed; the user of this client "
                "needs the ACL READ on these topics",
            )

    def _commit_error_message(self, partition: TopicPartition, code: ErrorCode) -> str:
        text = f"the offset of {partition} is not committed for group {self._group_id}: {code.name}"
        if code is ErrorCode.OFFSET_METADATA_TOO_LARGE:
            return f"{text}; the metadata is longer than the broker's offset.metadata.max.bytes"
        if code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return f"{text}; the user of this client needs the ACL READ on the group"
        return text

    async def committed(
        self, partitions: Collection[TopicPartition], deadline_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the committed offset of each partition, or None without one."""
        if not partitions:
            return {}
        attempts = 0
        while True:
            try:
                offsets = await self._fetch_once(partitions, deadline_ms)
                return {partition: offsets.get(partition) for partition in partitions}
            except KafkaError as error:
                if error.code in _STALE_MEMBER_ERRORS:
                    error = _stale_member_error(error.code)
                await self._network.wait_before_retry(error, attempts, deadline_ms)
            attempts += 1

    async def _fetch_once(
        self, partitions: Collection[TopicPartition], deadline_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        request = fetch_request(self._group_id, partitions, self._committer.fetch_identity())
        node_id, response = await self._request(request, OffsetFetchResponse, deadline_ms)
        result = read_offset_fetch(response)
        errors = [result.error] if result.error else list(result.errors.values())
        for code in sorted(errors, key=lambda code: code in _RETRIED_ERRORS):
            # Errors that are not retried come first.
            if code in COORDINATOR_ERRORS:
                self._forget(node_id)
            raise error_of(code, self._fetch_error_message(code, result.errors))
        return result.offsets

    def _fetch_error_message(
        self, code: ErrorCode, errors: Mapping[TopicPartition, ErrorCode]
    ) -> str:
        partitions = ", ".join(
            str(partition) for partition, error in sorted(errors.items()) if error is code
        )
        subject = f" of {partitions}" if partitions else ""
        text = (
            f"the committed offsets{subject} of group {self._group_id} cannot be read: {code.name}"
        )
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return f"{text}; the topic or partition does not exist"
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return f"{text}; the user of this client needs the ACL DESCRIBE on the topic"
        if code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return f"{text}; the user of this client needs the ACL DESCRIBE on the group"
        return text

    async def _request(
        self, request: Request, response_type: type[R], deadline_ms: int
    ) -> tuple[int, R]:
        """Returns the coordinator's id and its response."""
        find = self._coordinators.find
        node_id = await find(CoordinatorKind.GROUP, self._group_id, deadline_ms)
        try:
            response = await self._network.within(
                deadline_ms,
                lambda: self._network.request(
                    self._committer.connection(node_id),
                    request,
                    response_type,
                    max_version=NEWEST_VERSION,
                ),
            )
        except KafkaError:
            self._forget(node_id)
            raise
        return node_id, response

    def _forget(self, node_id: int) -> None:
        self._coordinators.forget(CoordinatorKind.GROUP, self._group_id, node_id)


def _may_retry(error: KafkaError) -> bool:
    # A rebalance only ends when poll is called: a retry here would be useless.
    return error.code.retriable and error.code is not ErrorCode.REBALANCE_IN_PROGRESS


def _stale_member_error(code: ErrorCode) -> KafkaError:
    """Returns a retriable error: the epoch of the member is about to change."""
    return CommitFailedError(
        f"the epoch of the member changed during its request ({code.name})",
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
