"""The paths of the nodes: Kafka 3.9's, as its own classes make them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.paths import key_of, path_of
from penstock.controller.metadata import (
    AclKey,
    BrokerKey,
    ClusterKey,
    ConfigKey,
    DelegationTokenKey,
    IsrChangeKey,
    Key,
    LogDirEventKey,
    TopicDeletionKey,
    TopicKey,
)
from penstock.core.ids import TopicPartition

ODD = "!'()@:$&;?#[]|\"^`{}\\"

PATHS: list[tuple[Key, str]] = [
    (ClusterKey("cluster_id"), "/cluster/id"),
    (ClusterKey("controller"), "/controller"),
    (ClusterKey("controller_epoch"), "/controller_epoch"),
    (ClusterKey("features"), "/feature"),
    (ClusterKey("producer_ids"), "/latest_producer_id_block"),
    (BrokerKey(0), "/brokers/ids/0"),
    (BrokerKey(4), "/brokers/ids/4"),
    (TopicKey("t.x"), "/brokers/topics/t.x"),
    (TopicPartition("t.x", 10), "/brokers/topics/t.x/partitions/10/state"),
    (ConfigKey((("topics", "t.x"),)), "/config/topics/t.x"),
    (ConfigKey((("brokers", "<default>"),)), "/config/brokers/<default>"),
    (ConfigKey((("brokers", "3"),)), "/config/brokers/3"),
    (ConfigKey((("clients", "~"),)), "/config/clients/%7E"),
    (ConfigKey((("clients", "+%"),)), "/config/clients/%2B%25"),
    (ConfigKey((("users", "日本"),)), "/config/users/%E6%97%A5%E6%9C%AC"),
    (
        ConfigKey((("users", "CN=a b,O=~*+/é"), ("clients", "c/1 %"))),
        "/config/users/CN%3Da%20b%2CO%3D%7E%2A%2B%2F%C3%A9/clients/c%2F1%20%25",
    ),
    (
        ConfigKey((("users", ODD),)),
        "/config/users/%21%27%28%29%40%3A%24%26%3B%3F%23%5B%5D%7C%22%5E%60%7B%7D%5C",
    ),
    (
        ConfigKey((("users", "<default>"), ("clients", "<default>"))),
        "/config/users/<default>/clients/<default>",
    ),
    (ConfigKey((("ips", "::1"),)), "/config/ips/%3A%3A1"),
    (ConfigKey((("groups", "g/1"),)), "/config/groups/g%2F1"),
    (ConfigKey((("client-metrics", "m"),)), "/config/client-metrics/m"),
    (DelegationTokenKey("tQwbXIpLT1q_-A"), "/delegation_token/tokens/tQwbXIpLT1q_-A"),
    (AclKey("TOPIC", "LITERAL", "*"), "/kafka-acl/Topic/*"),
    (AclKey("GROUP", "LITERAL", "x"), "/kafka-acl/Group/x"),
    (AclKey("CLUSTER", "LITERAL", "kafka-cluster"), "/kafka-acl/Cluster/kafka-cluster"),
    (AclKey("TRANSACTIONAL_ID", "LITERAL", "x"), "/kafka-acl/TransactionalId/x"),
    (AclKey("DELEGATION_TOKEN", "LITERAL", "x"), "/kafka-acl/DelegationToken/x"),
    (AclKey("USER", "LITERAL", "x"), "/kafka-acl/User/x"),
    (
        AclKey("TRANSACTIONAL_ID", "PREFIXED", "tx-"),
        "/kafka-acl-extended/prefixed/TransactionalId/tx-",
    ),
    (AclKey("GROUP", "LITERAL", "a/b"), "/kafka-acl/Group/a/b"),
    (TopicDeletionKey("t.x"), "/admin/delete_topics/t.x"),
    (ClusterKey("reassign_partitions"), "/admin/reassign_partitions"),
    (ClusterKey("preferred_election"), "/admin/preferred_replica_election"),
    (IsrChangeKey(12), "/isr_change_notification/isr_change_0000000012"),
    (LogDirEventKey(0), "/log_dir_event_notification/log_dir_event_0000000000"),
]

NOT_OURS = [
    "",
    "/",
    "/brokers",
    "/brokers/ids",
    "/brokers/ids/",
    "/brokers/ids/one",
    "/isr_change_notification/isr_change_12",
    "/isr_change_notification/log_dir_event_0000000012",
    "/log_dir_event_notification/log_dir_event_-000000001",
    "/admin/delete_topics",
    "/brokers/ids/01",
    "/brokers/ids/-1",
    "/brokers/topics",
    "/brokers/topics/",
    "/brokers/topics/t/partitions",
    "/brokers/topics/t/partitions/0",
    "/brokers/topics/t/partitions/²/state",
    "/brokers/topics//partitions/0/state",
    "/brokers/topics/t/partitions/0/state/more",
    "/config",
    "/config/topics",
    "/config/topics/",
    "/config/changes/config_change_1",
    "/config/users/ann/clients",
    "/config/clients/c/users/ann",
    "/config/users/%3Cdefault%3E",
    "/config/users/a%2fb",
    "/config/users/a+b",
    "/config/users/%FF",
    "/kafka-acl",
    "/kafka-acl/Topic",
    "/kafka-acl/Topic/",
    "/kafka-acl/TOPIC/t",
    "/kafka-acl-extended/prefixed/Topic",
    "/kafka-acl-extended/literal/Topic/t",
    "/kafka-acl-changes/acl_changes_1",
    "controller",
]


@pytest.mark.parametrize(("key", "path"), PATHS, ids=[path for _, path in PATHS])
def test_kafkas_paths(key: Key, path: str) -> None:
    assert path_of(key) == path
    assert key_of(path) == key
    assert type(key_of(path)) is type(key)


@pytest.mark.parametrize("path", NOT_OURS)
def test_a_path_where_no_record_lives_has_no_key(path: str) -> None:
    assert key_of(path) is None


@pytest.mark.parametrize(
    "key",
    [
        ClusterKey("nothing"),
        ConfigKey(()),
        ConfigKey((("planets", "mars"),)),
        ConfigKey((("topics", ""),)),
        ConfigKey((("clients", "c"), ("users", "u"))),
        ConfigKey((("topics", "t"), ("clients", "c"))),
        AclKey("ANY", "LITERAL", "x"),
        AclKey("TOPIC", "MATCH", "x"),
        AclKey("TOPIC", "LITERAL", ""),
    ],
    ids=str,
)
def test_a_key_that_no_record_has_is_refused(key: Key) -> None:
    with pytest.raises(ValueError, match="is no"):
        path_of(key)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(user=NAMES, client=NAMES)
def test_any_name_of_a_user_and_client_round_trips(user: str, client: str) -> None:
    key = ConfigKey((("users", user), ("clients", client)))
    path = path_of(key)
    assert path.isascii()
    assert path.count("/") == 5
    assert key_of(path) == key


@given(name=NAMES, pattern_type=st.sampled_from(["LITERAL", "PREFIXED"]))
def test_any_name_of_a_resource_round_trips(name: str, pattern_type: str) -> None:
    key = AclKey("GROUP", pattern_type, name)
    assert key_of(path_of(key)) == key


@given(st.text(st.sampled_from("/%abc019.<>-")).map("/".__add__))
def test_a_path_that_has_a_key_is_the_path_of_that_key(tail: str) -> None:
    for head in ("/config/users", "/kafka-acl/Topic", "/brokers/topics", "/brokers/ids"):
        key = key_of(head + tail)
        assert key is None or path_of(key) == head + tail
