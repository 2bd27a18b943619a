"""Members of groups that the Java client has.

A member has a `handle`, which its jobs name: member_join (with `settings`, and `topics` or a
`pattern`), member_poll (for `wait_ms`), member_commit and member_leave.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import count

from tests.support.kafka_clients.members import (
    GroupClient,
    GroupDescription,
    GroupMember,
    GroupProtocol,
    MemberDescription,
    PolledMember,
    settings_of,
)
from tests.support.kafka_clients.program import ProgramClient, from_wire

_handles = count(1)


class _Member(GroupMember):
    def __init__(
        self,
        program: ProgramClient,
        bootstrap: str,
        group: str,
        topics: Sequence[str],
        pattern: str | None,
        settings: Mapping[str, str],
    ) -> None:
        super().__init__()
        self._program = program
        self._bootstrap = bootstrap
        self._handle: str | None = f"member-{next(_handles)}"
        program.do(
            bootstrap,
            "",
            "member_join",
            handle=self._handle,
            group=group,
            topics=topics,
            pattern=pattern,
            settings=settings,
        )

    def poll(self, seconds: float) -> None:
        response = self._program.do(
            self._bootstrap, "", "member_poll", handle=self._handle, wait_ms=int(seconds * 1000)
        )
        self.records += [from_wire(record) for record in response["records"]]
        self.assignment = frozenset(
            (topic, partition) for topic, partition in response["assignment"]
        )

    def commit(self) -> None:
        self._program.do(self._bootstrap, "", "member_commit", handle=self._handle)

    def leave(self) -> None:
        if self._handle is not None:
            self._program.do(self._bootstrap, "", "member_leave", handle=self._handle)
            self._handle = None
            self.assignment = frozenset()


class _DoomedMember(_Member):
    def leave(self) -> None:
        self._program.close()  # which kills it
        self.assignment = frozenset()


class JavaGroups(GroupClient):
    def __init__(self, make: Callable[[], ProgramClient]) -> None:
        self._make = make
        self._program = make()
        self.name = self._program.name

    def close(self) -> None:
        self._program.close()

    def member(
        self,
        bootstrap: str,
        group: str,
        topics: Sequence[str] = (),
        *,
        pattern: str | None = None,
        protocol: GroupProtocol = "consumer",
        **settings: str,
    ) -> GroupMember:
        all_settings = settings_of(protocol, settings)
        return _Member(self._program, bootstrap, group, topics, pattern, all_settings)

    def doomed_member(self, bootstrap: str, group: str, topics: Sequence[str]) -> PolledMember:
        all_settings = settings_of("consumer", {})
        return _DoomedMember(self._make(), bootstrap, group, topics, None, all_settings)

    def groups(self, bootstrap: str, of_type: str | None = None) -> dict[str, tuple[str, str]]:
        result = self._program.do(bootstrap, "", "list_groups", type=of_type)["groups"]
        return {group: (kind or "", state or "") for group, (kind, state) in result.items()}

    def describe(self, bootstrap: str, group: str) -> GroupDescription:
        result = self._program.do(bootstrap, "", "describe_group", group=group)["group"]
        return GroupDescription(
            result["type"],
            result["state"],
            result["assignor"],
            [
                MemberDescription(
                    row["client_id"],
                    row["instance_id"],
                    frozenset((topic, number) for topic, number in row["assignment"]),
                    frozenset((topic, number) for topic, number in row["target"])
                    if "target" in row
                    else None,
                )
                for row in result["members"]
            ],
        )
