"""The admin client with our broker: topics, partitions, settings, log directories, the cluster."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from uuid import UUID

import pytest

from penstock.client.admin import (
    AclBindingFilter,
    AclOperation,
    AdminError,
    ConfigOp,
    ConfigOpType,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigType,
    ElectionType,
    FeatureUpdate,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicPartitionReplica,
    UpgradeType,
)
from penstock.client.admin.admin import Admin
from penstock.client.aio.admin import Admin as AioAdmin
from penstock.client.errors import ClientError, IllegalStateError, KafkaTimeoutError
from penstock.core.errors import ErrorCode, KafkaError, UnsupportedVersionError
from penstock.core.ids import TopicPartition
from penstock.protocol.api_key import ApiKey
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.coordinator.group_client import wait_until
from tests.support.coordinator.transaction_client import TxnProducer
from tests.support.protocol.admin import produce

Topic = ConfigResourceType.TOPIC
Broker = ConfigResourceType.BROKER


@pytest.fixture(scope="module")
def log_dirs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    root = tmp_path_factory.mktemp("log_dirs")
    return str(root / "a"), str(root / "b")


@pytest.fixture(scope="module")
def settings(log_dirs: tuple[str, str]) -> Mapping[str, str]:
    return {
        "log.dirs": ",".join(log_dirs),
        "transaction.state.log.num.partitions": "2",
        "max.request.partition.size.limit": "5",
    }


@pytest.fixture(scope="module")
def admin(broker: RunningBroker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers, client_id="admin") as first:
        yield first


@pytest.fixture
def topic(admin: Admin, request: pytest.FixtureRequest) -> Iterator[str]:
    """Creates a topic with two partitions for the test."""
    name = "".join(character if character.isalnum() else "-" for character in request.node.name)
    admin.create_topics([NewTopic(name, 2, 1)])
    yield name
    if name in admin.list_topics():
        admin.delete_topics([name])


def code_of(error: pytest.ExceptionInfo[AdminError], key: object) -> ErrorCode:
    return error.value.errors[key].code


# --- topics


def test_topics_are_created_and_deleted(admin: Admin) -> None:
    """M1: with counts, with defaults and with assignments; deleted by name and by id."""
    created = admin.create_topics(
        [
            NewTopic("numbers", 3, 1, configs={"retention.ms": "5000"}),
            NewTopic("defaults"),
            NewTopic("places", assignments={0: [0], 1: [0]}),
        ]
    )
    assert [(item.num_partitions, item.replication_factor) for item in created.values()] == [
        (3, 1),
        (1, 1),
        (2, 1),
    ]
    configs = created["numbers"].configs
    assert configs is not None
    assert configs["retention.ms"].value == "5000"
    listed = admin.list_topics()
    assert {"numbers", "defaults", "places"} <= set(listed)
    assert listed["numbers"].topic_id == created["numbers"].topic_id
    by_id = listed["defaults"].topic_id
    assert by_id is not None
    admin.delete_topics(["numbers", by_id, "places"])
    assert not {"numbers", "defaults", "places"} & set(admin.list_topics())


def test_invalid_topics_are_rejected(admin: Admin, topic: str) -> None:
    """E1: every error of an invalid topic has a remedy."""
    requested = [
        NewTopic(topic, 1, 1),
        NewTopic("wide", 1, 3),
        NewTopic("a/b", 1, 1),
        NewTopic("ok"),
    ]
    with pytest.raises(AdminError) as failed:
        admin.create_topics(requested, validate_only=True)
    assert code_of(failed, topic) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert code_of(failed, "wide") is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "start more" in failed.value.errors["wide"].message
    assert code_of(failed, "a/b") is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert failed.value.results["ok"].num_partitions == 1
    assert "ok" not in admin.list_topics()
    unknown = UUID(int=7)
    with pytest.raises(AdminError) as delete_error:
        admin.delete_topics(["nowhere", unknown])
    assert code_of(delete_error, "nowhere") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(delete_error, unknown) is ErrorCode.UNKNOWN_TOPIC_ID


def test_topics_are_described(admin: Admin, topic: str) -> None:
    topic_id = admin.list_topics()[topic].topic_id
    assert topic_id is not None
    results = admin.describe_topics([topic, topic_id], include_authorized_operations=True)
    by_name, by_id = results[topic], results[topic_id]
    assert (by_name.name, by_name.topic_id, by_name.is_internal) == (topic, topic_id, False)
    assert [
        (partition.partition, partition.leader, partition.isr) for partition in by_name.partitions
    ] == [
        (0, 0, (0,)),
        (1, 0, (0,)),
    ]
    assert AclOperation.DESCRIBE in (by_name.authorized_operations or ())
    assert [partition_data[:6] for partition_data in by_id.partitions] == [
        item[:6] for item in by_name.partitions
    ]
    assert by_id.authorized_operations == by_name.authorized_operations
    assert admin.describe_topics([topic])[topic].authorized_operations is None


def test_many_partitions_are_described_in_pages(admin: Admin) -> None:
    """A page has 5 partitions, so a topic may begin on one page and end on the next."""
    names = ["pages-a", "pages-b"]
    admin.create_topics([NewTopic(name, 7, 1) for name in names])
    results = admin.describe_topics(names)
    for name in names:
        numbers = [partition.partition for partition in results[name].partitions]
        assert numbers == list(range(7))
    admin.delete_topics(names)


def test_describing_an_unknown_topic_does_not_create_it(admin: Admin) -> None:
    """E5: the broker creates topics automatically for producers, but not for an admin client."""
    with pytest.raises(AdminError, match="check the name against list_topics") as failed:
        admin.describe_topics(["unheard-of"])
    assert failed.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(AdminError) as nowhere:
        admin.list_offsets({TopicPartition("unheard-of", 0): 0}, timeout_ms=150)
    assert nowhere.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "unheard-of" not in admin.list_topics()


def test_partitions_are_added(admin: Admin, topic: str) -> None:
    admin.create_partitions({topic: 3}, validate_only=True)
    assert len(admin.describe_topics([topic])[topic].partitions) == 2
    admin.create_partitions({topic: NewPartitions(4, [[0], [0]])})
    assert len(admin.describe_topics([topic])[topic].partitions) == 4
    with pytest.raises(AdminError, match="can only be added") as failed:
        admin.create_partitions({topic: 3})
    assert failed.value.code is ErrorCode.INVALID_PARTITIONS


# --- records and offsets


def test_offsets_and_deleted_records(admin: Admin, client: WireClient, topic: str) -> None:
    """C2, S4."""
    t0, t1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for timestamp in (1_700_000_000_000, 1_700_000_005_000, 1_700_000_003_000):
        produce(client, topic, b"v", timestamp=timestamp)

    def offset(spec: int) -> tuple[int, int]:
        results = admin.list_offsets({t0: spec})[t0]
        return results.offset, results.timestamp

    assert offset(OffsetSpec.EARLIEST) == (0, -1)
    assert offset(OffsetSpec.LATEST) == (3, -1)
    assert offset(OffsetSpec.MAX_TIMESTAMP) == (1, 1_700_000_005_000)
    assert offset(1_700_000_000_001) == (1, 1_700_000_005_000)
    assert offset(1_800_000_000_000) == (-1, -1)
    assert offset(OffsetSpec.EARLIEST_LOCAL) == (0, -1)
    assert admin.delete_records({t0: 2, t1: -1}) == {t0: 2, t1: 0}
    assert offset(OffsetSpec.EARLIEST) == (2, -1)
    with pytest.raises(AdminError, match="beyond the high watermark") as failed:
        admin.delete_records({t0: 9})
    assert failed.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_offsets_of_open_transactions(admin: Admin, client: WireClient, topic: str) -> None:
    """P4: read_committed ends at the last stable offset."""
    t0 = TopicPartition(topic, 0)
    producer = TxnProducer.started(client, topic)
    producer.write(topic, b"a", b"b")
    latest = {t0: OffsetSpec.LATEST}
    assert admin.list_offsets(latest)[t0].offset == 2
    assert admin.list_offsets(latest, isolation_level="read_committed")[t0].offset == 0
    producer.commit()
    wait_until(lambda: admin.list_offsets(latest, isolation_level="read_committed")[t0].offset == 3)


# --- replicas


def test_elections_and_reassignments_on_one_node(admin: Admin, topic: str) -> None:
    """R5, R8: one node has nothing to elect or reassign."""
    t0, t1, nowhere = (TopicPartition(topic, index) for index in range(3))
    assert admin.elect_leaders(ElectionType.PREFERRED, [t0]) == {t0: False}
    assert admin.elect_leaders(ElectionType.PREFERRED) == {}
    with pytest.raises(AdminError) as unknown:
        admin.elect_leaders(ElectionType.UNCLEAN, [t0, nowhere])
    assert code_of(unknown, nowhere) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown.value.results == {t0: False}
    admin.alter_partition_reassignments({t0: [0]})
    assert admin.list_partition_reassignments() == {}
    assert admin.list_partition_reassignments([t0]) == {}
    with pytest.raises(AdminError) as failed:
        admin.alter_partition_reassignments(
            {t0: [7], t1: None}, allow_replication_factor_change=False
        )
    assert code_of(failed, t0) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert code_of(failed, t1) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


# --- settings


def test_settings_are_described_and_changed(admin: Admin, topic: str) -> None:
    resource = ConfigResource(Topic, topic)
    admin.incremental_alter_configs(
        {
            resource: [
                ConfigOp("retention.ms", "77000"),
                ConfigOp("cleanup.policy", "compact", ConfigOpType.APPEND),
            ]
        }
    )
    results = admin.describe_configs([resource], include_synonyms=True, include_documentation=True)
    entry = results[resource]["retention.ms"]
    assert (entry.value, entry.source) == ("77000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert (entry.type, entry.is_default, entry.is_dynamic) == (ConfigType.LONG, False, True)
    assert entry.synonyms[0].name == "retention.ms"
    assert entry.documentation
    assert results[resource]["cleanup.policy"].value == "delete,compact"
    plain = admin.describe_configs([resource], names=["retention.ms"])[resource]
    assert list(plain) == ["retention.ms"]
    assert (plain["retention.ms"].synonyms, plain["retention.ms"].documentation) == ((), None)
    admin.incremental_alter_configs(
        {resource: [ConfigOp("retention.ms", None, ConfigOpType.DELETE)]}
    )
    assert admin.describe_configs([resource])[resource]["retention.ms"].is_default
    admin.alter_configs({resource: {"segment.ms": "60000"}})
    changed = admin.describe_configs([resource])[resource]
    dynamic = {name: item.value for name, item in changed.items() if item.is_dynamic}
    assert dynamic == {"segment.ms": "60000"}


def test_invalid_settings_are_rejected(admin: Admin, topic: str) -> None:
    existing, nowhere = ConfigResource(Topic, topic), ConfigResource(Topic, "nowhere")
    with pytest.raises(AdminError, match=r"retention\.m") as failed:
        admin.incremental_alter_configs(
            {existing: [ConfigOp("retention.m", "1")]}, validate_only=True
        )
    assert failed.value.code is ErrorCode.INVALID_CONFIG
    with pytest.raises(AdminError) as unknown:
        admin.describe_configs([existing, nowhere, ConfigResource(Broker, "5")])
    assert code_of(unknown, nowhere) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(unknown, ConfigResource(Broker, "5")) is ErrorCode.BROKER_NOT_AVAILABLE
    assert list(unknown.value.results) == [existing]


def test_settings_of_brokers_and_the_list_of_config_resources(admin: Admin, topic: str) -> None:
    broker_resource, default_resource = ConfigResource(Broker, "0"), ConfigResource(Broker, "")
    admin.incremental_alter_configs(
        {broker_resource: [ConfigOp("log.flush.interval.messages", "7")], default_resource: []}
    )
    results = admin.describe_configs([broker_resource, default_resource])
    entry = results[broker_resource]["log.flush.interval.messages"]
    assert (entry.value, entry.source) == ("7", ConfigSource.DYNAMIC_BROKER_CONFIG)
    admin.alter_configs({broker_resource: {}})
    metrics = ConfigResource(ConfigResourceType.CLIENT_METRICS, "basic")
    admin.incremental_alter_configs({metrics: [ConfigOp("interval.ms", "1000")]})
    everything = admin.list_config_resources()
    assert {ConfigResource(Topic, topic), broker_resource, metrics} <= set(everything)
    assert admin.list_config_resources([ConfigResourceType.CLIENT_METRICS]) == [metrics]
    admin.incremental_alter_configs({metrics: [ConfigOp("interval.ms", None, ConfigOpType.DELETE)]})


# --- cluster


def test_the_cluster_is_described(admin: Admin, broker: RunningBroker) -> None:
    results = admin.describe_cluster(
        include_authorized_operations=True, include_fenced_brokers=True
    )
    assert [(node.id, node.port) for node in results.nodes] == [(0, broker.address[1])]
    assert results.controller == results.nodes[0]
    assert results.cluster_id
    assert AclOperation.CREATE in (results.authorized_operations or ())
    assert results.fenced == frozenset()
    assert admin.describe_cluster().authorized_operations is None


def test_the_api_versions_of_brokers(admin: Admin) -> None:
    versions = admin.api_versions()[0]
    assert versions.error is None
    by_key = {api.api_key: api for api in versions.apis}
    topics = by_key[ApiKey.CREATE_TOPICS]
    assert (topics.name, topics.max_version, topics.usable) == ("CreateTopics", 7, 7)
    assert ApiKey.DESCRIBE_QUORUM not in by_key
    with pytest.raises(ClientError, match="there is no broker 8"):
        admin.api_versions([8])


def test_unsupported_requests_raise_an_error(admin: Admin) -> None:
    """E4."""
    with pytest.raises(UnsupportedVersionError, match=r"DescribeQuorum.*only KRaft clusters"):
        admin.describe_quorum()
    with pytest.raises(UnsupportedVersionError, match="UnregisterBroker"):
        admin.unregister_broker(5)


def test_acls_of_a_broker_without_an_authorizer(admin: Admin) -> None:
    """X3: the error says how to enable ACLs."""
    with pytest.raises(ClientError, match=r"set authorizer\.class\.name") as failed:
        admin.describe_acls()
    assert failed.value.code is ErrorCode.SECURITY_DISABLED
    with pytest.raises(AdminError) as deleted:
        admin.delete_acls([AclBindingFilter()])
    assert deleted.value.code is ErrorCode.SECURITY_DISABLED


def test_features_are_described_and_updated(admin: Admin) -> None:
    results = admin.describe_features(node_id=0)
    assert results.supported["transaction.version"].max_version == 2
    level = results.finalized["group.version"].max_version
    admin.update_features(
        {"group.version": FeatureUpdate(0, UpgradeType.SAFE_DOWNGRADE)}, validate_only=True
    )
    assert admin.describe_features().finalized["group.version"].max_version == level
    with pytest.raises(KafkaError, match="describe_features shows") as failed:
        admin.update_features({"group.version": FeatureUpdate(9)})
    assert failed.value.code is ErrorCode.INVALID_UPDATE_VERSION


def test_log_dirs_are_described_and_replicas_moved(
    admin: Admin, client: WireClient, topic: str, log_dirs: tuple[str, str]
) -> None:
    """S1: a replica moves to the other log directory."""
    produce(client, topic, b"x" * 1000)
    results = admin.describe_log_dirs(topics=[topic])
    assert list(results) == [0]
    assert sorted(results[0]) == sorted(log_dirs)
    partition, replica = TopicPartition(topic, 0), TopicPartitionReplica(topic, 0, 0)
    has_data = {
        path: item.replicas[partition].size > 1000
        for path, item in results[0].items()
        if partition in item.replicas
    }
    current = admin.describe_replica_log_dirs([replica])[replica].current
    assert has_data == {current: True}
    assert all(
        (entry.usable_bytes or 0) > 0 and entry.error is None for entry in results[0].values()
    )
    target = next(path for path in log_dirs if path != current)
    admin.alter_replica_log_dirs({replica: target})
    wait_until(lambda: admin.describe_replica_log_dirs([replica])[replica].current == target)
    with pytest.raises(AdminError, match="describe_log_dirs shows") as failed:
        admin.alter_replica_log_dirs({replica: "/nowhere"})
    assert failed.value.code is ErrorCode.LOG_DIR_NOT_FOUND
    with pytest.raises(AdminError, match="there is no broker 4"):
        admin.describe_log_dirs([0, 4])


# --- client


def test_the_asyncio_admin_client(broker: RunningBroker) -> None:
    async def scenario() -> None:
        async with AioAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic("aio", 1, 1)])
            first, second = await asyncio.gather(
                admin.list_topics(), admin.describe_topics(["aio"])
            )
            assert "aio" in first
            assert len(second["aio"].partitions) == 1
            await admin.delete_topics(["aio"])

    asyncio.run(scenario())


def test_threads_share_an_admin_client(admin: Admin, topic: str) -> None:
    results: list[int] = []

    def describe() -> None:
        for _ in range(5):
            results.append(len(admin.describe_topics([topic])[topic].partitions))

    threads = [threading.Thread(target=describe) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [2] * 20


def test_the_error_without_a_broker_has_its_address() -> None:
    """E6: the error has the address and a remedy."""
    with Admin(bootstrap_servers="127.0.0.1:1") as admin:
        for call in (admin.list_topics, admin.describe_log_dirs, admin.api_versions):
            with pytest.raises(KafkaTimeoutError, match=r"127\.0\.0\.1:1.*check"):
                call(timeout_ms=150)
        with pytest.raises(KafkaTimeoutError, match=r"127\.0\.0\.1:1.*check"):
            admin.create_topics([NewTopic("t")], timeout_ms=150)


def test_a_call_waits_for_a_broker_that_restarts(tmp_path: Path) -> None:
    """A call during the downtime of the broker waits for it."""
    with running_broker(tmp_path) as first:
        port = first.address[1]
        admin = Admin(bootstrap_servers=first.bootstrap_servers, reconnect_backoff_max_ms=100)
        admin.create_topics([NewTopic("retained", 1, 1)])
    with admin:
        results: list[set[str]] = []
        list_thread = threading.Thread(target=lambda: results.append(set(admin.list_topics())))
        list_thread.start()
        with running_broker(tmp_path, {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}):
            list_thread.join()
            assert results == [{"retained"}]
            admin.delete_topics(["retained"])


def test_a_closed_admin_client_raises(broker: RunningBroker) -> None:
    admin = Admin(bootstrap_servers=broker.bootstrap_servers)
    admin.list_topics()
    admin.close()
    admin.close()
    with pytest.raises(IllegalStateError, match="closed"):
        admin.list_topics()
