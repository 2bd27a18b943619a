"""Admin calls for the cluster: brokers, API versions, features and the KRaft quorum."""

from collections.abc import Iterable, Mapping

from penstock import __version__
from penstock.client.admin.advice import response_error
from penstock.client.admin.api_driver import (
    AdminApiDriver,
    AdminCall,
    NodeProvider,
    check_node,
    gather_all,
)
from penstock.client.admin.model_cluster import (
    ApiVersionRange,
    BrokerApiVersions,
    ClusterDescription,
    FeatureMetadata,
    FeatureUpdate,
    QuorumEndpoint,
    QuorumInfo,
    QuorumReplica,
    VersionRange,
)
from penstock.client.admin.results import number_or_none, operations_of
from penstock.client.errors import ClientError
from penstock.core.errors import KafkaError, UnsupportedVersionError
from penstock.net.client.cluster import Node
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey
from penstock.protocol.enums import UpgradeType
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.protocol.messages.describe_quorum import (
    DescribeQuorumReplicaState,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from penstock.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_QUORUM_TOPIC = "__cluster_metadata"


async def describe_cluster(
    admin: AdminApiDriver,
    *,
    include_authorized_operations: bool = False,
    include_fenced_brokers: bool = False,
    timeout_ms: int | None = None,
) -> ClusterDescription:
    """Returns the id of the cluster, its brokers and its controller.

    Fenced brokers need Kafka 4.0; older brokers omit them.
    """
    call = AdminCall(admin, "describe_cluster", timeout_ms)

    def build(version: int) -> DescribeClusterRequest:
        request = DescribeClusterRequest(include_authorized_operations)
        if version >= 2:
            request.include_fenced_brokers = include_fenced_brokers
        return request

    response: DescribeClusterResponse | MetadataResponse
    try:
        response = await call.request_until_done(NodeProvider.ANY, build, DescribeClusterResponse)
    except UnsupportedVersionError:
        # Brokers before Kafka 2.8.
        response = await call.request_until_done(
            NodeProvider.ANY,
            MetadataRequest(
                [], include_cluster_authorized_operations=include_authorized_operations
            ),
            MetadataResponse,
            required=(8, "2.3") if include_authorized_operations else (2, "0.10.1"),
            check_error=False,
        )
        nodes = [
            Node(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        ]
        fenced: frozenset[int] = frozenset()
    else:
        nodes = [
            Node(broker.broker_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        ]
        fenced = frozenset(broker.broker_id for broker in response.brokers if broker.is_fenced)
    return ClusterDescription(
        response.cluster_id,
        next((node for node in nodes if node.id == response.controller_id), None),
        tuple(sorted(nodes, key=lambda node: node.id)),
        operations_of(response.cluster_authorized_operations),
        fenced,
    )


async def describe_features(
    admin: AdminApiDriver, *, node_id: int | None = None, timeout_ms: int | None = None
) -> FeatureMetadata:
    """Returns the feature levels of the cluster, and those that a broker supports."""
    response = await AdminCall(admin, "describe_features", timeout_ms).request_until_done(
        NodeProvider.ANY if node_id is None else node_id,
        ApiVersionsRequest("penstock", __version__),
        ApiVersionsResponse,
        required=(3, "2.4"),
    )
    return FeatureMetadata(
        {
            feature.name: VersionRange(feature.min_version_level, feature.max_version_level)
            for feature in sorted(response.finalized_features, key=lambda feature: feature.name)
        },
        number_or_none(response.finalized_features_epoch),
        {
            feature.name: VersionRange(feature.min_version, feature.max_version)
            for feature in sorted(response.supported_features, key=lambda feature: feature.name)
        },
    )


async def update_features(
    admin: AdminApiDriver,
    updates: Mapping[str, FeatureUpdate],
    *,
    validate_only: bool = False,
    timeout_ms: int | None = None,
) -> None:
    """Sets feature levels of the cluster; new brokers change all or none."""
    call = AdminCall(admin, "update_features", timeout_ms)

    def build(version: int) -> UpdateFeaturesRequest:
        request = UpdateFeaturesRequest(call.remaining_ms())
        for name, update in updates.items():
            key = FeatureUpdateKey(name, update.max_version_level)
            if version >= 1:
                key.upgrade_type = update.upgrade_type
            else:
                key.allow_downgrade = update.upgrade_type is not UpgradeType.UPGRADE
            request.feature_updates.append(key)
        request.validate_only = validate_only
        return request

    response = await call.request_until_done(
        NodeProvider.CONTROLLER,
        build,
        UpdateFeaturesResponse,
        required=(1, "3.3") if validate_only else None,
    )
    errors = {
        result.feature: response_error(result, f"feature {result.feature}")
        for result in response.results
    }
    call.checked({**dict.fromkeys(updates), **errors})


async def describe_quorum(admin: AdminApiDriver, *, timeout_ms: int | None = None) -> QuorumInfo:
    """Returns the KRaft quorum that stores the cluster's metadata.

    Raises UnsupportedVersionError for clusters without one: those with ZooKeeper, Penstock.
    """
    topic = DescribeQuorumRequestTopicData(_QUORUM_TOPIC, [DescribeQuorumRequestPartitionData(0)])
    response = await AdminCall(admin, "describe_quorum", timeout_ms).request_until_done(
        NodeProvider.ANY, DescribeQuorumRequest([topic]), DescribeQuorumResponse
    )
    partitions = [partition for topic in response.topics for partition in topic.partitions]
    if len(partitions) != 1:
        raise ClientError(f"`describe_quorum`: expected one partition, got {len(partitions)}")
    quorum = partitions[0]
    error = response_error(quorum, "`describe_quorum`")
    if error is not None:
        raise error
    return QuorumInfo(
        quorum.leader_id,
        quorum.leader_epoch,
        quorum.high_watermark,
        tuple(_quorum_replica(voter) for voter in quorum.current_voters),
        tuple(_quorum_replica(observer) for observer in quorum.observers),
        {
            node.node_id: tuple(
                QuorumEndpoint(listener.name, listener.host, listener.port)
                for listener in node.listeners
            )
            for node in response.nodes
        },
    )


async def unregister_broker(
    admin: AdminApiDriver, broker_id: int, *, timeout_ms: int | None = None
) -> None:
    """Removes the registration of a broker that will not return, in a KRaft cluster."""
    await AdminCall(admin, "unregister_broker", timeout_ms).request_until_done(
        NodeProvider.ANY, UnregisterBrokerRequest(broker_id), UnregisterBrokerResponse
    )


async def api_versions(
    admin: AdminApiDriver, brokers: Iterable[int] | None = None, *, timeout_ms: int | None = None
) -> dict[int, BrokerApiVersions]:
    """Returns the APIs of brokers, by default of all. A broker that failed has an `error`."""
    call = AdminCall(admin, "api_versions", timeout_ms)
    cluster = await call.refresh_brokers()
    requested = sorted(cluster.nodes if brokers is None else set(brokers))
    for node_id in requested:
        check_node(node_id, cluster)

    async def fetch(node: Node) -> BrokerApiVersions:
        try:
            await call.within(lambda: call.network.ready(node.id))
        except KafkaError as error:
            return BrokerApiVersions(node, (), error)
        versions = call.network.supported_versions(node.id)
        return BrokerApiVersions(
            node, tuple(_version_range(key, *versions[key]) for key in sorted(versions))
        )

    results = await gather_all(fetch(cluster.nodes[node_id]) for node_id in requested)
    return dict(zip(requested, results, strict=True))


def _quorum_replica(replica: DescribeQuorumReplicaState) -> QuorumReplica:
    return QuorumReplica(
        replica.replica_id,
        None if replica.replica_directory_id == ZERO_UUID else replica.replica_directory_id,
        replica.log_end_offset,
        number_or_none(replica.last_fetch_timestamp),
        number_or_none(replica.last_caught_up_timestamp),
    )


def _version_range(key: int, low: int, high: int) -> ApiVersionRange:
    try:
        own_api = api(key)
    except UnsupportedVersionError:
        return ApiVersionRange(key, f"UNKNOWN({key})", low, high, None)
    newest = min(high, own_api.max_version)
    usable = newest if newest >= max(low, own_api.min_version) else None
    return ApiVersionRange(key, ApiKey(key).name.title().replace("_", ""), low, high, usable)
