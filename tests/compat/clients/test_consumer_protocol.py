"""C3: groups of the consumer protocol (KIP-848), with every client that has it.

The state of a group is read with the admin API of the client under test.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest

from tests.support.kafka.broker import MissingPartError
from tests.support.kafka_clients.confluent_client import ConfluentClient
from tests.support.kafka_clients.confluent_members import ConfluentGroups
from tests.support.kafka_clients.java_members import JavaGroups
from tests.support.kafka_clients.members import (
    GroupClient,
    GroupMember,
    Partition,
    poll_until,
    share,
)
from tests.support.kafka_clients.model import ClientError, Record
from tests.support.kafka_clients.program import java_client, java_versions

UNRELEASED_INSTANCE_ID = 111
UNSUPPORTED_ASSIGNOR = 112
INVALID_REGULAR_EXPRESSION = 128

JAVA = [version for version in java_versions() if not version.startswith("3.")]
"""The protocol was a preview in the 3.x line."""
OLD_JAVA = next(version for version in java_versions() if version.startswith("3."))


def make(name: str) -> GroupClient:
    if name == "confluent-kafka":
        return ConfluentGroups()
    try:
        return JavaGroups(java_client(name.removeprefix("java-")))
    except MissingPartError as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture(
    scope="module", params=["confluent-kafka", *(f"java-{version}" for version in JAVA)]
)
def client(request: pytest.FixtureRequest) -> Iterator[GroupClient]:
    with make(request.param) as group_client:
        yield group_client


@pytest.fixture(scope="module")
def old_java() -> Iterator[GroupClient]:
    """A client that is used only with the classic protocol."""
    with make(f"java-{OLD_JAVA}") as group_client:
        yield group_client


@pytest.fixture
def members() -> Iterator[ExitStack]:
    """A stack of group members, which leave at the end of the test."""
    with ExitStack() as stack:
        yield stack


def all_of(topic: str, count: int) -> list[Partition]:
    return [(topic, number) for number in range(count)]


def records(what: str, partitions: int, count_per_partition: int = 2) -> list[Record]:
    return [
        Record(b"key", f"{what} {partition} {number}".encode(), partition=partition)
        for partition in range(partitions)
        for number in range(count_per_partition)
    ]


def values(result: Sequence[Record]) -> list[bytes]:
    return sorted(record.value or b"" for record in result)


def read_all(readers: Sequence[GroupMember], count: int) -> list[Record]:
    """Returns the records that all members have read."""
    poll_until(readers, lambda: sum(len(reader.records) for reader in readers) >= count, "reading")
    return [record for reader in readers for record in reader.records]


def wait_until_described(
    client: GroupClient,
    bootstrap: str,
    group: str,
    expected: tuple[str, str],
    has: Sequence[GroupMember] = (),
) -> None:
    """Waits until the group has the type, state and members with their current assignments.

    A member confirms its assignment to the coordinator with its next heartbeat.
    """

    def is_described() -> bool:
        if client.groups(bootstrap).get(group) != expected:
            return False
        described = client.describe(bootstrap, group)
        return (described.type, described.state) == expected and sorted(
            sorted(member.assignment) for member in described.members
        ) == sorted(sorted(item.assignment) for item in has)

    poll_until(has, is_described, f"{group} is {expected}")


def test_members_share_the_partitions(
    client: GroupClient, bootstrap: str, new_topic: Callable[..., str], members: ExitStack
) -> None:
    """C3: each partition has one owner; the partitions of a leaving member are reassigned."""
    topic = new_topic(4)
    group = f"group-of-{topic}"
    first = members.enter_context(client.member(bootstrap, group, [topic], client_id="first"))
    share([first], all_of(topic, 4))
    second = members.enter_context(client.member(bootstrap, group, [topic], client_id="second"))
    share([first, second], all_of(topic, 4))
    wait_until_described(client, bootstrap, group, ("Consumer", "Stable"), [first, second])
    described = client.describe(bootstrap, group)
    assert described.assignor == "uniform"
    assert {
        (member.client_id, member.assignment, member.target) for member in described.members
    } == {
        ("first", first.assignment, first.assignment),
        ("second", second.assignment, second.assignment),
    }
    assert client.groups(bootstrap, "Consumer")[group] == ("Consumer", "Stable")
    assert group not in client.groups(bootstrap, "Classic")
    first.leave()
    share([second], all_of(topic, 4))
    second.leave()
    wait_until_described(client, bootstrap, group, ("Consumer", "Empty"))


def test_a_group_resumes_at_its_committed_offsets(
    client: GroupClient,
    bootstrap: str,
    new_topic: Callable[..., str],
    witness: ConfluentClient,
    members: ExitStack,
) -> None:
    """C3, C5: later members read the records that earlier members did not commit."""
    topic = new_topic(2)
    group = f"group-of-{topic}"
    witness.produce(bootstrap, topic, records("first", 2))
    first = members.enter_context(client.member(bootstrap, group, [topic]))
    assert values(read_all([first], 4)) == values(records("first", 2))
    first.commit()
    first.leave()
    assert witness.committed(bootstrap, topic, group, 2) == {0: 2, 1: 2}
    witness.produce(bootstrap, topic, records("second", 2))
    second = members.enter_context(client.member(bootstrap, group, [topic]))
    assert values(read_all([second], 4)) == values(records("second", 2))
    second.commit()
    assert witness.committed(bootstrap, topic, group, 2) == {0: 4, 1: 4}


def test_the_partitions_of_a_crashed_member_are_reassigned(
    client: GroupClient, bootstrap: str, new_topic: Callable[..., str], members: ExitStack
) -> None:
    """C3: after its session timeout, the remaining members own them."""
    topic = new_topic(4)
    group = f"group-of-{topic}"
    survivor = members.enter_context(client.member(bootstrap, group, [topic]))
    with client.doomed_member(bootstrap, group, [topic]) as doomed:
        share([survivor, doomed], all_of(topic, 4))
    share([survivor], all_of(topic, 4))


def test_a_static_member_keeps_its_partitions_across_a_restart(
    client: GroupClient, bootstrap: str, new_topic: Callable[..., str], members: ExitStack
) -> None:
    """C3: a returning member gets its old assignment; no other member gets it until then."""
    topic = new_topic(4)
    group = f"group-of-{topic}"

    def join(instance: str) -> GroupMember:
        return members.enter_context(
            client.member(bootstrap, group, [topic], group_instance_id=instance)
        )

    stays, goes = join("stays"), join("goes")
    share([stays, goes], all_of(topic, 4))
    restarting_assignment, staying_assignment = goes.assignment, stays.assignment
    with client.member(bootstrap, group, [topic], group_instance_id="goes") as twin:
        with pytest.raises(ClientError) as refused:
            poll_until([twin, stays, goes], lambda: bool(twin.assignment), "the twin")
        assert refused.value.code == UNRELEASED_INSTANCE_ID
    goes.leave()
    described = {member.instance_id: member for member in client.describe(bootstrap, group).members}
    assert described["goes"].target == restarting_assignment
    restarted = join("goes")
    poll_until([stays, restarted], lambda: bool(restarted.assignment), "coming restarted")
    assert (restarted.assignment, stays.assignment) == (restarting_assignment, staying_assignment)


def test_a_regex_subscription_matches_whole_topic_names(
    client: GroupClient,
    bootstrap: str,
    topic: str,
    witness: ConfluentClient,
    members: ExitStack,
) -> None:
    """C3: the broker resolves the pattern to the topics whose whole name matches."""
    for name in (f"{topic}-in-1", f"{topic}-in-22", f"{topic}-in-3x", f"{topic}-out-1"):
        witness.create_topic(bootstrap, name, 2, {})
    matching = [*all_of(f"{topic}-in-1", 2), *all_of(f"{topic}-in-22", 2)]
    pattern = f"{topic}-in-[0-9]+"
    pair = [
        members.enter_context(client.member(bootstrap, f"group-of-{topic}", pattern=pattern))
        for _ in range(2)
    ]
    share(pair, matching)


def test_an_invalid_regex_is_rejected(client: GroupClient, bootstrap: str, topic: str) -> None:
    """C3: the broker rejects a pattern that RE2 cannot parse, though librdkafka accepts it."""
    with (
        client.member(bootstrap, f"group-of-{topic}", pattern=rf"({topic})\1") as member,
        pytest.raises(ClientError) as refused,
    ):
        poll_until([member], lambda: bool(member.assignment), "an assignment")
    assert refused.value.code == INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(("assignor", "counts"), [("uniform", (3, 3)), ("range", (4, 2))])
def test_each_assignor_assigns_partitions_as_specified(
    client: GroupClient,
    assignor: str,
    counts: tuple[int, int],
    bootstrap: str,
    topic: str,
    witness: ConfluentClient,
    members: ExitStack,
) -> None:
    """C4: range assigns equal partition numbers of two topics to the same member."""
    topics = [f"{topic}-one", f"{topic}-two"]
    for name in topics:
        witness.create_topic(bootstrap, name, 3, {})
    group = f"group-of-{topic}"
    pair = [
        members.enter_context(
            client.member(bootstrap, group, topics, group_remote_assignor=assignor)
        )
        for _ in range(2)
    ]
    share(pair, [item for name in topics for item in all_of(name, 3)], *counts)
    if assignor == "range":
        for entry in pair:
            numbers = [{n for t, n in entry.assignment if t == name} for name in topics]
            assert numbers[0] == numbers[1]
    assert client.describe(bootstrap, group).assignor == assignor


def test_an_unknown_assignor_is_rejected(
    client: GroupClient, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    """C4: the member receives the error."""
    topic = new_topic(1)
    with (
        client.member(
            bootstrap, f"group-of-{topic}", [topic], group_remote_assignor="sticky"
        ) as member,
        pytest.raises(ClientError) as refused,
    ):
        poll_until([member], lambda: bool(member.assignment), "an assignment")
    assert refused.value.code == UNSUPPORTED_ASSIGNOR


def test_added_partitions_are_assigned(
    client: GroupClient,
    bootstrap: str,
    new_topic: Callable[..., str],
    witness: ConfluentClient,
    members: ExitStack,
) -> None:
    """M1, C3: new partitions are assigned and read from their first offset."""
    topic = new_topic(2)
    group = f"group-of-{topic}"
    pair = [members.enter_context(client.member(bootstrap, group, [topic])) for _ in range(2)]
    share(pair, all_of(topic, 2))
    witness.grow_topic(bootstrap, topic, 4)
    share(pair, all_of(topic, 4))
    witness.produce(bootstrap, topic, records("grown", 4))
    assert values(read_all(pair, 8)) == values(records("grown", 4))


@pytest.mark.parametrize("classic_client", ["its own", "java 3.x"])
def test_from_classic_to_consumer_and_back(
    client: GroupClient,
    classic_client: str,
    bootstrap: str,
    new_topic: Callable[..., str],
    witness: ConfluentClient,
    members: ExitStack,
    old_java: GroupClient,
) -> None:
    """C3: members migrate one at a time while the group keeps running; its offsets are kept."""
    topic = new_topic(4)
    group = f"group-of-{topic}"
    of_classic = client if classic_client == "its own" else old_java

    def classic() -> GroupMember:
        return members.enter_context(
            of_classic.member(bootstrap, group, [topic], protocol="classic")
        )

    def modern() -> GroupMember:
        return members.enter_context(client.member(bootstrap, group, [topic]))

    old = [classic(), classic()]
    share(old, all_of(topic, 4))
    witness.produce(bootstrap, topic, records("first", 4))
    wait_until_described(client, bootstrap, group, ("Classic", "Stable"), old)
    assert values(read_all(old, 8)) == values(records("first", 4))
    for item in old:
        item.commit()

    old[0].leave()
    mixed = [modern(), old[1]]
    share(mixed, all_of(topic, 4))
    wait_until_described(client, bootstrap, group, ("Consumer", "Stable"), mixed)
    old[1].leave()
    new = [mixed[0], modern()]
    share(new, all_of(topic, 4))
    witness.produce(bootstrap, topic, records("second", 4))
    assert values(read_all(new, 8)) == values(records("second", 4))
    for entry in new:
        entry.commit()

    new[0].leave()
    mixed = [new[1], classic()]
    share(mixed, all_of(topic, 4))
    wait_until_described(client, bootstrap, group, ("Consumer", "Stable"), mixed)
    new[1].leave()
    share([mixed[1]], all_of(topic, 4))
    wait_until_described(client, bootstrap, group, ("Classic", "Stable"), [mixed[1]])
    assert witness.committed(bootstrap, topic, group, 4) == dict.fromkeys(range(4), 4)
    assert mixed[1].records == []
