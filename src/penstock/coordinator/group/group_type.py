"""The interface of a group type: everything that a shard needs to know about one type of group.

A type implements it in its own package (`classic.group_type`, `consumer.group_type`) and has one
line in `group_types`. The shard, offsets and administration use a group through this interface
only, so that another type is added without a change to them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from penstock.coordinator.group.config import GroupConfig
from penstock.coordinator.group.events import (
    RegexResolved,
    Requested,
    Result,
    Timer,
    Timers,
    TopicsChanged,
)
from penstock.coordinator.group.group import Group, StateUpdate
from penstock.coordinator.group.record import Record, RecordType
from penstock.coordinator.group.topics import Topics
from penstock.coordinator.machine import Response, TimerFired
from penstock.core.errors import ErrorCode
from penstock.protocol.fields import Message
from penstock.protocol.stored.offsets import OffsetCommitValue

GroupT = TypeVar("GroupT", bound=Group)


class DecisionContext(NamedTuple):
    """What a decision reads. It changes none of it."""

    groups: Mapping[str, Group]
    """All groups of the shard."""
    now: int
    config: GroupConfig
    topics: Topics


MemberHandler = Callable[[DecisionContext, Any, Requested, Any], Result | ErrorCode]
"""Decides about a request of a member: `(context, group, event, request)`. An error code is turned
into an error response by the shard."""

ErrorResponse = Callable[[Any, int, ErrorCode], Message]
"""Returns the response with an error to a request of some version: `(request, version, error)`."""


class DescribeRequest(NamedTuple):
    """A request that names any number of groups and gets one result for each.

    `multi_group_requests` splits it by shard and merges the responses.
    """

    group_ids: Callable[[Any], list[str]]
    part: Callable[[Any, list[str]], Message]
    """Returns the request for some of its groups."""
    results: Callable[[Any], list[Any]]
    """Returns the results in a response; each has a `group_id`."""
    response: Callable[[list[Any]], Message]
    describe: Callable[[DecisionContext, str, int], Any] | None = None
    """Returns the result for one group: `(context, group_id, version)`."""


class CommitRequest(Protocol):
    """An OffsetCommit or TxnOffsetCommit, as a group type checks it."""

    member_id: str
    instance_id: str | None
    generation: int
    """The generation or member epoch that the client names; negative if it names none."""
    version: int

    @property
    def is_transactional(self) -> bool: ...

    def partitions(self) -> Iterator[tuple[UUID, int]]:
        """Yields the partitions, by topic id, whose owner has to be checked."""
        ...


class GroupType(ABC, Generic[GroupT]):
    """One type of group. An instance has no state."""

    name: ClassVar[str]
    """As ListGroups shows and filters it."""
    group_class: ClassVar[type]
    record_class: ClassVar[type[Record]]
    record_types: ClassVar[Mapping[int, RecordType]]
    requests: ClassVar[Mapping[type[Message], MemberHandler]]
    """Requests of members to a group of this type."""
    entry_requests: ClassVar[Mapping[type[Message], MemberHandler]]
    """Requests of this type's protocol to a group that does not exist (None) or has another type:
    they create or convert it, or return an error."""
    describe_requests: ClassVar[Mapping[type[Message], DescribeRequest]]
    error_responses: ClassVar[Mapping[type[Message], ErrorResponse]]

    # --- records

    @abstractmethod
    def replay(self, groups: dict[str, Group], record: Record) -> None:
        """Applies a record of this type."""

    @abstractmethod
    def tombstones(self, group: GroupT) -> Iterable[Record]:
        """Returns the records that delete a group without members."""

    # --- lifecycle

    @abstractmethod
    def start(self, context: DecisionContext, group: GroupT) -> Result:
        """Starts the sessions of the members once all records have been applied."""

    def unload(self, group: GroupT, error: ErrorCode) -> Iterable[Response]:
        """Returns error responses to the requests that wait inside the group."""
        return ()

    def handle(
        self, context: DecisionContext, group: GroupT, event: TimerFired[Timer] | RegexResolved
    ) -> Result:
        """Decides about an event that names the group."""
        return Result(event)

    def topics_changed(
        self, context: DecisionContext, group: GroupT, event: TopicsChanged
    ) -> Sequence[StateUpdate]:
        return ()

    def write_failed(
        self,
        context: DecisionContext,
        group: GroupT,
        result: Result,
        error: ErrorCode,
        *,
        applied: bool,
    ) -> Result:
        """Returns what follows for the group, in addition to what `GroupShard` does."""
        return Result()

    # --- administration

    @abstractmethod
    def protocol_type(self, group: GroupT) -> str:
        """Returns the protocol type that ListGroups shows."""

    # --- offsets

    @abstractmethod
    def check_commit(self, group: GroupT, commit: CommitRequest) -> ErrorCode:
        """Returns whether a client may commit offsets of a group with members."""

    def committed(self, group: GroupT, member_id: str, now: int) -> Timers:
        """Returns the timers to set after a member has committed."""
        return ()

    def check_fetch(self, group: GroupT, member_id: str | None, member_epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    def check_delete_offsets(self, group: GroupT) -> ErrorCode:
        return ErrorCode.NONE

    @abstractmethod
    def retention_start(self, group: GroupT) -> Callable[[OffsetCommitValue], int] | None:
        """Returns when the retention of an offset starts; None if the group's offsets are kept."""


def commit_time(value: OffsetCommitValue) -> int:
    """The usual `retention_start`: the time of the commit."""
    return value.commit_timestamp
