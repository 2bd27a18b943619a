"""The content of the nodes, against what the classes of Kafka 3.9.1 wrote and read.

Each string of `KAFKAS` came out of `kafka.zk`'s encoders, and what we write for the same record was
read back by its decoders.
"""

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.cluster.paths import key_of, path_of
from penstock.cluster.znode_json import DamagedNodeError
from penstock.cluster.znodes import NO_TOPIC_ID, decode, encode
from penstock.controller.metadata import (
    AccessControlEntry,
    AclRecord,
    Assignment,
    BrokerRecord,
    ClusterIdRecord,
    ConfigRecord,
    ControllerEpochRecord,
    ControllerRecord,
    DelegationTokenRecord,
    Endpoint,
    FeaturesRecord,
    IsrChangeRecord,
    LogDirEventRecord,
    PartitionRecord,
    PreferredElectionRecord,
    ProducerIdsRecord,
    ReassignPartitionsRecord,
    Record,
    SecurityProtocol,
    TopicDeletionRecord,
    TopicRecord,
)
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition

TOPIC_ID = UUID("6befd7c3-4b18-43db-93cd-792ae18715e6")
BROKER_5 = BrokerRecord(
    broker_id=5,
    endpoints=(Endpoint("SSL", "h", 9093, SecurityProtocol.SSL),),
    rack=None,
    timestamp_ms=1794738595112,
    features={},
    epoch=77,
)
ASSIGNMENTS = {0: Assignment((1, 2)), 1: Assignment((2, 1, 3), adding=(3,), removing=(1,))}
PARTITION = PartitionRecord(
    topic="t.x",
    partition=1,
    leader=2,
    leader_epoch=4,
    isr=(2, 1),
    controller_epoch=7,
    partition_epoch=9,
)

KAFKAS: list[tuple[Record, str]] = [
    (ClusterIdRecord("cX8sHPs6QTSsO1oMyyOjCw"), '{"version":"1","id":"cX8sHPs6QTSsO1oMyyOjCw"}'),
    (
        ControllerRecord(1, 1700000000123),
        '{"version":2,"brokerid":1,"timestamp":"1700000000123","kraftControllerEpoch":-1}',
    ),
    (ControllerEpochRecord(7), "7"),
    (
        FeaturesRecord({"metadata.version": 21, "kraft.version": 1}, epoch=9),
        '{"features":{"metadata.version":{"max_version_level":21},'
        '"kraft.version":{"max_version_level":1}},"version":2,"status":1}',
    ),
    (
        ProducerIdsRecord(3, 5000, 5999),
        '{"version":1,"broker":3,"block_start":"5000","block_end":"5999"}',
    ),
    (
        BrokerRecord(
            broker_id=4,
            endpoints=(
                Endpoint("PLAINTEXT", "h.example", 9092, SecurityProtocol.PLAINTEXT),
                Endpoint("CLIENT", "::1", 9093, SecurityProtocol.SASL_SSL),
            ),
            rack="r1",
            timestamp_ms=1794738595103,
            features={"metadata.version": (1, 21)},
            epoch=77,
        ),
        '{"features":{"metadata.version":{"min_version":1,"max_version":21}},'
        '"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","CLIENT":"SASL_SSL"},'
        '"endpoints":["PLAINTEXT://h.example:9092","CLIENT://[::1]:9093"],"rack":"r1",'
        '"jmx_port":-1,"port":9092,"host":"h.example","version":5,"timestamp":"1794738595103"}',
    ),
    (
        BROKER_5,
        '{"features":{},"listener_security_protocol_map":{"SSL":"SSL"},'
        '"endpoints":["SSL://h:9093"],"jmx_port":-1,"port":-1,"host":null,"version":5,'
        '"timestamp":"1794738595112"}',
    ),
    (
        TopicRecord("t.x", TOPIC_ID, ASSIGNMENTS),
        '{"partitions":{"0":[1,2],"1":[2,1,3]},"topic_id":"a-_Xw0sYQ9uTzXkq4YcV5g",'
        '"adding_replicas":{"1":[3]},"removing_replicas":{"1":[1]},"version":3}',
    ),
    (
        PARTITION,
        '{"controller_epoch":7,"leader":2,"version":1,"leader_epoch":4,"isr":[2,1]}',
    ),
    (
        ConfigRecord(
            (("topics", "t.x"),), {"cleanup.policy": "compact,delete", "retention.ms": "1000"}
        ),
        '{"version":1,"config":{"cleanup.policy":"compact,delete","retention.ms":"1000"}}',
    ),
    (
        ConfigRecord((("ips", "::1"),), {"producer_byte_rate": "1048576.0"}),
        '{"version":1,"config":{"producer_byte_rate":"1048576.0"}}',
    ),
    (
        ConfigRecord((("brokers", "<default>"),), {"odd": '"quoted" \\ é \n'}),
        '{"version":1,"config":{"odd":"\\"quoted\\" \\\\ é \\n"}}',
    ),
    (
        AclRecord(
            "TOPIC",
            "LITERAL",
            "*",
            frozenset({AccessControlEntry("User:ann", "*", "READ", "ALLOW")}),
        ),
        '{"acls":[{"principal":"User:ann","permissionType":"Allow","host":"*",'
        '"operation":"Read"}],"version":1}',
    ),
    (
        AclRecord(
            "TRANSACTIONAL_ID",
            "PREFIXED",
            "tx-",
            frozenset(
                {
                    AccessControlEntry("User:*", "*", "ALL", "ALLOW"),
                    AccessControlEntry("User:CN=a:b", "10.0.0.1", "DESCRIBE_CONFIGS", "DENY"),
                }
            ),
        ),
        '{"acls":[{"principal":"User:*","permissionType":"Allow","host":"*","operation":"All"},'
        '{"principal":"User:CN=a:b","permissionType":"Deny","host":"10.0.0.1",'
        '"operation":"DescribeConfigs"}],"version":1}',
    ),
    (
        DelegationTokenRecord("id", "User:CN=a b", "User:bob", ("User:c",), 1, 9, 5),
        '{"version":3,"owner":"User%3ACN%3Da%20b","tokenRequester":"User%3Abob",'
        '"renewers":["User%3Ac"],"issueTimestamp":1,"maxTimestamp":9,"expiryTimestamp":5,'
        '"tokenId":"id"}',
    ),
    (
        PartitionRecord("t.x", 10, 2, 5, (2,), 3, 9, leader_recovery_state=1),
        '{"controller_epoch":3,"leader":2,"version":1,"leader_recovery_state":1,'
        '"leader_epoch":5,"isr":[2]}',
    ),
    (
        PartitionRecord("t.x", 10, 2, 5, (2,), 3, 9, eligible_leader_replicas=(1, 3)),
        '{"controller_epoch":3,"leader":2,"version":1,"leader_epoch":5,"isr":[2],'
        '"eligible_leader_replicas":[1,3]}',
    ),
    (TopicDeletionRecord("t.x"), ""),
    (
        ReassignPartitionsRecord({TopicPartition("t.x", 10): (2, 3)}),
        '{"version":1,"partitions":[{"topic":"t.x","partition":10,"replicas":[2,3]}]}',
    ),
    (
        PreferredElectionRecord((TopicPartition("t.x", 10),)),
        '{"version":1,"partitions":[{"topic":"t.x","partition":10}]}',
    ),
    (
        IsrChangeRecord(12, (TopicPartition("t.x", 10),)),
        '{"version":1,"partitions":[{"topic":"t.x","partition":10}]}',
    ),
    (LogDirEventRecord(12, 3), '{"version":1,"broker":3,"event":1}'),
]


@pytest.mark.parametrize(("record", "text"), KAFKAS, ids=[str(r.key) for r, _ in KAFKAS])
def test_we_write_what_kafka_writes(record: Record, text: str) -> None:
    assert encode(record) == text.encode()


@pytest.mark.parametrize(("record", "text"), KAFKAS, ids=[str(r.key) for r, _ in KAFKAS])
def test_we_read_what_kafka_writes(record: Record, text: str) -> None:
    assert decode(path_of(record.key), text.encode(), version=9, created=77) == record


OLDER: list[tuple[Record, str]] = [
    (ControllerRecord(1, 5), '{"version":1,"brokerid":1,"timestamp":"5"}'),
    (
        FeaturesRecord({"metadata.version": 21}, epoch=9),
        '{"features":{"metadata.version":{"max_version_level":21,"min_version_level":21}},'
        '"version":1,"status":1}',
    ),
    (
        FeaturesRecord({}, epoch=9),
        '{"features":{"metadata.version":{"max_version_level":21}},"version":2,"status":0}',
    ),
    (
        BROKER_5,
        '{"listener_security_protocol_map":{"SSL":"SSL"},"endpoints":["SSL://h:9093"],'
        '"jmx_port":-1,"port":-1,"host":null,"version":4,"timestamp":"1794738595112"}',
    ),
    (
        BROKER_5,
        '{"endpoints":["SSL://h:9093"],"jmx_port":-1,"port":-1,"host":null,"version":2,'
        '"timestamp":"1794738595112"}',
    ),
    (
        TopicRecord("t.x", NO_TOPIC_ID, ASSIGNMENTS),
        '{"partitions":{"0":[1,2],"1":[2,1,3]},"adding_replicas":{"1":[3]},'
        '"removing_replicas":{"1":[1]},"version":2}',
    ),
    (
        TopicRecord("t.x", NO_TOPIC_ID, {0: Assignment((1, 2))}),
        '{"version":1,"partitions":{"0":[1,2]}}',
    ),
    (
        DelegationTokenRecord("id", "User:ann", "User:ann", (), 1, 9, 5),
        '{"owner":"User%3Aann","renewers":[],"issueTimestamp":1,"maxTimestamp":9,'
        '"expiryTimestamp":5,"tokenId":"id","version":2}',
    ),
]


@pytest.mark.parametrize(("record", "text"), OLDER, ids=[text[:60] for _, text in OLDER])
def test_we_read_what_older_kafkas_wrote(record: Record, text: str) -> None:
    assert decode(path_of(record.key), text.encode(), version=9, created=77) == record


@pytest.mark.parametrize("is_unclean", [True, False])
def test_a_broker_that_reports_losses_is_told_from_one_that_does_not(is_unclean: bool) -> None:
    """Kafka's brokers have no such field."""
    assert not BROKER_5.reports_losses
    record = replace(BROKER_5, is_unclean=is_unclean, reports_losses=True)
    data = encode(record)
    assert json.loads(data)["unclean"] is is_unclean
    assert decode(path_of(record.key), data, version=0, created=record.epoch) == record


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/config/topics/t.y", '{"version":1,"config":{}}'),
        ("/config/users/ann", ""),
        ("/kafka-acl/Topic/t", '{"acls":[],"version":1}'),
        ("/kafka-acl/Topic/a", ""),
    ],
)
def test_empty_settings_and_acls_are_no_record(path: str, text: str) -> None:
    assert decode(path, text.encode(), version=3) is None


def test_every_operation_has_kafkas_name() -> None:
    """X3"""
    names = {
        "ALL": "All",
        "READ": "Read",
        "WRITE": "Write",
        "CREATE": "Create",
        "DELETE": "Delete",
        "ALTER": "Alter",
        "DESCRIBE": "Describe",
        "CLUSTER_ACTION": "ClusterAction",
        "DESCRIBE_CONFIGS": "DescribeConfigs",
        "ALTER_CONFIGS": "AlterConfigs",
        "IDEMPOTENT_WRITE": "IdempotentWrite",
        "CREATE_TOKENS": "CreateTokens",
        "DESCRIBE_TOKENS": "DescribeTokens",
    }
    for operation, name in names.items():
        entry = AccessControlEntry("User:a", "*", operation, "DENY")
        record = AclRecord("USER", "LITERAL", "u", frozenset({entry}))
        data = encode(record)
        assert json.loads(data)["acls"][0]["operation"] == name
        assert decode(path_of(record.key), data, version=0) == record


ACL = '{{"version":1,"acls":[{{"principal":"User:a","host":"*",{}}}]}}'
TOKEN = (
    '{{"tokenId":"{}","owner":"{}","version":{},"renewers":[],'
    '"issueTimestamp":1,"maxTimestamp":1,"expiryTimestamp":1}}'
)
BROKER = '{{"version":5,"host":null,"port":-1,"timestamp":"1",{}}}'


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        ("/nowhere", "{}", "no record has this path"),
        ("/brokers/topics/t/partitions", "", "no record has this path"),
        ("/cluster/id", "", "data"),
        ("/cluster/id", "{}", "required field `id`"),
        ("/cluster/id", '{"version":"1","id":7}', "Expected `str`, got `int`"),
        ("/cluster/id", '{"id":"\udcff"}', "utf-8"),
        ("/controller", "[1]", "Expected `object`"),
        ("/controller", '{"brokerid":1,"timestamp":"soon"}', "timestamp 'soon'"),
        ("/controller_epoch", "many", "epoch 'many'"),
        ("/controller_epoch", "\udcff", "is not a number"),
        ("/feature", '{"features":{},"version":3,"status":1}', "version 3"),
        ("/latest_producer_id_block", '{"broker":1,"block_start":"","block_end":"1"}', "''"),
        ("/brokers/topics/t", '{"partitions":{"0":[1]},"version":4}', "version 4"),
        ("/brokers/topics/t", '{"partitions":{"0":[1],"2":[1]},"version":3}', r"\[0, 2\]"),
        ("/brokers/topics/t", '{"partitions":{"x":[1]},"version":3}', "int"),
        ("/brokers/topics/t", '{"partitions":{},"topic_id":"short","version":3}', "'short'"),
        (
            "/brokers/topics/t",
            '{"partitions":{},"topic_id":"a+/Xw0sYQ9uTzXkq4YcV5g","version":3}',
            "is not a topic id",
        ),
        ("/brokers/topics/t/partitions/0/state", '{"leader":1}', "required field"),
        (
            "/brokers/topics/t/partitions/0/state",
            '{"controller_epoch":7,"leader":2147483648,"leader_epoch":4,"isr":[]}',
            "leader",
        ),
        ("/config/topics/t", '{"version":1,"config":{"a":1}}', r"\$.config"),
        ("/config/topics/t", '{"version":2,"config":{}}', "version 2"),
        ("/delegation_token/tokens/id", TOKEN.format("other", "User%3Aa", 3), "'other'"),
        ("/delegation_token/tokens/id", TOKEN.format("id", "ann", 3), "'ann'"),
        ("/delegation_token/tokens/id", TOKEN.format("id", "User%3Aa", 4), "version 4"),
        ("/kafka-acl/Topic/t", '{"version":2,"acls":[]}', "version 2"),
        ("/kafka-acl/Topic/t", ACL.format('"permissionType":"Allow","operation":"Eat"'), "Eat"),
        ("/kafka-acl/Topic/t", ACL.format('"permissionType":"May","operation":"Read"'), "May"),
        (
            "/brokers/ids/1",
            BROKER.format('"endpoints":["nothing"]'),
            "'nothing' is not an endpoint",
        ),
        ("/brokers/ids/1", BROKER.format('"endpoints":["INNER://h:1"]'), "listener INNER"),
        ("/brokers/ids/1", '{"version":1,"host":"h","port":1,"timestamp":"1"}', "endpoints"),
    ],
)
def test_a_damaged_node_is_named_with_what_is_wrong(path: str, text: str, problem: str) -> None:
    data = text.encode(errors="surrogateescape")
    with pytest.raises(DamagedNodeError, match=problem) as caught:
        decode(path, data, version=0)
    assert f"metadata node {path} " in caught.value.message
    assert caught.value.path == path
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@given(
    path=st.sampled_from([path_of(record.key) for record, _ in KAFKAS]),
    data=st.binary() | st.sampled_from([text.encode() for _, text in KAFKAS]),
    cut=st.integers(0, 300),
    insert=st.binary(max_size=3),
)
def test_any_bytes_are_read_or_refused(path: str, data: bytes, cut: int, insert: bytes) -> None:
    """Damage never shows as anything but `DamagedNodeError`."""
    try:
        record = decode(path, data[:cut] + insert + data[cut:], version=0)
    except DamagedNodeError as error:
        assert error.path == path  # noqa: PT017
    else:
        assert record is None or record.key == key_of(path)
