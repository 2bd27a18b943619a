"""How admin calls find their brokers, and what they do when something fails."""

import asyncio

import pytest

from penstock.client.admin import (
    AdminError,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
    OffsetSpec,
    TopicPartitionReplica,
    api_driver,
)
from penstock.client.errors import (
    AuthorizationError,
    ClientError,
    DisconnectError,
    KafkaTimeoutError,
)
from penstock.core.errors import ErrorCode, UnsupportedVersionError
from penstock.core.ids import TopicPartition
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Message
from penstock.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from penstock.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from penstock.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tests.support.client.fake_cluster import GONE, FakeCluster, admin_of, in_turn

NONE = ErrorCode.NONE


def created(node_id: int, request: CreateTopicsRequest) -> Message:
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(topic.name) for topic in request.topics]
    )


def refused(code: ErrorCode) -> Message:
    return CreateTopicsResponse(topics=[CreatableTopicResult("t", error_code=code)])


def offsets(node_id: int, request: ListOffsetsRequest) -> Message:
    """Each offset tells who was asked."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                topic.name,
                [
                    ListOffsetsPartitionResponse(partition.partition_index, offset=node_id)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def offset_error(code: ErrorCode) -> Message:
    partition = ListOffsetsPartitionResponse(0, code)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", [partition])])


def test_the_controller_is_asked_and_the_next_one_when_it_has_moved() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()

        def moved(node_id: int, request: CreateTopicsRequest) -> Message:
            cluster.controller = 3
            return refused(ErrorCode.NOT_CONTROLLER)

        cluster.answers[CreateTopicsRequest] = in_turn(moved, created)
        result = await admin_of(cluster).create_topics([NewTopic("t", 1, 1)])
        assert list(result) == ["t"]
        assert [node for node, _ in cluster.asked] == [1, 3]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "lost", [DisconnectError("gone"), KafkaTimeoutError("silent")], ids=["gone", "silent"]
)
def test_a_lost_answer_is_asked_for_again(lost: ClientError) -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        cluster.answers[CreateTopicsRequest] = in_turn(lost, lost, created)
        await admin_of(cluster).create_topics([NewTopic("t", 1, 1)])
        assert len(cluster.asked) == 3

    asyncio.run(scenario())


def test_what_will_not_change_is_not_tried_again() -> None:
    """E1: and the error says what to do."""

    async def scenario() -> None:
        cluster = FakeCluster()
        response = refused(ErrorCode.INVALID_REPLICATION_FACTOR)
        cluster.answers[CreateTopicsRequest] = lambda *_: response
        with pytest.raises(AdminError, match="start more") as failed:
            await admin_of(cluster).create_topics([NewTopic("t", 1, 5)])
        assert failed.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        assert len(cluster.asked) == 1

    asyncio.run(scenario())


def test_some_fail_and_the_others_are_done() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        response = CreateTopicsResponse(
            topics=[
                CreatableTopicResult("good"),
                CreatableTopicResult("bad", error_code=ErrorCode.TOPIC_ALREADY_EXISTS),
                CreatableTopicResult("mine", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            ]
        )
        cluster.answers[CreateTopicsRequest] = lambda *_: response
        requested = [NewTopic(name, 1, 1) for name in ("good", "bad", "silent", "mine")]
        with pytest.raises(AdminError, match="2 more of 4 failed in create_topics") as failed:
            await admin_of(cluster).create_topics(requested)
        assert {name: error.code for name, error in failed.value.errors.items()} == {
            "bad": ErrorCode.TOPIC_ALREADY_EXISTS,
            "silent": ErrorCode.UNKNOWN_SERVER_ERROR,
            "mine": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        }
        assert isinstance(failed.value.errors["mine"], AuthorizationError)
        assert list(failed.value.results) == ["good"]

    asyncio.run(scenario())


def test_each_leader_is_asked_once_about_all_of_its_partitions() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        partitions = [TopicPartition("t", index) for index in range(6)]
        cluster.leaders = {partition: partition.partition % 3 + 1 for partition in partitions}
        cluster.answers[ListOffsetsRequest] = offsets
        results = await admin_of(cluster).list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
        assert {key: offset.offset for key, offset in results.items()} == cluster.leaders
        assert sorted(node for node, _ in cluster.asked) == [1, 2, 3]
        assert len(cluster.lookups) == 1

    asyncio.run(scenario())


def test_a_partition_whose_leader_moved_is_looked_up_again_alone() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        here, there = TopicPartition("t", 0), TopicPartition("u", 0)
        cluster.leaders = {here: 1, there: 2}

        def moved(node_id: int, request: ListOffsetsRequest) -> Message:
            if node_id == 1:
                cluster.leaders[here] = 3
                return offset_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return offsets(node_id, request)

        cluster.answers[ListOffsetsRequest] = moved
        results = await admin_of(cluster).list_offsets({here: 0, there: 0})
        assert (results[here].offset, results[there].offset) == (3, 2)
        assert sorted(node for node, _ in cluster.asked) == [1, 2, 3]

    asyncio.run(scenario())


def test_a_topic_that_nobody_knows_is_given_up_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """E5: it may just have been made, but nobody waits for a minute."""
    monkeypatch.setattr(api_driver, "UNKNOWN_TOPIC_GRACE_MS", 20)

    async def scenario() -> None:
        cluster = FakeCluster()
        with pytest.raises(AdminError, match=r"t-0: there is no such topic.*create") as failed:
            await admin_of(cluster).list_offsets({TopicPartition("t", 0): 0})
        assert failed.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(cluster.lookups) > 1

    asyncio.run(scenario())


def test_time_runs_out() -> None:
    """E6: the error says what was in the way."""

    async def scenario() -> None:
        cluster = FakeCluster()
        cluster.answers[CreateTopicsRequest] = in_turn(
            DisconnectError("cannot connect to b1"), KafkaTimeoutError("late")
        )
        with pytest.raises(KafkaTimeoutError, match=r"create_topics.*cannot connect to b1"):
            await admin_of(cluster).create_topics([NewTopic("t", 1, 1)], timeout_ms=20)
        cluster.answers[ListPartitionReassignmentsRequest] = in_turn(
            DisconnectError("cannot connect to b1"), KafkaTimeoutError("late")
        )
        with pytest.raises(KafkaTimeoutError, match="cannot connect to b1"):
            await admin_of(cluster).list_partition_reassignments(timeout_ms=20)

    asyncio.run(scenario())


def test_one_broker_does_not_answer() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        here, there = TopicPartition("t", 0), TopicPartition("t", 1)
        cluster.leaders = {here: 1, there: 2}

        def half(node_id: int, request: ListOffsetsRequest) -> Message:
            if node_id == 2:
                raise DisconnectError("cannot connect to b2")
            return offsets(node_id, request)

        cluster.answers[ListOffsetsRequest] = half
        with pytest.raises(AdminError, match="cannot connect to b2") as failed:
            await admin_of(cluster).list_offsets({here: 0, there: 0}, timeout_ms=20)
        assert list(failed.value.errors) == [there]
        assert list(failed.value.results) == [here]

    asyncio.run(scenario())


def test_retries_are_limited() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        cluster.answers[CreateTopicsRequest] = in_turn(DisconnectError("gone"))
        with pytest.raises(KafkaTimeoutError, match="after 3 attempts"):
            await admin_of(cluster, retries=2).create_topics([NewTopic("t", 1, 1)])
        assert len(cluster.asked) == 3

    asyncio.run(scenario())


def test_coordinators_are_found_together_and_asked_together() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        cluster.coordinators = {"a": 1, "b": 2, "c": 2}

        def moving(node_id: int, request: DeleteGroupsRequest) -> Message:
            code = NONE
            if node_id == 1:
                cluster.coordinators["a"] = 3
                code = ErrorCode.NOT_COORDINATOR
            return DeleteGroupsResponse(
                results=[DeletableGroupResult(name, code) for name in request.groups_names]
            )

        cluster.answers[DeleteGroupsRequest] = moving
        await admin_of(cluster).delete_groups(["a", "b", "c"])
        requested = {node: request.groups_names for node, request in cluster.asked}
        assert requested == {1: ["a"], 2: ["b", "c"], 3: ["a"]}
        assert [lookup.coordinator_keys for lookup in cluster.lookups] == [["a", "b", "c"], ["a"]]

    asyncio.run(scenario())


def test_old_brokers_find_coordinators_one_by_one() -> None:
    async def scenario() -> None:
        cluster = FakeCluster({ApiKey.FIND_COORDINATOR: 3})
        cluster.coordinators = {"a": 1, "b": 2}
        cluster.answers[DeleteGroupsRequest] = lambda _, request: DeleteGroupsResponse(
            results=[DeletableGroupResult(name) for name in request.groups_names]
        )
        await admin_of(cluster).delete_groups(["a", "b"])
        assert {node: request.groups_names for node, request in cluster.asked} == {
            1: ["a"],
            2: ["b"],
        }

    asyncio.run(scenario())


def test_all_brokers_are_asked() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        loading = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        is_loading = {2}

        def answer(node_id: int, request: ListGroupsRequest) -> Message:
            if node_id in is_loading:
                is_loading.clear()
                return loading
            return ListGroupsResponse(groups=[ListedGroup(f"of-{node_id}", "consumer", "Stable")])

        cluster.answers[ListGroupsRequest] = answer
        results = await admin_of(cluster).list_groups()
        assert [group.group_id for group in results] == ["of-1", "of-2", "of-3"]
        assert sorted(node for node, _ in cluster.asked) == [1, 2, 2, 3]

    asyncio.run(scenario())


def test_a_broker_is_asked_about_its_own_settings() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        kind = ConfigResourceType.BROKER
        cluster.answers[DescribeConfigsRequest] = lambda node, request: DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    0, None, resource_item.resource_type, resource_item.resource_name
                )
                for resource_item in request.resources
            ]
        )
        resources = [ConfigResource(kind, name) for name in ("", "2", "3")]
        await admin_of(cluster).describe_configs(resources)
        requested = {
            node: [resource.resource_name for resource in r.resources] for node, r in cluster.asked
        }
        assert [requested[2], requested[3]] == [["2"], ["3"]]
        with pytest.raises(AdminError, match=r"there is no broker 9 .*\(1, 2, 3\)") as failed:
            await admin_of(cluster).describe_configs(
                [ConfigResource(kind, "9"), ConfigResource(kind, "nine")]
            )
        assert "a number" in failed.value.errors[ConfigResource(kind, "nine")].message

    asyncio.run(scenario())


def test_replicas_are_moved_by_their_brokers() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        done = AlterReplicaLogDirsResponse(
            results=[AlterReplicaLogDirTopicResult("t", [AlterReplicaLogDirPartitionResult(0)])]
        )
        cluster.answers[AlterReplicaLogDirsRequest] = lambda *_: done
        moves = {TopicPartitionReplica("t", 0, node): "/data" for node in (2, 3)}
        await admin_of(cluster).alter_replica_log_dirs(moves)
        assert sorted(node for node, _ in cluster.asked) == [2, 3]
        with pytest.raises(AdminError, match="there is no broker 9"):
            await admin_of(cluster).alter_replica_log_dirs(
                {TopicPartitionReplica("t", 0, 9): "/data"}
            )

    asyncio.run(scenario())


def test_an_api_that_is_not_served_names_the_kafka_that_has_it() -> None:
    """E4."""

    async def scenario() -> None:
        cluster = FakeCluster({ApiKey.LIST_PARTITION_REASSIGNMENTS: GONE})
        with pytest.raises(
            UnsupportedVersionError,
            match=r"ListPartitionReassignments \(API key 46\), which broker b1:9092 \(id 1\) does "
            r"not serve: Kafka 2.4 and newer have it",
        ):
            await admin_of(cluster).list_partition_reassignments()

    asyncio.run(scenario())


def test_an_error_of_the_whole_call_is_raised_as_itself() -> None:
    """E3."""

    async def scenario() -> None:
        cluster = FakeCluster()
        cluster.answers[ListPartitionReassignmentsRequest] = in_turn(
            lambda *_: ListPartitionReassignmentsResponse(
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            )
        )
        with pytest.raises(AuthorizationError, match=r"ACL on the cluster.*super\.users"):
            await admin_of(cluster).list_partition_reassignments()

    asyncio.run(scenario())


def test_one_alone_is_refused() -> None:
    """A text would be taken for its letters: delete_topics("orders") for the topics o, r, d …"""

    async def scenario() -> None:
        admin = admin_of(cluster := FakeCluster())
        for call in (
            admin.delete_topics("orders"),
            admin.describe_topics("orders"),
            admin.list_group_offsets("orders"),
            admin.describe_user_scram_credentials("ann"),
            admin.describe_producers(TopicPartition("t", 0)),  # type: ignore[arg-type]
            admin.create_topics(NewTopic("t")),  # type: ignore[arg-type]
        ):
            with pytest.raises(TypeError, match="put it into a list"):
                await call
        assert not cluster.asked
        assert not cluster.lookups

    asyncio.run(scenario())


def test_a_broker_that_cannot_be_reached_is_remembered() -> None:
    """E6: a call that only waits for the next attempt says why it waits."""

    async def scenario() -> None:
        cluster = FakeCluster()
        cluster.answers[CreateTopicsRequest] = in_turn(
            DisconnectError("cannot connect to b1"),
            KafkaTimeoutError("time is up"),
            created,
            KafkaTimeoutError("time is up"),
        )
        admin = admin_of(cluster, retries=0)
        for reason in ("cannot connect to b1", "time is up: cannot connect to b1"):
            with pytest.raises(KafkaTimeoutError, match=reason):
                await admin.create_topics([NewTopic("t", 1, 1)])
        await admin.create_topics([NewTopic("t", 1, 1)])
        with pytest.raises(KafkaTimeoutError, match=r"time is up$"):
            await admin.create_topics([NewTopic("t", 1, 1)])

    asyncio.run(scenario())
