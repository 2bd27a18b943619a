"""The cluster: its brokers, what they serve, its features and its quorum."""

from collections.abc import Iterable, Mapping

from penstock import __version__
from penstock.client.admin.advice import explain
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
from penstock.client.admin.routing import Router, Where, together
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


class ClusterCalls(Router):
    """Calls about the cluster as a whole."""

    async def describe_cluster(
        self,
        *,
        include_authorized_operations: bool = False,
        include_fenced_brokers: bool = False,
        timeout_ms: int | None = None,
    ) -> ClusterDescription:
        """The cluster's id, its brokers and its controller.

        Fenced brokers are told from Kafka 4.0 on, and left out of an answer of older ones.
        """
        deadline_ms = self._deadline(timeout_ms)

        def make(version: int) -> DescribeClusterRequest:
            request = DescribeClusterRequest(include_authorized_operations)
            if version >= 2:
                request.include_fenced_brokers = include_fenced_brokers
            return request

        try:
            response = await self._ask(
                "describe_cluster",
                Where.ANY,
                RequestBuilder(DescribeClusterRequest, make),
                DescribeClusterResponse,
                deadline_ms,
                verdict=lambda answer: (answer.error_code, answer.error_message),
            )
        except UnsupportedVersionError:
            return await self._describe_old_cluster(deadline_ms, include_authorized_operations)
        nodes = {
            each.broker_id: Node(each.broker_id, each.host, each.port, each.rack)
            for each in sorted(response.brokers, key=lambda each: each.broker_id)
        }
        return ClusterDescription(
            response.cluster_id,
            nodes.get(response.controller_id),
            tuple(nodes.values()),
            operations_of(response.cluster_authorized_operations),
            frozenset(each.broker_id for each in response.brokers if each.is_fenced),
        )

    async def _describe_old_cluster(
        self, deadline_ms: int, authorized_operations: bool
    ) -> ClusterDescription:
        """With Metadata, for brokers before Kafka 2.8."""
        request = MetadataRequest([], include_cluster_authorized_operations=authorized_operations)
        response = await self._ask(
            "describe_cluster",
            Where.ANY,
            request,
            MetadataResponse,
            deadline_ms,
            needs=(8, "2.3") if authorized_operations else (2, "0.10.1"),
        )
        nodes = {
            each.node_id: Node(each.node_id, each.host, each.port, each.rack)
            for each in sorted(response.brokers, key=lambda each: each.node_id)
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
        """The feature levels of the cluster, and those that a broker supports."""
        deadline_ms = self._deadline(timeout_ms)
        response = await self._ask(
            "describe_features",
            Where.ANY if node_id is None else node_id,
            ApiVersionsRequest("penstock", __version__),
            ApiVersionsResponse,
            deadline_ms,
            verdict=lambda answer: (answer.error_code, None),
            needs=(3, "2.4"),
        )
        epoch = response.finalized_features_epoch
        return FeatureMetadata(
            {
                each.name: VersionRange(each.min_version_level, each.max_version_level)
                for each in sorted(response.finalized_features, key=lambda each: each.name)
            },
            None if epoch < 0 else epoch,
            {
                each.name: VersionRange(each.min_version, each.max_version)
                for each in sorted(response.supported_features, key=lambda each: each.name)
            },
        )

    async def update_features(
        self,
        updates: Mapping[str, FeatureUpdate],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Set feature levels of the cluster. New brokers change all of them or none."""
        deadline_ms = self._deadline(timeout_ms)

        def make(version: int) -> UpdateFeaturesRequest:
            request = UpdateFeaturesRequest(self._left_ms(deadline_ms))
            for name, update in updates.items():
                key = FeatureUpdateKey(name, update.max_version_level)
                if version >= 1:
                    key.upgrade_type = update.upgrade_type
                else:
                    key.allow_downgrade = update.upgrade_type is not UpgradeType.UPGRADE
                request.feature_updates.append(key)
            request.validate_only = validate_only
            return request

        response = await self._ask(
            "update_features",
            Where.CONTROLLER,
            RequestBuilder(UpdateFeaturesRequest, make),
            UpdateFeaturesResponse,
            deadline_ms,
            verdict=lambda answer: (answer.error_code, answer.error_message),
            needs=(1, "3.3") if validate_only else None,
        )
        errors: dict[str, KafkaError] = {
            each.feature: explain(each.error_code, f"feature {each.feature}", each.error_message)
            for each in response.results
            if each.error_code != ErrorCode.NONE
        }
        if errors:
            done = {name: None for name in updates if name not in errors}
            raise AdminError("update_features", errors, done)

    async def describe_quorum(self, *, timeout_ms: int | None = None) -> QuorumInfo:
        """The KRaft quorum that keeps the cluster's metadata.

        UnsupportedVersionError where the metadata is kept elsewhere: in ZooKeeper, or by Penstock.
        """
        deadline_ms = self._deadline(timeout_ms)
        topic = DescribeQuorumRequestTopicData(
            _QUORUM_TOPIC, [DescribeQuorumRequestPartitionData(0)]
        )
        response = await self._ask(
            "describe_quorum",
            Where.ANY,
            DescribeQuorumRequest([topic]),
            DescribeQuorumResponse,
            deadline_ms,
            verdict=lambda answer: (answer.error_code, answer.error_message),
        )
        partitions = [each for topic in response.topics for each in topic.partitions]
        if len(partitions) != 1:
            raise ClientError(f"describe_quorum: expected one partition, got {len(partitions)}")
        quorum = partitions[0]
        if quorum.error_code != ErrorCode.NONE:
            raise explain(quorum.error_code, "describe_quorum", quorum.error_message)
        return QuorumInfo(
            quorum.leader_id,
            quorum.leader_epoch,
            quorum.high_watermark,
            tuple(_quorum_replica(each) for each in quorum.current_voters),
            tuple(_quorum_replica(each) for each in quorum.observers),
            {
                node.node_id: tuple(
                    QuorumEndpoint(each.name, each.host, each.port) for each in node.listeners
                )
                for node in response.nodes
            },
        )

    async def unregister_broker(self, broker_id: int, *, timeout_ms: int | None = None) -> None:
        """Have a KRaft cluster forget a broker that will not come back."""
        await self._ask(
            "unregister_broker",
            Where.ANY,
            UnregisterBrokerRequest(broker_id),
            UnregisterBrokerResponse,
            self._deadline(timeout_ms),
            verdict=lambda answer: (answer.error_code, answer.error_message),
        )

    async def api_versions(
        self, brokers: Iterable[int] | None = None, *, timeout_ms: int | None = None
    ) -> dict[int, BrokerApiVersions]:
        """What each broker serves; None is for all that are up. One that fails has an `error`."""
        deadline_ms = self._deadline(timeout_ms)
        cluster = await self._brokers("api_versions", deadline_ms)
        wanted = sorted(cluster.nodes if brokers is None else set(brokers))
        for node_id in wanted:
            self._check_node(node_id, cluster)

        async def ask(node: Node) -> BrokerApiVersions:
            try:
                await self._network.within(deadline_ms, lambda: self._network.ready(node.id))
            except KafkaError as error:
                return BrokerApiVersions(node, (), error)
            served = self._network.supported_versions(node.id)
            return BrokerApiVersions(
                node, tuple(_version_range(key, *served[key]) for key in sorted(served))
            )

        answers = await together(ask(cluster.nodes[node_id]) for node_id in wanted)
        return dict(zip(wanted, answers, strict=True))


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
