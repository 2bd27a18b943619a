"""The offsets of a group: committed and looked up, again and again until a deadline (C3)."""

from collections.abc import Collection, Mapping
from typing import Protocol

from penstock.client.consumer.group.actions import Identity
from penstock.client.consumer.group.commits import (
    COORDINATOR_ERRORS,
    MEMBERSHIP_ERRORS,
    NEWEST_VERSION,
    commit_errors,
    commit_request,
    fetch_request,
    fetched_offsets,
)
from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.coordinators import CoordinatorKind, Coordinators
from penstock.client.errors import CommitFailedError, error_of
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.network_client import NetworkClient, RequestBuilder
from penstock.protocol.messages.offset_commit import OffsetCommitResponse
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

_NOT_THIS_MEMBER = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
"""To a question about offsets: the next heartbeat hears the same, and joins anew."""
_TRY_AGAIN = frozenset(
    {
        *COORDINATOR_ERRORS,
        *_NOT_THIS_MEMBER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)


class Committer(Protocol):
    """Who a commit is from, at the time."""

    def committing_as(self) -> Identity: ...

    def fetching_as(self) -> Identity | None:
        """Only with KIP-848, whose members show their epoch."""

    def commit_refused(self, code: ErrorCode, who: Identity) -> KafkaError | None: ...

    def connection(self, node_id: int) -> int: ...


class GroupOffsets:
    """Asks the coordinator of `group_id`, on behalf of `committer`."""

    def __init__(
        self,
        network: NetworkClient,
        coordinators: Coordinators,
        group_id: str,
        committer: Committer,
    ) -> None:
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
        """CommitFailedError where this is no member any more, RebalanceInProgressError where it
        may work after a poll, AuthorizationError, KafkaTimeoutError …"""
        if not offsets:
            return
        attempts = 0
        while True:
            try:
                await self._commit_once(offsets, deadline_ms)
                return
            except KafkaError as error:
                if not retry or not _may_retry(error):
                    raise
                await self._network.wait_before_retry(error, attempts, deadline_ms)
            attempts += 1

    async def _commit_once(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline_ms: int
    ) -> None:
        who = self._committer.committing_as()
        request = commit_request(self._group_id, who, offsets)
        node_id = await self._find(deadline_ms)
        try:
            response = await self._network.within(
                deadline_ms,
                lambda: self._network.request(
                    self._committer.connection(node_id),
                    request,
                    OffsetCommitResponse,
                    max_version=NEWEST_VERSION,
                ),
            )
        except KafkaError:
            self._forget(node_id)
            raise
        errors = commit_errors(response)
        denied = sorted(
            {p.topic for p, e in errors.items() if e is ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        )
        for partition, code in errors.items():
            if code in MEMBERSHIP_ERRORS:
                error = self._committer.commit_refused(code, who)
                raise error or _stale(code)
            if code in COORDINATOR_ERRORS:
                self._forget(node_id)
            if code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise error_of(code, self._not_committed(partition, code))
        if denied:
            raise error_of(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                f"offsets of {', '.join(denied)} are not committed: the user of this client needs "
                "the ACL READ on these topics",
            )

    def _not_committed(self, partition: TopicPartition, code: ErrorCode) -> str:
        text = f"the offset of {partition} is not committed for group {self._group_id}: {code.name}"
        if code is ErrorCode.OFFSET_METADATA_TOO_LARGE:
            return f"{text}. The metadata is longer than the broker's offset.metadata.max.bytes"
        if code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return f"{text}. The user of this client needs the ACL READ on the group"
        return text

    async def committed(
        self, partitions: Collection[TopicPartition], deadline_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offset of each partition; None where there is none."""
        if not partitions:
            return {}
        attempts = 0
        while True:
            try:
                found = await self._fetch_once(partitions, deadline_ms)
                return {partition: found.get(partition) for partition in partitions}
            except KafkaError as error:
                if error.code in _NOT_THIS_MEMBER:
                    error = _stale(error.code)
                await self._network.wait_before_retry(error, attempts, deadline_ms)
            attempts += 1

    async def _fetch_once(
        self, partitions: Collection[TopicPartition], deadline_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        make = fetch_request(self._group_id, partitions, self._committer.fetching_as())
        node_id = await self._find(deadline_ms)
        try:
            response = await self._network.within(
                deadline_ms,
                lambda: self._network.request(
                    self._committer.connection(node_id),
                    RequestBuilder(OffsetFetchRequest, make),
                    OffsetFetchResponse,
                    max_version=NEWEST_VERSION,
                ),
            )
        except KafkaError:
            self._forget(node_id)
            raise
        found = fetched_offsets(response)
        errors = [found.error] if found.error else list(found.errors.values())
        for code in sorted(errors, key=lambda code: code in _TRY_AGAIN):
            # Final errors first: what only takes its time does not hide them.
            if code in COORDINATOR_ERRORS:
                self._forget(node_id)
            raise error_of(code, self._not_found(code, found.errors))
        return found.offsets

    def _not_found(self, code: ErrorCode, errors: Mapping[TopicPartition, ErrorCode]) -> str:
        of = ", ".join(str(p) for p, e in sorted(errors.items()) if e is code)
        what = f" of {of}" if of else ""
        text = f"the committed offsets{what} of group {self._group_id} cannot be read: {code.name}"
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return f"{text}. There is no such topic or partition"
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return f"{text}. The user of this client needs the ACL DESCRIBE on the topic"
        if code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return f"{text}. The user of this client needs the ACL DESCRIBE on the group"
        return text

    async def _find(self, deadline_ms: int) -> int:
        return await self._coordinators.find(CoordinatorKind.GROUP, self._group_id, deadline_ms)

    def _forget(self, node_id: int) -> None:
        self._coordinators.forget(CoordinatorKind.GROUP, self._group_id, node_id)


def _may_retry(error: KafkaError) -> bool:
    # A rebalance ends only when poll is called: waiting for it here would be in vain.
    return error.code.retriable and error.code is not ErrorCode.REBALANCE_IN_PROGRESS


def _stale(code: ErrorCode) -> KafkaError:
    """The epoch is about to change: `pause_after` takes it as worth another attempt."""
    return CommitFailedError(
        f"the member's epoch has changed while its request was under way ({code.name})",
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
