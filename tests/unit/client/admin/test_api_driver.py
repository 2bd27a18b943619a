"""How admin calls find their brokers, and what they do when something fails."""

import asyncio
from typing import Any

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
from penstock.protocol.messages.metadata import MetadataRequest
from tests.support.client.fake_cluster import UNSUPPORTED, FakeCluster, admin_of, in_turn

NONE = ErrorCode.NONE


def created(node_id: int, request: CreateTopicsRequest) -> Message:
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(topic.name) for topic in request.topics]
    )


def refused(code: ErrorCode) -> Message:
    return CreateTopicsResponse(topics=[CreatableTopicResult("t", error_code=code)])


def offsets(node_id: int, request: ListOffsetsRequest) -> Message:
    """Responds with the id of the broker as each offset."""
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


def test_requests_go_to_the_new_controller_after_it_has_moved() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()

        def moved(node_id: int, request: CreateTopicsRequest) -> Message:
            cluster.controller = 3
            return refused(ErrorCode.NOT_CONTROLLER)

        cluster.handlers[CreateTopicsRequest] = in_turn(moved, created)
        result = await admin_of(cluster).create_topics([NewTopic("t", 1, 1)])
        assert list(result) == ["t"]
        assert [node for node, _ in cluster.requests] == [1, 3]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "error",
    [DisconnectError("disconnected"), KafkaTimeoutError("silent")],
    ids=["disconnected", "timeout"],
)
def test_a_request_without_a_response_is_retried(error: ClientError) -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        cluster.handlers[CreateTopicsRequest] = in_turn(error, error, created)
        await admin_of(cluster).create_topics([NewTopic("t", 1, 1)])
        assert len(cluster.requests) == 3

    asyncio.run(scenario())


def test_a_permanent_error_is_not_retried() -> None:
    """E1: the error says what to do."""

    async def scenario() -> None:
        cluster = FakeCluster()
        response = refused(ErrorCode.INVALID_REPLICATION_FACTOR)
        cluster.handlers[CreateTopicsRequest] = lambda *_: response
        with pytest.raises(AdminError, match="start more") as failed:
            await admin_of(cluster).create_topics([NewTopic("t", 1, 5)])
        assert failed.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        assert len(cluster.requests) == 1

    asyncio.run(scenario())


def test_the_error_has_failures_and_successful_results() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        response = CreateTopicsResponse(
            topics=[
                CreatableTopicResult("good"),
                CreatableTopicResult("bad", error_code=ErrorCode.TOPIC_ALREADY_EXISTS),
                CreatableTopicResult("mine", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            ]
        )
        cluster.handlers[CreateTopicsRequest] = lambda *_: response
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


def test_each_leader_gets_one_request_for_all_of_its_partitions() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        partitions = [TopicPartition("t", index) for index in range(6)]
        cluster.leaders = {partition: partition.partition % 3 + 1 for partition in partitions}
        cluster.handlers[ListOffsetsRequest] = offsets
        results = await admin_of(cluster).list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
        assert {key: offset.offset for key, offset in results.items()} == cluster.leaders
        assert sorted(node for node, _ in cluster.requests) == [1, 2, 3]
        assert len(cluster.lookups) == 1

    asyncio.run(scenario())


def test_only_a_partition_whose_leader_moved_is_looked_up_again() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        moved_partition, partition = TopicPartition("t", 0), TopicPartition("u", 0)
        cluster.leaders = {moved_partition: 1, partition: 2}

        def moved(node_id: int, request: ListOffsetsRequest) -> Message:
            if node_id == 1:
                cluster.leaders[moved_partition] = 3
                return offset_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return offsets(node_id, request)

        cluster.handlers[ListOffsetsRequest] = moved
        results = await admin_of(cluster).list_offsets({moved_partition: 0, partition: 0})
        assert (results[moved_partition].offset, results[partition].offset) == (3, 2)
        assert sorted(node for node, _ in cluster.requests) == [1, 2, 3]

    asyncio.run(scenario())


def test_an_unknown_topic_is_an_error_after_the_grace_period(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """E5: it may just have been created, but the call does not wait for its whole timeout."""
    monkeypatch.setattr(api_driver, "UNKNOWN_TOPIC_GRACE_MS", 60_000)

    async def scenario() -> None:
        cluster = FakeCluster()
        describe = cluster.handlers[MetadataRequest]

        def describe_and_end_the_period(node_id: int, request: Any) -> Any:
            if len(cluster.lookups) == 3:
                monkeypatch.setattr(api_driver, "UNKNOWN_TOPIC_GRACE_MS", 0)
            return describe(node_id, request)

        cluster.handlers[MetadataRequest] = describe_and_end_the_period
        with pytest.raises(AdminError, match=r"t-0: there is no such topic.*create") as failed:
            await admin_of(cluster).list_offsets({TopicPartition("t", 0): 0})
        assert failed.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(cluster.lookups) == 3

    asyncio.run(scenario())


def test_the_error_of_a_timeout_has_the_last_failure() -> None:
    """E6: the error has the reason of the delay."""

    async def scenario() -> None:
        cluster = FakeCluster()
        cluster.handlers[CreateTopicsRequest] = in_turn(
            DisconnectError("cannot connect to b1"), KafkaTimeoutError("late")
        )
        with pytest.raises(KafkaTimeoutError, match=r"create_topics.*cannot connect to b1"):
            await admin_of(cluster).create_topics([NewTopic("t", 1, 1)], timeout_ms=20)
        cluster.handlers[ListPartitionReassignmentsRequest] = in_turn(
            DisconnectError("cannot connect to b1"), KafkaTimeoutError("late")
        )
        with pytest.raises(KafkaTimeoutError, match="cannot connect to b1"):
            await admin_of(cluster).list_partition_reassignments(timeout_ms=20)

    asyncio.run(scenario())


def test_results_of_other_brokers_are_kept_if_one_is_unreachable() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        reachable, unreachable = TopicPartition("t", 0), TopicPartition("t", 1)
        cluster.leaders = {reachable: 1, unreachable: 2}

        def half(node_id: int, request: ListOffsetsRequest) -> Message:
            if node_id == 2:
                raise DisconnectError("cannot connect to b2")
            return offsets(node_id, request)

        cluster.handlers[ListOffsetsRequest] = half
        with pytest.raises(AdminError, match="cannot connect to b2") as failed:
            await admin_of(cluster).list_offsets({reachable: 0, unreachable: 0}, timeout_ms=20)
        assert list(failed.value.errors) == [unreachable]
        assert list(failed.value.results) == [reachable]

    asyncio.run(scenario())


def test_retries_are_limited() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        cluster.handlers[CreateTopicsRequest] = in_turn(DisconnectError("disconnected"))
        with pytest.raises(KafkaTimeoutError, match="after 3 attempts"):
            await admin_of(cluster, retries=2).create_topics([NewTopic("t", 1, 1)])
        assert len(cluster.requests) == 3

    asyncio.run(scenario())


def test_lookups_and_requests_of_groups_are_batched() -> None:
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

        cluster.handlers[DeleteGroupsRequest] = moving
        await admin_of(cluster).delete_groups(["a", "b", "c"])
        requested = {node: request.groups_names for node, request in cluster.requests}
        assert requested == {1: ["a"], 2: ["b", "c"], 3: ["a"]}
        assert [lookup.coordinator_keys for lookup in cluster.lookups] == [["a", "b", "c"], ["a"]]

    asyncio.run(scenario())


def test_old_brokers_look_up_one_coordinator_per_request() -> None:
    async def scenario() -> None:
        cluster = FakeCluster({ApiKey.FIND_COORDINATOR: 3})
        cluster.coordinators = {"a": 1, "b": 2}
        cluster.handlers[DeleteGroupsRequest] = lambda _, request: DeleteGroupsResponse(
            results=[DeletableGroupResult(name) for name in request.groups_names]
        )
        await admin_of(cluster).delete_groups(["a", "b"])
        assert {node: request.groups_names for node, request in cluster.requests} == {
            1: ["a"],
            2: ["b"],
        }

    asyncio.run(scenario())


def test_groups_are_listed_from_all_brokers() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        loading = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        is_loading = {2}

        def list_groups(node_id: int, request: ListGroupsRequest) -> Message:
            if node_id in is_loading:
                is_loading.clear()
                return loading
            return ListGroupsResponse(groups=[ListedGroup(f"of-{node_id}", "consumer", "Stable")])

        cluster.handlers[ListGroupsRequest] = list_groups
        results = await admin_of(cluster).list_groups()
        assert [group.group_id for group in results] == ["of-1", "of-2", "of-3"]
        assert sorted(node for node, _ in cluster.requests) == [1, 2, 2, 3]

    asyncio.run(scenario())


def test_settings_of_a_broker_are_requested_from_that_broker() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        kind = ConfigResourceType.BROKER
        cluster.handlers[DescribeConfigsRequest] = lambda node, request: DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(0, None, resource.resource_type, resource.resource_name)
                for resource in request.resources
            ]
        )
        resources = [ConfigResource(kind, name) for name in ("", "2", "3")]
        await admin_of(cluster).describe_configs(resources)
        requested = {
            node: [resource.resource_name for resource in r.resources]
            for node, r in cluster.requests
        }
        assert [requested[2], requested[3]] == [["2"], ["3"]]
        with pytest.raises(AdminError, match=r"there is no broker 9 .*\(1, 2, 3\)") as failed:
            await admin_of(cluster).describe_configs(
                [ConfigResource(kind, "9"), ConfigResource(kind, "nine")]
            )
        assert "a number" in failed.value.errors[ConfigResource(kind, "nine")].message

    asyncio.run(scenario())


def test_replicas_are_moved_by_requests_to_their_brokers() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        done = AlterReplicaLogDirsResponse(
            results=[AlterReplicaLogDirTopicResult("t", [AlterReplicaLogDirPartitionResult(0)])]
        )
        cluster.handlers[AlterReplicaLogDirsRequest] = lambda *_: done
        moves = {TopicPartitionReplica("t", 0, node): "/data" for node in (2, 3)}
        await admin_of(cluster).alter_replica_log_dirs(moves)
        assert sorted(node for node, _ in cluster.requests) == [2, 3]
        with pytest.raises(AdminError, match="there is no broker 9"):
            await admin_of(cluster).alter_replica_log_dirs(
                {TopicPartitionReplica("t", 0, 9): "/data"}
            )

    asyncio.run(scenario())


def test_the_error_of_an_unsupported_api_names_the_kafka_version_that_has_it() -> None:
    """E4."""

    async def scenario() -> None:
        cluster = FakeCluster({ApiKey.LIST_PARTITION_REASSIGNMENTS: UNSUPPORTED})
        with pytest.raises(
            UnsupportedVersionError,
            match=r"ListPartitionReassignments \(API key 46\), which broker b1:9092 \(id 1\) does "
            r"not serve: Kafka 2.4 and newer have it",
        ):
            await admin_of(cluster).list_partition_reassignments()

    asyncio.run(scenario())


def test_an_error_of_the_whole_request_is_raised_unchanged() -> None:
    """E3."""

    async def scenario() -> None:
        cluster = FakeCluster()
        cluster.handlers[ListPartitionReassignmentsRequest] = in_turn(
            lambda *_: ListPartitionReassignmentsResponse(
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            )
        )
        with pytest.raises(AuthorizationError, match=r"ACL on the cluster.*super\.users"):
            await admin_of(cluster).list_partition_reassignments()

    asyncio.run(scenario())


def test_a_single_value_in_place_of_a_list_is_refused() -> None:
    """A string would be iterated: delete_topics("orders") would delete the topics o, r, d …"""

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
        assert not cluster.requests
        assert not cluster.lookups

    asyncio.run(scenario())


def test_the_error_of_a_later_timeout_has_the_failed_connection() -> None:
    """E6: a call that only waits for the next attempt says why it waits."""

    async def scenario() -> None:
        cluster = FakeCluster()
        cluster.handlers[CreateTopicsRequest] = in_turn(
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
