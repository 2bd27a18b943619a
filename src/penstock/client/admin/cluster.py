"""Admin calls for the cluster: brokers, API versions, features and the KRaft quorum."""

from collections.abc import Iterable, Mapping

from penstock import __version__
from penstock.client.admin.advice import broker_error
from penstock.client.admin.api_driver import (
    AdminApiDriver,
    NodeProvider,
    code_and_message,
    code_only,
    gather_all,
)
from penstock.client.admin.describe_topics import operations_of
from penstock.client.admin.errors import AdminError
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
from penstock.client.errors import ClientError
from penstock.core.errors import ErrorCode, KafkaError, UnsupportedVersionError
from penstock.net.client.cluster import Node
from penstock.net.client.network_client import RequestBuilder
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


class ClusterCalls(AdminApiDriver):
    """The calls for the cluster as a whole."""

    async def describe_cluster(
        self,
        *,
        include_authorized_operations: bool = False,
        include_fenced_brokers: bool = False,
        timeout_ms: int | None = None,
    ) -> ClusterDescription:
        """Returns the id of the cluster, its brokers and its controller.

        Fenced brokers need Kafka 4.0; older brokers omit them.
        """
        deadline_ms = self._deadline(timeout_ms)

        def make(version: int) -> DescribeClusterRequest:
            request = DescribeClusterRequest(include_authorized_operations)
            if version >= 2:
                request.include_fenced_brokers = include_fenced_brokers
            return request

        try:
            response = await self._request_until_done(
                "describe_cluster",
                NodeProvider.ANY,
                RequestBuilder(DescribeClusterRequest, make),
                DescribeClusterResponse,
                deadline_ms,
                get_error=code_and_message,
            )
        except UnsupportedVersionError:
            return await self._describe_cluster_with_metadata(
                deadline_ms, include_authorized_operations
            )
        nodes = {
            broker.broker_id: Node(broker.broker_id, broker.host, broker.port, broker.rack)
            for broker in sorted(response.brokers, key=lambda broker: broker.broker_id)
        }
        return ClusterDescription(
            response.cluster_id,
            nodes.get(response.controller_id),
            tuple(nodes.values()),
            operations_of(response.cluster_authorized_operations),
            frozenset(broker.broker_id for broker in response.brokers if broker.is_fenced),
        )

    async def _describe_cluster_with_metadata(
        self, deadline_ms: int, authorized_operations: bool
    ) -> ClusterDescription:
        """Uses Metadata, for brokers before Kafka 2.8."""
        request = MetadataRequest([], include_cluster_authorized_operations=authorized_operations)
        response = await self._request_until_done(
            "describe_cluster",
            NodeProvider.ANY,
            request,
            MetadataResponse,
            deadline_ms,
            required=(8, "2.3") if authorized_operations else (2, "0.10.1"),
        )
        nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in sorted(response.brokers, key=lambda broker: broker.node_id)
        }
        return ClusterDescription(
            response.cluster_id,
            nodes.get(response.controller_id),
            tuple(nodes.values()),
            operations_of(response.cluster_authorized_operations),
        )

    async def describe_features(
        self, *, node_id: int | None = None, timeout_ms: int | None = None
    ) -> FeatureMetadata:
        """Returns the feature levels of the cluster, and those that a broker supports."""
        deadline_ms = self._deadline(timeout_ms)
        response = await self._request_until_done(
            "describe_features",
            NodeProvider.ANY if node_id is None else node_id,
            ApiVersionsRequest("penstock", __version__),
            ApiVersionsResponse,
            deadline_ms,
            get_error=code_only,
            required=(3, "2.4"),
        )
        epoch = response.finalized_features_epoch
        return FeatureMetadata(
            {
                feature.name: VersionRange(feature.min_version_level, feature.max_version_level)
                for feature in sorted(response.finalized_features, key=lambda feature: feature.name)
            },
            None if epoch < 0 else epoch,
            {
                feature.name: VersionRange(feature.min_version, feature.max_version)
                for feature in sorted(response.supported_features, key=lambda feature: feature.name)
            },
        )

    async def update_features(
        self,
        updates: Mapping[str, FeatureUpdate],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Sets feature levels of the cluster; new brokers change all or none."""
        deadline_ms = self._deadline(timeout_ms)

        def make(version: int) -> UpdateFeaturesRequest:
            request = UpdateFeaturesRequest(self._remaining_ms(deadline_ms))
            for name, update in updates.items():
                key = FeatureUpdateKey(name, update.max_version_level)
                if version >= 1:
                    key.upgrade_type = update.upgrade_type
                else:
                    key.allow_downgrade = update.upgrade_type is not UpgradeType.UPGRADE
                request.feature_updates.append(key)
            request.validate_only = validate_only
            return request

        response = await self._request_until_done(
            "update_features",
            NodeProvider.CONTROLLER,
            RequestBuilder(UpdateFeaturesRequest, make),
            UpdateFeaturesResponse,
            deadline_ms,
            get_error=code_and_message,
            required=(1, "3.3") if validate_only else None,
        )
        errors: dict[str, KafkaError] = {
            result.feature: broker_error(
                result.error_code, f"feature {result.feature}", result.error_message
            )
            for result in response.results
            if result.error_code != ErrorCode.NONE
        }
        if errors:
            done = {name: None for name in updates if name not in errors}
            raise AdminError("update_features", errors, done)

    async def describe_quorum(self, *, timeout_ms: int | None = None) -> QuorumInfo:
        """Returns the KRaft quorum that stores the cluster's metadata.

        Raises UnsupportedVersionError for clusters without one: those with ZooKeeper, Penstock.
        """
        deadline_ms = self._deadline(timeout_ms)
        topic = DescribeQuorumRequestTopicData(
            _QUORUM_TOPIC, [DescribeQuorumRequestPartitionData(0)]
        )
        response = await self._request_until_done(
            "describe_quorum",
            NodeProvider.ANY,
            DescribeQuorumRequest([topic]),
            DescribeQuorumResponse,
            deadline_ms,
            get_error=code_and_message,
        )
        partitions = [partition for topic in response.topics for partition in topic.partitions]
        if len(partitions) != 1:
            raise ClientError(f"`describe_quorum`: expected one partition, got {len(partitions)}")
        quorum = partitions[0]
        if quorum.error_code != ErrorCode.NONE:
            raise broker_error(quorum.error_code, "`describe_quorum`", quorum.error_message)
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

    async def unregister_broker(self, broker_id: int, *, timeout_ms: int | None = None) -> None:
        """Removes the registration of a broker that will not return, in a KRaft cluster."""
        await self._request_until_done(
            "unregister_broker",
            NodeProvider.ANY,
            UnregisterBrokerRequest(broker_id),
            UnregisterBrokerResponse,
            self._deadline(timeout_ms),
            get_error=code_and_message,
        )

    async def api_versions(
        self, brokers: Iterable[int] | None = None, *, timeout_ms: int | None = None
    ) -> dict[int, BrokerApiVersions]:
        """Returns the APIs of brokers, by default of all. A broker that failed has an `error`."""
        deadline_ms = self._deadline(timeout_ms)
        cluster = await self._refresh_brokers("api_versions", deadline_ms)
        requested = sorted(cluster.nodes if brokers is None else set(brokers))
        for node_id in requested:
            self._check_node(node_id, cluster)

        async def fetch(node: Node) -> BrokerApiVersions:
            try:
                await self._network.within(deadline_ms, lambda: self._network.ready(node.id))
            except KafkaError as error:
                return BrokerApiVersions(node, (), error)
            versions = self._network.supported_versions(node.id)
            return BrokerApiVersions(
                node, tuple(_version_range(key, *versions[key]) for key in sorted(versions))
            )

        results = await gather_all(fetch(cluster.nodes[node_id]) for node_id in requested)
        return dict(zip(requested, results, strict=True))


def _quorum_replica(replica: DescribeQuorumReplicaState) -> QuorumReplica:
    fetched, caught_up = replica.last_fetch_timestamp, replica.last_caught_up_timestamp
    return QuorumReplica(
        replica.replica_id,
        None if replica.replica_directory_id == ZERO_UUID else replica.replica_directory_id,
        replica.log_end_offset,
        None if fetched < 0 else fetched,
        None if caught_up < 0 else caught_up,
    )


def _version_range(key: int, low: int, high: int) -> ApiVersionRange:
    try:
        ours = api(key)
    except UnsupportedVersionError:
        return ApiVersionRange(key, f"UNKNOWN({key})", low, high, None)
    newest = min(high, ours.max_version)
    usable = newest if newest >= max(low, ours.min_version) else None
    return ApiVersionRange(key, ApiKey(key).name.title().replace("_", ""), low, high, usable)
