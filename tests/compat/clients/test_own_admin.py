"""Our admin client at Apache Kafka and at our broker: the same calls, the same results (M4)."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, TypeVar

import pytest

from penstock.client.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    AdminError,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ConfigEntry,
    ConfigOp,
    ConfigOpType,
    ConfigResource,
    ConfigResourceType,
    ElectionType,
    FeatureUpdate,
    GroupState,
    GroupType,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    PatternType,
    Quota,
    ReplicaInfo,
    ResourceType,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
    TopicPartitionReplica,
    TransactionState,
    UpgradeType,
)
from penstock.client.admin.admin import Admin
from penstock.client.consumer.record import OffsetAndMetadata
from penstock.core.errors import ErrorCode, KafkaError, UnsupportedVersionError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Node
from tests.support.broker.in_process import WireClient
from tests.support.broker.logins import AUTHORIZER
from tests.support.broker.process import PenstockBroker
from tests.support.coordinator.group_members import ClassicMember, ConsumerMember
from tests.support.coordinator.transaction_client import Generation, TxnProducer
from tests.support.kafka.broker import KafkaBroker, KafkaParts
from tests.support.kafka_clients.brokers import SETTINGS
from tests.support.protocol.admin import produce

V = TypeVar("V")
Topic = ConfigResourceType.TOPIC
NODE = 1
NOWHERE = Node(NODE, "", 0)


class Side(NamedTuple):
    """One of the two brokers: our admin client and a raw connection to it."""

    admin: Admin
    client: WireClient


class Both(NamedTuple):
    ours: Side
    kafka: Side

    def same(self, call: Callable[[Side], V]) -> V:
        """Runs the call on both brokers and checks that results or error codes are equal."""
        outcomes = [_outcome(call, side) for side in self]
        assert outcomes[0] == outcomes[1]
        values, errors = outcomes[0]
        assert errors is None, errors
        return values[0]

    def soon(self, call: Callable[[Side], V]) -> V:
        """As `same`, but waits: Kafka's broker applies changes later than its controller."""
        expected = _outcome(call, self.ours)
        deadline = time.monotonic() + 10
        while _outcome(call, self.kafka) != expected and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.same(call)

    def same_errors(self, call: Callable[[Side], object]) -> dict[object, ErrorCode]:
        """Runs the call on both brokers and checks that both fail with the same error."""
        outcomes = [_outcome(call, side) for side in self]
        assert outcomes[0] == outcomes[1]
        errors = outcomes[0][1]
        assert errors is not None
        return errors


def _outcome(
    call: Callable[[Side], V], side: Side
) -> tuple[list[V], dict[object, ErrorCode] | None]:
    try:
        return [call(side)], None
    except AdminError as error:
        return [], {key: item.code for key, item in error.errors.items()}
    except KafkaError as error:
        return [], {None: error.code}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, kafka_parts: KafkaParts) -> Iterator[Both]:
    settings = {
        **SETTINGS,
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "max.request.partition.size.limit": "5",
    }
    directory = tmp_path_factory.mktemp("own-admin")
    with (
        PenstockBroker(directory / "ours", {**settings, "node.id": str(NODE)}) as ours,
        KafkaBroker(kafka_parts, directory / "kafka", settings) as kafka,
        _side(ours.bootstrap) as our_side,
        _side(kafka.bootstrap) as kafka_side,
    ):
        yield Both(our_side, kafka_side)


@contextmanager
def _side(bootstrap: str) -> Iterator[Side]:
    host, _, port = bootstrap.rpartition(":")
    with Admin(bootstrap_servers=bootstrap) as admin, WireClient((host, int(port))) as client:
        yield Side(admin, client)


@pytest.fixture
def name(both: Both, request: pytest.FixtureRequest) -> str:
    """A topic of three partitions on both brokers; users, groups and ids get the same name."""
    text: str = re.sub(r"[^a-z]+", "-", request.node.name)
    for side in both:
        side.admin.create_topics([NewTopic(text, 3, 1)])
        # Retried until the leaders are elected.
        side.admin.list_offsets({TopicPartition(text, index): 0 for index in range(3)})
    return text


# --- topics


def test_topics_are_created_described_and_deleted_alike(both: Both) -> None:
    new_topics = [
        NewTopic("numbers", 2, 1, configs={"retention.ms": "5000"}),
        NewTopic("places", assignments={0: [NODE], 1: [NODE]}),
        NewTopic("defaults"),
    ]

    def create(side: Side) -> object:
        created = side.admin.create_topics(new_topics)
        return {
            topic: (item.num_partitions, item.replication_factor, _values(item.configs or {}))
            for topic, item in created.items()
        }

    both.same(create)
    bad = [NewTopic("numbers", 1, 1), NewTopic("wide", 1, 3), NewTopic("a/b", 1, 1)]
    assert both.same_errors(lambda side: side.admin.create_topics(bad, validate_only=True)) == {
        "numbers": ErrorCode.TOPIC_ALREADY_EXISTS,
        "wide": ErrorCode.INVALID_REPLICATION_FACTOR,
        "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    both.same(lambda side: side.admin.create_partitions({"numbers": NewPartitions(7, [[1]] * 5)}))
    both.same_errors(lambda side: side.admin.create_partitions({"numbers": 3, "nowhere": 5}))

    def describe(side: Side) -> object:
        names = ["numbers", "places"]
        topics = side.admin.describe_topics(names, include_authorized_operations=True)
        ids = [topic.topic_id for topic in topics.values() if topic.topic_id is not None]
        by_id = side.admin.describe_topics(ids)
        assert [item.name for item in by_id.values()] == names
        return [topic._replace(topic_id=None) for topic in topics.values()]

    both.soon(describe)
    both.same_errors(lambda side: side.admin.describe_topics(["numbers", "nowhere"]))
    ours = {"numbers", "places", "defaults"}
    assert both.soon(lambda side: ours & set(side.admin.list_topics())) == ours
    both.same(lambda side: side.admin.delete_topics(ours))
    both.same_errors(lambda side: side.admin.delete_topics(["numbers"]))


def _values(configs: dict[str, ConfigEntry]) -> dict[str, ConfigEntry]:
    """Returns the entries without descriptions and settings that the test's Kafka overrides."""
    return {
        name: config._replace(documentation=None)
        for name, config in configs.items()
        if name not in ("segment.index.bytes", "min.insync.replicas")
    }


def test_offsets_are_listed_and_records_deleted_alike(both: Both, name: str) -> None:
    t0, t1 = TopicPartition(name, 0), TopicPartition(name, 1)

    def fill(side: Side) -> None:
        for timestamp in (1_700_000_000_000, 1_700_000_005_000, 1_700_000_003_000):
            produce(side.client, name, b"v", timestamp=timestamp)

    both.same(fill)
    for spec in (*OffsetSpec, 1_700_000_000_001, 1_800_000_000_000):
        both.same(partial(_offsets, {t0: spec, t1: spec}))
    assert both.same(lambda side: side.admin.delete_records({t0: 2, t1: -1})) == {t0: 2, t1: 0}
    both.same_errors(lambda side: side.admin.delete_records({t0: 99}))
    nowhere = {TopicPartition("nowhere", 0): OffsetSpec.LATEST, t1: OffsetSpec.LATEST}
    both.same_errors(lambda side: side.admin.list_offsets(nowhere, timeout_ms=200))
    both.same(lambda side: _sizes(side, name))
    replica = TopicPartitionReplica(name, 0, NODE)
    both.same_errors(lambda side: side.admin.alter_replica_log_dirs({replica: "/nowhere"}))
    both.soon(
        lambda side: side.admin.describe_replica_log_dirs([replica])[replica].current_offset_lag
    )


def _offsets(specs: Mapping[TopicPartition, int], side: Side) -> object:
    return side.admin.list_offsets(specs)


def _sizes(side: Side, topic: str) -> list[tuple[TopicPartition, ReplicaInfo]]:
    directories = side.admin.describe_log_dirs([NODE], topics=[topic])[NODE].values()
    return [replica for directory in directories for replica in directory.replicas.items()]


def test_elections_and_reassignments_have_the_same_results(both: Both, name: str) -> None:
    t0, t1, nowhere = TopicPartition(name, 0), TopicPartition(name, 1), TopicPartition(name, 9)
    preferred = ElectionType.PREFERRED
    assert both.same(lambda side: side.admin.elect_leaders(preferred, [t0])) == {t0: False}
    assert both.same(lambda side: side.admin.elect_leaders(preferred)) == {}
    both.same_errors(lambda side: side.admin.elect_leaders(preferred, [nowhere]))
    both.same(lambda side: side.admin.alter_partition_reassignments({t0: [NODE]}))
    both.same_errors(
        lambda side: side.admin.alter_partition_reassignments({t0: [7], t1: None, nowhere: [1]})
    )
    assert both.same(lambda side: side.admin.list_partition_reassignments()) == {}


# --- settings and the cluster


def test_configs_are_altered_and_described_alike(both: Both, name: str) -> None:
    resource = ConfigResource(Topic, name)
    ops = [
        ConfigOp("retention.ms", "77000"),
        ConfigOp("cleanup.policy", "compact", ConfigOpType.APPEND),
    ]
    both.same(lambda side: side.admin.incremental_alter_configs({resource: ops}))

    def describe(side: Side) -> object:
        result = side.admin.describe_configs(
            [resource], include_synonyms=True, include_documentation=True
        )[resource]
        assert all(item.documentation for item in result.values())
        return _values(result)

    both.soon(describe)
    both.soon(
        lambda side: side.admin.describe_configs([resource], names=["retention.ms", "nothing"])
    )
    both.same_errors(
        lambda side: side.admin.incremental_alter_configs({resource: [ConfigOp("retention", "1")]})
    )
    both.same(lambda side: side.admin.alter_configs({resource: {"segment.ms": "60000"}}))
    both.soon(lambda side: _values(side.admin.describe_configs([resource])[resource]))
    both.same_errors(lambda side: side.admin.describe_configs([ConfigResource(Topic, "nowhere")]))
    everyone = ConfigResource(ConfigResourceType.BROKER, "")
    broker = ConfigResource(ConfigResourceType.BROKER, str(NODE))
    changes = {broker: [ConfigOp("log.cleaner.threads", "2")], everyone: ops[:0]}
    both.same(lambda side: side.admin.incremental_alter_configs(changes))
    both.soon(
        lambda side: side.admin.describe_configs(
            [broker, everyone], names=["log.cleaner.threads"], include_synonyms=True
        )
    )
    metrics = ConfigResource(ConfigResourceType.CLIENT_METRICS, name)
    both.same(
        lambda side: side.admin.incremental_alter_configs(
            {metrics: [ConfigOp("interval.ms", "1000")]}
        )
    )
    both.soon(lambda side: metrics in side.admin.list_config_resources())
    both.soon(lambda side: side.admin.list_config_resources([ConfigResourceType.CLIENT_METRICS]))


def test_the_cluster_is_described_alike(both: Both) -> None:
    def describe(side: Side) -> object:
        result = side.admin.describe_cluster(
            include_authorized_operations=True, include_fenced_brokers=True
        )
        assert result.controller is not None
        return (
            [node.id for node in result.nodes],
            result.controller.id,
            result.authorized_operations,
            result.fenced,
        )

    both.soon(describe)
    names = ("group.version", "transaction.version")

    def features(side: Side) -> object:
        result = side.admin.describe_features()
        return [(result.finalized[name], result.supported[name].max_version) for name in names]

    both.soon(features)
    down = {"transaction.version": FeatureUpdate(1, UpgradeType.SAFE_DOWNGRADE)}
    both.same(lambda side: side.admin.update_features(down, validate_only=True))
    both.same_errors(lambda side: side.admin.update_features({"nothing": FeatureUpdate(1)}))
    served = [side.admin.api_versions()[NODE] for side in both]
    apis = [{api.api_key: api for api in versions.apis} for versions in served]
    for key, ours in apis[0].items():
        assert ours.name == apis[1][key].name
        assert None not in (ours.usable, apis[1][key].usable)


def test_the_kraft_quorum_is_unsupported_on_penstock(both: Both) -> None:
    """E4."""
    quorum = both.kafka.admin.describe_quorum()
    assert (quorum.leader_id, [voter.replica_id for voter in quorum.voters]) == (NODE, [NODE])
    assert quorum.nodes[NODE][0].port > 0
    with pytest.raises(KafkaError) as unknown:
        both.kafka.admin.unregister_broker(99)
    assert unknown.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    with pytest.raises(UnsupportedVersionError, match="only KRaft clusters"):
        both.ours.admin.describe_quorum()


# --- groups


def test_group_offsets_are_altered_and_deleted_alike(both: Both, name: str) -> None:
    t0, t1 = TopicPartition(name, 0), TopicPartition(name, 1)
    offsets = {t0: OffsetAndMetadata(5, "note", 0), t1: OffsetAndMetadata(7)}
    both.same(lambda side: side.admin.alter_group_offsets(name, offsets))
    assert both.same(lambda side: side.admin.list_group_offsets([name])) == {name: offsets}
    both.same(
        lambda side: side.admin.list_group_offsets(
            {name: [t1, TopicPartition(name, 2)], "nobody": None}, require_stable=True
        )
    )

    def empty(side: Side) -> object:
        groups = side.admin.list_groups(states=[GroupState.EMPTY], types=[GroupType.CLASSIC])
        return [group for group in groups if group.group_id == name]

    both.same(empty)
    both.same(lambda side: side.admin.delete_group_offsets(name, [t0]))
    both.same(lambda side: side.admin.list_group_offsets([name]))
    both.same_errors(
        lambda side: side.admin.alter_group_offsets(name, {TopicPartition("nowhere", 0): 1})
    )
    both.same(lambda side: side.admin.delete_groups([name]))
    both.same_errors(lambda side: side.admin.delete_groups([name]))
    both.same_errors(lambda side: side.admin.describe_groups([name]))


def test_members_are_described_and_removed_alike(both: Both, name: str) -> None:
    for side in both:
        side.admin.list_group_offsets([name, f"{name}-new"])

    def classic(side: Side) -> object:
        member = ClassicMember(side.client, name, [name], instance="i").joined({name: [0, 2]})
        result = side.admin.describe_groups([name], include_authorized_operations=True)[name]
        assert result.coordinator.id == NODE
        assert result.members[0].member_id == member.member_id
        return result._replace(
            coordinator=NOWHERE,
            members=tuple(member._replace(member_id="") for member in result.members),
        )

    both.same(classic)
    t0 = TopicPartition(name, 0)
    both.same_errors(lambda side: side.admin.alter_group_offsets(name, {t0: 1}))
    both.same_errors(lambda side: side.admin.delete_groups([name]))
    both.same_errors(lambda side: side.admin.delete_group_offsets(name, [t0]))
    both.same_errors(lambda side: side.admin.remove_members(name, [MemberToRemove("other")]))
    both.same(lambda side: side.admin.remove_members(name))
    both.same(lambda side: side.admin.describe_groups([name])[name].state)

    def newer(side: Side) -> object:
        group = f"{name}-new"
        member = ConsumerMember(side.client, group, "m" * 22, names=[name]).joined()
        member.obey()
        result = side.admin.describe_groups([group])[group]
        listed = {group.group_id: group for group in side.admin.list_groups()}[group]
        assert member.leave().error_code == 0
        return result._replace(coordinator=NOWHERE), listed

    both.same(newer)


# --- security


def test_acls_are_created_described_and_deleted_alike(both: Both, name: str) -> None:
    read = AclBinding(
        ResourceType.TOPIC,
        name,
        PatternType.LITERAL,
        "User:ann",
        "*",
        AclOperation.READ,
        AclPermission.ALLOW,
    )
    prefixed = read._replace(pattern_type=PatternType.PREFIXED, principal="User:bob")
    both.same(lambda side: side.admin.create_acls([read, prefixed]))
    assert both.soon(lambda side: side.admin.describe_acls()) == sorted([read, prefixed])
    match = AclBindingFilter(ResourceType.TOPIC, f"{name}-more", PatternType.MATCH)
    assert both.soon(lambda side: side.admin.describe_acls(match)) == [prefixed]
    bad = read._replace(principal="ann")
    both.same_errors(lambda side: side.admin.create_acls([bad]))
    everything = AclBindingFilter()
    both.same(lambda side: side.admin.delete_acls([match, everything]))
    assert both.soon(lambda side: side.admin.describe_acls()) == []


def test_quotas_and_scram_users_are_altered_alike(both: Both, name: str) -> None:
    ann, default = ClientQuotaEntity(name, "app"), ClientQuotaEntity(user=Quota.DEFAULT)
    changes = {ann: {"producer_byte_rate": 1000.0}, default: {"request_percentage": 50.0}}
    both.same(lambda side: side.admin.alter_client_quotas(changes))
    for quota_filter in (
        ClientQuotaFilter(),
        ClientQuotaFilter(name),
        ClientQuotaFilter(user=Quota.ANY, strict=True),
        ClientQuotaFilter(user=Quota.DEFAULT),
    ):
        both.soon(partial(_quotas, quota_filter))
    both.same_errors(lambda side: side.admin.alter_client_quotas({ann: {"speed": 1.0}}))
    both.same(lambda side: side.admin.alter_client_quotas({default: {"request_percentage": None}}))
    both.soon(lambda side: side.admin.describe_client_quotas())
    sha_256, sha_512 = ScramMechanism
    alterations = [
        ScramUpsertion(name, sha_256, "secret"),
        ScramUpsertion(name, sha_512, "secret", 8192),
    ]
    both.same(lambda side: side.admin.alter_user_scram_credentials(alterations))
    both.soon(lambda side: side.admin.describe_user_scram_credentials())
    both.same(lambda side: side.admin.alter_user_scram_credentials([ScramDeletion(name, sha_512)]))
    both.same_errors(lambda side: side.admin.describe_user_scram_credentials([name, "nobody"]))
    both.same_errors(
        lambda side: side.admin.alter_user_scram_credentials(
            [ScramUpsertion(name, sha_256, "x", 5), ScramDeletion("nobody", sha_256)]
        )
    )


def _quotas(quota_filter: ClientQuotaFilter, side: Side) -> object:
    return side.admin.describe_client_quotas(quota_filter)


# --- transactions


def test_transactions_are_described_and_ended_alike(both: Both, name: str) -> None:
    t0 = TopicPartition(name, 0)
    # The coordinators are loaded once they respond that the id is unknown.
    both.same_errors(lambda side: side.admin.describe_transactions([name]))

    def begin(side: Side) -> object:
        producer = TxnProducer.started(side.client, name, Generation.V1, timeout_ms=30_000)
        first = producer.write(name, b"a", b"b")
        described = side.admin.describe_transactions([name])[name]
        listed = side.admin.list_transactions(
            states=[TransactionState.ONGOING], transactional_id_pattern=name
        )[NODE]
        state = side.admin.describe_producers([t0])[t0][0]
        assert described.producer_id == listed[0].producer_id == state.producer_id
        assert (described.start_time_ms or 0) > 0
        assert state.last_timestamp > 0
        committed = side.admin.list_offsets(
            {t0: OffsetSpec.LATEST}, isolation_level="read_committed"
        )
        return (
            first,
            committed,
            described._replace(producer_id=0, start_time_ms=0),
            [item._replace(producer_id=0) for item in listed],
            state._replace(producer_id=0, last_timestamp=0),
        )

    both.same(begin)
    both.same(lambda side: side.admin.fence_producers([name])[name].epoch)
    both.same(lambda side: side.admin.force_terminate_transaction(name))
    both.same_errors(lambda side: side.admin.describe_transactions(["nobody"]))
    both.same_errors(
        lambda side: side.admin.describe_producers([TopicPartition("nowhere", 0)], broker_id=NODE)
    )
    both.same(lambda side: side.admin.abort_transaction(t0, 987_654, 0, 0))
    both.same(
        lambda side: [
            producer.current_transaction_start_offset
            for producer in side.admin.describe_producers([t0])[t0]
            if producer.producer_id != 987_654
        ]
    )
