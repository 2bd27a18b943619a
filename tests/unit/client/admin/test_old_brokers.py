"""Admin calls at brokers of older Kafkas: another way where there is one, or clear words (E4)."""

import asyncio
from uuid import UUID

import pytest

from penstock.client.admin import (
    AdminError,
    ConfigEntry,
    ConfigOp,
    ConfigOpType,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ElectionType,
    FeatureUpdate,
    GroupState,
    GroupType,
    MemberToRemove,
    NewTopic,
    OffsetSpec,
    TransactionState,
    UpgradeType,
)
from penstock.client.admin.configs import merge_configs
from penstock.client.consumer.record import OffsetAndMetadata
from penstock.core.errors import ErrorCode, UnsupportedVersionError
from penstock.core.ids import TopicPartition
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Message
from penstock.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from penstock.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from penstock.protocol.messages.describe_groups import (
    DescribeGroupsDescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
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
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from penstock.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.support.client.fake_cluster import UNSUPPORTED, FakeCluster, admin_of

TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t")
T0 = TopicPartition("t", 0)


def test_topics_are_described_with_metadata() -> None:
    async def scenario() -> None:
        cluster = FakeCluster({ApiKey.DESCRIBE_TOPIC_PARTITIONS: UNSUPPORTED, ApiKey.METADATA: 9})
        cluster.leaders = {TopicPartition("t", 1): 2, T0: 1}
        results = await admin_of(cluster).describe_topics(["t"])
        described = results["t"]
        assert [(partition.partition, partition.leader) for partition in described.partitions] == [
            (0, 1),
            (1, 2),
        ]
        assert described.partitions[0].eligible_leader_replicas is None
        assert not cluster.lookups[-1].allow_auto_topic_creation
        with pytest.raises(AdminError, match="topic u: there is no such topic"):
            await admin_of(cluster).describe_topics(["t", "u"])
        with pytest.raises(UnsupportedVersionError, match=r"version 12 of Metadata .*Kafka 3\.0"):
            await admin_of(cluster).describe_topics([UUID(int=5)])

    asyncio.run(scenario())


def test_the_cluster_is_described_with_metadata() -> None:
    async def scenario() -> None:
        cluster = FakeCluster({ApiKey.DESCRIBE_CLUSTER: UNSUPPORTED, ApiKey.METADATA: 8})
        results = await admin_of(cluster).describe_cluster(include_authorized_operations=True)
        assert [node.id for node in results.nodes] == [1, 2, 3]
        assert (results.cluster_id, results.controller) == ("fake", results.nodes[0])

    asyncio.run(scenario())


def test_topics_need_partitions_and_replication_factor() -> None:
    async def scenario() -> None:
        cluster = FakeCluster({ApiKey.CREATE_TOPICS: 3})
        with pytest.raises(UnsupportedVersionError, match=r"older than Kafka 2\.4.*give both"):
            await admin_of(cluster).create_topics([NewTopic("t")])
        assert not cluster.requests

    asyncio.run(scenario())


def test_topics_are_deleted_by_name_only() -> None:
    async def scenario() -> None:
        cluster = FakeCluster({ApiKey.DELETE_TOPICS: 3})
        cluster.handlers[DeleteTopicsRequest] = lambda _, request: DeleteTopicsResponse(
            responses=[DeletableTopicResult(name) for name in request.topic_names]
        )
        await admin_of(cluster).delete_topics(["t"])
        assert cluster.requests[0][1].topic_names == ["t"]
        with pytest.raises(UnsupportedVersionError, match=r"DeleteTopics .*Kafka 2\.8"):
            await admin_of(cluster).delete_topics([UUID(int=5)])

    asyncio.run(scenario())


def test_single_settings_are_changed_by_replacing_all() -> None:
    async def scenario() -> None:
        cluster = FakeCluster(
            {ApiKey.INCREMENTAL_ALTER_CONFIGS: UNSUPPORTED, ApiKey.DESCRIBE_CONFIGS: 2}
        )
        present = [
            DescribeConfigsResourceResult("retention.ms", "5", config_source=1),
            DescribeConfigsResourceResult("segment.ms", "6", config_source=1),
            DescribeConfigsResourceResult("flush.ms", "7", config_source=5),
        ]
        cluster.handlers[DescribeConfigsRequest] = lambda *_: DescribeConfigsResponse(
            results=[DescribeConfigsResult(0, None, 2, "t", present)]
        )
        cluster.handlers[AlterConfigsRequest] = lambda *_: AlterConfigsResponse(
            responses=[AlterConfigsResourceResponse(0, None, 2, "t")]
        )
        ops = [
            ConfigOp("retention.ms", None, ConfigOpType.DELETE),
            ConfigOp("max.message.bytes", "9"),
        ]
        await admin_of(cluster).incremental_alter_configs({TOPIC: ops})
        replaced = cluster.requests[-1][1].resources[0].configs
        assert {item.name: item.value for item in replaced} == {
            "segment.ms": "6",
            "max.message.bytes": "9",
        }

    asyncio.run(scenario())


def test_items_are_appended_to_lists_and_subtracted_from_them() -> None:
    present = {
        "cleanup.policy": ConfigEntry("cleanup.policy", "delete", ConfigSource.DEFAULT_CONFIG),
        "throttled": ConfigEntry("throttled", "0:1,1:2", ConfigSource.DYNAMIC_TOPIC_CONFIG),
    }
    ops = [
        ConfigOp("cleanup.policy", "compact,delete", ConfigOpType.APPEND),
        ConfigOp("throttled", "0:1", ConfigOpType.SUBTRACT),
        ConfigOp("new", "x", ConfigOpType.APPEND),
    ]
    assert merge_configs(present, ops) == {
        "cleanup.policy": "delete,compact",
        "throttled": "1:2",
        "new": "x",
    }


def test_groups_are_listed_without_filters() -> None:
    async def scenario() -> None:
        cluster = FakeCluster({ApiKey.LIST_GROUPS: 3})
        cluster.handlers[ListGroupsRequest] = lambda *_: ListGroupsResponse(
            groups=[ListedGroup("g", "consumer")]
        )
        admin = admin_of(cluster)
        results = await admin.list_groups(types=[GroupType.CLASSIC])
        assert [(group.group_id, group.state, group.type) for group in results] == [
            ("g", None, None)
        ]
        with pytest.raises(UnsupportedVersionError, match=r"older than Kafka 2\.6"):
            await admin.list_groups(states=[GroupState.STABLE])
        with pytest.raises(UnsupportedVersionError, match=r"older than Kafka 3\.8"):
            await admin.list_groups(types=[GroupType.CONSUMER])

    asyncio.run(scenario())


def test_a_dead_group_does_not_exist() -> None:
    async def scenario() -> None:
        cluster = FakeCluster(
            {ApiKey.CONSUMER_GROUP_DESCRIBE: UNSUPPORTED, ApiKey.DESCRIBE_GROUPS: 5}
        )
        cluster.coordinators = {"g": 2, "h": 2}
        cluster.handlers[DescribeGroupsRequest] = lambda *_: DescribeGroupsResponse(
            groups=[
                DescribeGroupsDescribedGroup(0, None, "g", "Stable", "connect", "default"),
                DescribeGroupsDescribedGroup(0, None, "h", "Dead"),
            ]
        )
        with pytest.raises(AdminError, match="group h: there is no such group") as failed:
            await admin_of(cluster).describe_groups(["g", "h"])
        group = failed.value.results["g"]
        assert (group.type, group.state) == (GroupType.CLASSIC, GroupState.STABLE)
        assert group.coordinator.id == 2

    asyncio.run(scenario())


def test_offsets_are_fetched_group_by_group() -> None:
    async def scenario() -> None:
        cluster = FakeCluster({ApiKey.OFFSET_FETCH: 5})
        cluster.coordinators = {"g": 2, "h": 2}

        def fetched(node_id: int, request: OffsetFetchRequest) -> Message:
            offset = {"g": 5, "h": -1}[request.group_id]
            partition = OffsetFetchResponsePartition(0, offset, 1, "note")
            return OffsetFetchResponse(topics=[OffsetFetchResponseTopic("t", [partition])])

        cluster.handlers[OffsetFetchRequest] = fetched
        results = await admin_of(cluster).list_group_offsets({"g": None, "h": [T0]})
        assert results == {"g": {T0: OffsetAndMetadata(5, "note", 1)}, "h": {T0: None}}
        assert cluster.requests[0][1].topics is None
        with pytest.raises(UnsupportedVersionError, match=r"OffsetFetch .*Kafka 2\.5"):
            await admin_of(cluster).list_group_offsets(["g"], require_stable=True)

    asyncio.run(scenario())


def test_unsupported_offset_specs_fail_separately() -> None:
    async def scenario() -> None:
        cluster = FakeCluster({ApiKey.LIST_OFFSETS: 6})
        t1 = TopicPartition("t", 1)
        cluster.leaders = {T0: 1, t1: 1}
        cluster.handlers[ListOffsetsRequest] = lambda _, request: ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    topic.name,
                    [
                        ListOffsetsPartitionResponse(partition.partition_index, offset=7)
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
        with pytest.raises(
            AdminError, match=r"MAX_TIMESTAMP needs version 7.*Kafka 3\.0"
        ) as failed:
            await admin_of(cluster).list_offsets(
                {T0: OffsetSpec.MAX_TIMESTAMP, t1: OffsetSpec.LATEST}
            )
        assert failed.value.results[t1].offset == 7
        assert list(failed.value.errors) == [T0]

    asyncio.run(scenario())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_features_are_updated(version: int) -> None:
    async def scenario() -> None:
        cluster = FakeCluster({ApiKey.UPDATE_FEATURES: version})
        results = [UpdatableFeatureResult("a"), UpdatableFeatureResult("b", 95, "too new")]
        cluster.handlers[UpdateFeaturesRequest] = lambda *_: UpdateFeaturesResponse(
            results=[] if version == 2 else results
        )
        updates = {
            "a": FeatureUpdate(1),
            "b": FeatureUpdate(0, UpgradeType.UNSAFE_DOWNGRADE),
        }
        admin = admin_of(cluster)
        if version == 2:
            await admin.update_features(updates)
        else:
            with pytest.raises(AdminError, match="feature b: too new") as failed:
                await admin.update_features(updates)
            assert failed.value.code is ErrorCode.INVALID_UPDATE_VERSION
        feature_update = cluster.requests[0][1].feature_updates[1]
        assert feature_update.allow_downgrade if version == 0 else feature_update.upgrade_type == 3

    asyncio.run(scenario())


def test_the_error_of_an_unsupported_feature_names_the_kafka_version() -> None:
    async def scenario() -> None:
        cluster = FakeCluster(
            {
                ApiKey.ELECT_LEADERS: 0,
                ApiKey.LEAVE_GROUP: 2,
                ApiKey.LIST_CONFIG_RESOURCES: 0,
                ApiKey.LIST_TRANSACTIONS: 0,
                ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
                ApiKey.DESCRIBE_QUORUM: UNSUPPORTED,
            }
        )
        cluster.coordinators = {"g": 1}
        admin = admin_of(cluster)
        with pytest.raises(UnsupportedVersionError, match=r"Kafka 2\.4"):
            await admin.elect_leaders(ElectionType.UNCLEAN)
        with pytest.raises(UnsupportedVersionError, match=r"version 3 of LeaveGroup .*Kafka 2\.4"):
            await admin.remove_members("g", [MemberToRemove("i")])
        with pytest.raises(UnsupportedVersionError, match=r"Kafka 4\.1"):
            await admin.list_config_resources([ConfigResourceType.TOPIC])
        with pytest.raises(UnsupportedVersionError, match=r"Kafka 3\.8"):
            await admin.list_transactions(running_longer_than_ms=1)
        with pytest.raises(UnsupportedVersionError, match=r"Kafka 4\.1"):
            await admin.list_transactions(transactional_id_pattern="a.*")
        with pytest.raises(UnsupportedVersionError, match=r"Kafka 4\.1"):
            await admin.alter_partition_reassignments(
                {T0: [1]}, allow_replication_factor_change=False
            )
        with pytest.raises(UnsupportedVersionError, match="only KRaft clusters"):
            await admin.describe_quorum()
        assert not cluster.requests

    asyncio.run(scenario())


def test_unknown_names_of_states_are_parsed_as_unknown() -> None:
    assert GroupState.parse("STABLE") is GroupState.STABLE
    assert GroupState.parse("Dancing") is GroupState.UNKNOWN
    assert GroupType.parse("classic") is GroupType.CLASSIC
    assert TransactionState.parse("prepareabort") is TransactionState.PREPARE_ABORT
    assert ConfigSource.from_code(99) is ConfigSource.UNKNOWN
