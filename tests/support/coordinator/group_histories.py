"""Random histories of consumer groups: what members, tools and the cluster do, from a seed.

A history runs on our shard and is recorded line by line, so that Kafka's own coordinator can
run it too (`tests/compat/java/DriveGroups.java` documents the lines).
"""

import re
from base64 import b64encode
from random import Random
from uuid import UUID

from penstock.coordinator.group.classic.model import ClassicGroup
from penstock.coordinator.group.config import ConsumerGroupConfig, GroupConfig
from penstock.coordinator.group.events import (
    RegexResolved,
    RejoinTimer,
    ResolveRegexes,
    ResyncTimer,
    RevocationTimer,
    SessionTimer,
    Timer,
)
from penstock.coordinator.timers import TimerQueue
from penstock.core.errors import ErrorCode
from penstock.protocol.codec import encode
from penstock.protocol.fields import Message
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.protocol.messages.offset_commit import OffsetCommitResponse
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from penstock.protocol.messages.sync_group import SyncGroupResponse
from tests.support.coordinator.groups import (
    GroupHost,
    assignment,
    commit_request,
    id_of,
    join_request,
    subscription,
    sync_request,
)
from tests.support.coordinator.shard_host import START_MS

STEPS = 150
GROUPS = ["g", "h"]
NAMES = ["a", "b", "c", "d1", "d2"]
REGEXES = ["d.*", "[ab]", "d.|c", ""]


class NamedTimers(TimerQueue[Timer]):
    """Timers of the same time are due in the order of their names, as on the other side."""

    def __init__(self) -> None:
        super().__init__()
        self.deadlines: dict[Timer, int] = {}

    def set(self, key: Timer, deadline_ms: int) -> None:
        self.deadlines[key] = deadline_ms

    def cancel(self, key: Timer) -> None:
        self.deadlines.pop(key, None)

    def next_deadline(self) -> int | None:
        return min(self.deadlines.values(), default=None)

    def pop_due(self, now: int) -> Timer | None:
        due = [(at, _name(timer), timer) for timer, at in self.deadlines.items() if at <= now]
        if not due:
            return None
        timer = min(due)[2]
        del self.deadlines[timer]
        return timer


def _name(timer: Timer) -> tuple[str, ...]:
    """As Kafka's, where it matters."""
    kind = {SessionTimer: "session", RevocationTimer: "rebalance", RejoinTimer: "join"}
    first = kind.get(type(timer), "sync" if isinstance(timer, ResyncTimer) else "group")
    return (first, *(str(getattr(timer, field)) for field in timer.__struct_fields__))


class NamedTimersHost(GroupHost):
    def new_timers(self) -> TimerQueue[Timer]:
        return NamedTimers()


class Client:
    """A member as it sees itself."""

    def __init__(self, group: str, member_id: str, instance: str | None) -> None:
        self.group = group
        self.member_id = member_id
        self.instance = instance
        self.epoch = 0
        self.owned: dict[str, list[int]] = {}


class GroupHistory:
    """Chooses steps, takes them on our side, and writes them down for Kafka's."""

    def __init__(self, seed: int, *, classic: bool) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.classic = classic
        self.host = NamedTimersHost(
            GroupConfig(
                group_initial_rebalance_delay_ms=0,
                group_consumer_max_size=5,
                group_consumer_assignors=("range",),
                group_consumer_regex_refresh_interval_ms=60_000,
                offsets_retention_minutes=10,
                consumer=ConsumerGroupConfig(45_000, 5_000, 1_000),
            ),
            topics={"a": 3, "b": 2},
            check_pure=False,
        )
        self.version = 4
        self.clients: dict[tuple[str, str], Client] = {}
        self.lines: list[str] = [
            "CONFIG group.initial.rebalance.delay.ms=0 group.consumer.max.size=5"
            " offsets.retention.minutes=10 group.consumer.regex.refresh.interval.ms=60000",
            f"NOW {START_MS}",
            "RESTART",
            self._topics_line(),
        ]
        self.outcomes: list[tuple[list[tuple[bytes, bytes | None]], dict[int, Message]]] = []
        self.outcomes.extend([([], {})] * 4)
        self.requests: list[tuple[type[Message], int]] = []

    def _topics_line(self) -> str:
        result = self.host.topics.partitions.items()
        return " ".join(["TOPICS", *(f"{name}/{id_of(name)}/{n}" for name, n in result)])

    def _note(self, line: str, since: int, responses: dict[int, Message]) -> None:
        self.lines.append(line)
        self.outcomes.append((self.host.log[since:], responses))

    def _request(
        self, request: Message, response: type[Message], version: int, client: str
    ) -> Message | None:
        since = len(self.host.log)
        earlier = set(self.host.responses)
        waiter = self.host.send(request, version, client_id=client)
        self.requests.append((response, version))
        body = b64encode(encode(request, version)).decode()
        api = type(request).INFO.key
        new = {n - 1: self.host.responses[n] for n in self.host.responses if n not in earlier}
        self._note(f"REQUEST {api} {version} {client} {body}", since, new)
        return self.host.responses.get(waiter)

    def run(self) -> None:
        for _ in range(STEPS):
            self.step()

    def step(self) -> None:
        """Some time passes, and something happens."""
        since = len(self.host.log)
        earlier = set(self.host.responses)
        self.host.advance(self.random.choice([1, 37, 501, 1_001, 4_999, 20_003]))
        new = {n - 1: self.host.responses[n] for n in self.host.responses if n not in earlier}
        self._note(f"NOW {self.host.now}", since, new)
        self._act()
        # Kafka remembers by name who waits, over the end of a group.
        waiting: dict[str, ResolveRegexes] = {}
        for request in self.host.regexes:
            waiting.setdefault(request.group_id, request)
        self.host.regexes = list(waiting.values())

    def _act(self) -> None:
        draw = self.random.random()
        if draw < 0.03:
            self._restart()
        elif draw < 0.08:
            self._change_topics()
        elif draw < 0.14:
            self._resolve()
        elif draw < 0.28:
            self._look()
        elif draw < 0.40:
            self._commit()
        elif draw < 0.44:
            group = self.random.choice(GROUPS)
            self._request(DeleteGroupsRequest([group]), DeleteGroupsResponse, 2, "admin")
        elif self.classic and draw < 0.62:
            self._classic()
        else:
            self._heartbeat()

    # --- members

    def _client(self) -> Client:
        number = self.random.randrange(7)
        group = self.random.choice([*GROUPS, "g"])
        instance = f"i{number % 2}" if number < 3 else None
        key = (group, f"m{number}")
        return self.clients.setdefault(key, Client(group, f"m{number}", instance))

    def _heartbeat(self) -> None:
        client = self._client()
        random = self.random
        request = ConsumerGroupHeartbeatRequest(
            group_id=client.group,
            member_id=client.member_id,
            member_epoch=client.epoch,
            instance_id=client.instance,
        )
        draw = random.random()
        if draw < 0.06:
            request.member_epoch = -1
        elif draw < 0.12 and client.instance is not None:
            request.member_epoch = -2
        elif draw < 0.18:
            request.member_epoch = client.epoch + random.choice([-1, 1])
            request.member_epoch = max(request.member_epoch, 0)
        if request.member_epoch == 0:
            self._full(request, {})
        elif draw < 0.35:
            self._full(request, client.owned)
        elif draw < 0.8:
            request.topic_partitions = _owned(client.owned)
        response = self._request(
            request, ConsumerGroupHeartbeatResponse, 1, random.choice(["x", "x", "y"])
        )
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if response.error_code in (
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ):
            client.epoch, client.owned = 0, {}
        elif not response.error_code:
            client.epoch = max(response.member_epoch, 0)
            if response.assignment is not None:
                # It gives up revoked partitions at once, or only later.
                settings = {
                    str(topic.topic_id): topic.partitions
                    for topic in response.assignment.topic_partitions
                }
                if random.random() < 0.8 or not client.owned:
                    client.owned = settings

    def _full(self, request: ConsumerGroupHeartbeatRequest, owned: dict[str, list[int]]) -> None:
        random = self.random
        request.rebalance_timeout_ms = random.choice([30_000, 30_000, 60_000])
        if random.random() < 0.3:
            request.subscribed_topic_regex = random.choice(REGEXES)
        if random.random() < 0.8 or request.subscribed_topic_regex is None:
            names = random.choice([["a"], ["a"], ["a", "b"], ["b", "c"], []])
            request.subscribed_topic_names = names
        request.server_assignor = random.choice([None, "range"])
        request.topic_partitions = _owned(owned)
        request.rack_id = random.choice([None, "r"])

    def _classic(self) -> None:
        client = self._client()
        random = self.random
        if client.instance is not None:
            # Kafka would choose a random member id.
            return
        group = self.host.shard.groups.get(client.group)
        if group is None or group.is_empty:
            # Kafka generates a random member id here, or removes the group without a record.
            return
        if isinstance(group, ClassicGroup) and len(group.members) > 1:
            # After a downgrade the leader depends on the order of Java's hash tables.
            return
        draw = random.random()
        if draw < 0.5:
            names = random.choice([["a"], ["a", "b"], ["b"]])
            request = join_request(
                client.member_id,
                group=client.group,
                protocols={"range": subscription(*names)},
                session_ms=20_000,
                rebalance_ms=30_000,
            )
            response = self._request(request, JoinGroupResponse, 6, "x")
            if isinstance(response, JoinGroupResponse) and not response.error_code:
                client.epoch = response.generation_id
        elif draw < 0.7:
            assignments = {client.member_id: assignment(("a", 0), ("a", 1))}
            sync = sync_request(client.member_id, client.epoch, assignments, group=client.group)
            self._request(sync, SyncGroupResponse, 5, "x")
        elif draw < 0.95:
            beat = HeartbeatRequest(client.group, client.epoch, client.member_id)
            self._request(beat, HeartbeatResponse, 4, "x")
        else:
            leave = LeaveGroupRequest(
                group_id=client.group, members=[MemberIdentity(client.member_id)]
            )
            self._request(leave, LeaveGroupResponse, 5, "x")

    # --- everything else

    def _restart(self) -> None:
        if any(isinstance(g, ClassicGroup) and g.members for g in self.host.shard.groups.values()):
            return
        self.host.restart()
        self.host.regexes.clear()
        self.version += 1
        self.lines.append("RESTART")
        self.outcomes.append(([], {}))

    def _change_topics(self) -> None:
        name = self.random.choice(NAMES)
        count = self.host.topics.partitions.get(name, 0)
        self.host.make_topics(
            {name: self.random.choice([count + 1, count + 2, 0])} if count else {name: 2}
        )
        self.version += 1
        self.lines.append(self._topics_line())
        self.outcomes.append(([], {}))

    def _resolve(self) -> None:
        since = len(self.host.log)
        waiting, self.host.regexes = self.host.regexes, []
        for request in waiting:
            result = {
                pattern: frozenset(
                    t for t in self.host.topics.partitions if re.fullmatch(pattern, t)
                )
                for pattern in request.patterns
            }
            self.host.event(RegexResolved(request.group_id, result, self.version, self.host.now))
        self._note("REGEX", since, {})

    def _look(self) -> None:
        group = self.random.choice(GROUPS)
        match self.random.randrange(4):
            case 0:
                request = ConsumerGroupDescribeRequest([group])
                self._request(request, ConsumerGroupDescribeResponse, 1, "admin")
            case 1:
                states = self.random.choice([[], ["Stable"], ["empty", "assigning"]])
                types = self.random.choice([[], ["consumer"], ["Classic"]])
                self._request(ListGroupsRequest(states, types), ListGroupsResponse, 5, "admin")
            case 2:
                self._request(DescribeGroupsRequest([group]), DescribeGroupsResponse, 6, "admin")
            case _:
                client = self._client()
                member = self.random.choice([(None, -1), (client.member_id, client.epoch)])
                group_request = OffsetFetchRequestGroup(client.group, member[0], member[1], None)
                self._request(
                    OffsetFetchRequest(groups=[group_request]), OffsetFetchResponse, 9, "x"
                )

    def _commit(self) -> None:
        client = self._client()
        existing = sorted(self.host.topics.partitions)
        if not existing:
            return
        topic = self.random.choice(existing)
        epoch = self.random.choice([client.epoch, client.epoch, client.epoch - 1, -1])
        request = commit_request(
            {(topic, 0): self.random.randrange(100)},
            group=client.group,
            member_id="" if epoch == -1 else client.member_id,
            generation=epoch,
        )
        self._request(request, OffsetCommitResponse, self.random.choice([8, 9, 9, 9]), "x")


def _owned(owned: dict[str, list[int]]) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
    return [ConsumerGroupHeartbeatRequestTopicPartitions(UUID(t), p) for t, p in owned.items()]
