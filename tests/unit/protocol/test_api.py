"""The table of APIs, next to that of Apache Kafka 4.4.0."""

import pytest

from penstock.core.errors import UnsupportedVersionError
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Kind

# Key: name, then the lowest and the highest stable version that Kafka 4.4.0 serves.
KAFKA_4_4 = {
    0: ("PRODUCE", 3, 13),
    1: ("FETCH", 4, 18),
    2: ("LIST_OFFSETS", 1, 11),
    3: ("METADATA", 0, 13),
    8: ("OFFSET_COMMIT", 2, 10),
    9: ("OFFSET_FETCH", 1, 10),
    10: ("FIND_COORDINATOR", 0, 6),
    11: ("JOIN_GROUP", 0, 9),
    12: ("HEARTBEAT", 0, 4),
    13: ("LEAVE_GROUP", 0, 5),
    14: ("SYNC_GROUP", 0, 5),
    15: ("DESCRIBE_GROUPS", 0, 6),
    16: ("LIST_GROUPS", 0, 5),
    17: ("SASL_HANDSHAKE", 0, 1),
    18: ("API_VERSIONS", 0, 5),
    19: ("CREATE_TOPICS", 2, 7),
    20: ("DELETE_TOPICS", 1, 6),
    21: ("DELETE_RECORDS", 0, 2),
    22: ("INIT_PRODUCER_ID", 0, 5),
    23: ("OFFSET_FOR_LEADER_EPOCH", 2, 4),
    24: ("ADD_PARTITIONS_TO_TXN", 0, 5),
    25: ("ADD_OFFSETS_TO_TXN", 0, 4),
    26: ("END_TXN", 0, 5),
    27: ("WRITE_TXN_MARKERS", 1, 2),
    28: ("TXN_OFFSET_COMMIT", 0, 6),
    29: ("DESCRIBE_ACLS", 1, 3),
    30: ("CREATE_ACLS", 1, 3),
    31: ("DELETE_ACLS", 1, 3),
    32: ("DESCRIBE_CONFIGS", 1, 4),
    33: ("ALTER_CONFIGS", 0, 2),
    34: ("ALTER_REPLICA_LOG_DIRS", 1, 2),
    35: ("DESCRIBE_LOG_DIRS", 1, 5),
    36: ("SASL_AUTHENTICATE", 0, 2),
    37: ("CREATE_PARTITIONS", 0, 3),
    38: ("CREATE_DELEGATION_TOKEN", 1, 3),
    39: ("RENEW_DELEGATION_TOKEN", 1, 2),
    40: ("EXPIRE_DELEGATION_TOKEN", 1, 2),
    41: ("DESCRIBE_DELEGATION_TOKEN", 1, 3),
    42: ("DELETE_GROUPS", 0, 3),
    43: ("ELECT_LEADERS", 0, 2),
    44: ("INCREMENTAL_ALTER_CONFIGS", 0, 1),
    45: ("ALTER_PARTITION_REASSIGNMENTS", 0, 1),
    46: ("LIST_PARTITION_REASSIGNMENTS", 0, 0),
    47: ("OFFSET_DELETE", 0, 0),
    48: ("DESCRIBE_CLIENT_QUOTAS", 0, 1),
    49: ("ALTER_CLIENT_QUOTAS", 0, 1),
    50: ("DESCRIBE_USER_SCRAM_CREDENTIALS", 0, 0),
    51: ("ALTER_USER_SCRAM_CREDENTIALS", 0, 0),
    52: ("VOTE", 0, 2),
    53: ("BEGIN_QUORUM_EPOCH", 0, 1),
    54: ("END_QUORUM_EPOCH", 0, 1),
    55: ("DESCRIBE_QUORUM", 0, 2),
    56: ("ALTER_PARTITION", 2, 3),
    57: ("UPDATE_FEATURES", 0, 2),
    58: ("ENVELOPE", 0, 0),
    59: ("FETCH_SNAPSHOT", 0, 1),
    60: ("DESCRIBE_CLUSTER", 0, 2),
    61: ("DESCRIBE_PRODUCERS", 0, 0),
    62: ("BROKER_REGISTRATION", 0, 4),
    63: ("BROKER_HEARTBEAT", 0, 2),
    64: ("UNREGISTER_BROKER", 0, 0),
    65: ("DESCRIBE_TRANSACTIONS", 0, 0),
    66: ("LIST_TRANSACTIONS", 0, 2),
    67: ("ALLOCATE_PRODUCER_IDS", 0, 0),
    68: ("CONSUMER_GROUP_HEARTBEAT", 0, 1),
    69: ("CONSUMER_GROUP_DESCRIBE", 0, 1),
    70: ("CONTROLLER_REGISTRATION", 0, 0),
    71: ("GET_TELEMETRY_SUBSCRIPTIONS", 0, 0),
    72: ("PUSH_TELEMETRY", 0, 0),
    73: ("ASSIGN_REPLICAS_TO_DIRS", 0, 0),
    74: ("LIST_CONFIG_RESOURCES", 0, 1),
    75: ("DESCRIBE_TOPIC_PARTITIONS", 0, 0),
    76: ("SHARE_GROUP_HEARTBEAT", 1, 1),
    77: ("SHARE_GROUP_DESCRIBE", 1, 1),
    78: ("SHARE_FETCH", 1, 2),
    79: ("SHARE_ACKNOWLEDGE", 1, 2),
    80: ("ADD_RAFT_VOTER", 0, 1),
    81: ("REMOVE_RAFT_VOTER", 0, 0),
    82: ("UPDATE_RAFT_VOTER", 0, 0),
    83: ("INITIALIZE_SHARE_GROUP_STATE", 0, 0),
    84: ("READ_SHARE_GROUP_STATE", 0, 0),
    85: ("WRITE_SHARE_GROUP_STATE", 0, 1),
    86: ("DELETE_SHARE_GROUP_STATE", 0, 0),
    87: ("READ_SHARE_GROUP_STATE_SUMMARY", 0, 1),
    88: ("STREAMS_GROUP_HEARTBEAT", 0, 1),
    89: ("STREAMS_GROUP_DESCRIBE", 0, 1),
    90: ("DESCRIBE_SHARE_GROUP_OFFSETS", 0, 1),
    91: ("ALTER_SHARE_GROUP_OFFSETS", 0, 0),
    92: ("DELETE_SHARE_GROUP_OFFSETS", 0, 0),
    93: ("STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE", 0, 0),
    94: ("UNREGISTER_CONTROLLER", 0, 0),
}

# Served here from lower versions on, as Kafka 3.9 did: older clients send them.
FROM_ZERO = {0, 1, 2, 8, 9, 19, 20, 23, 27, 29, 30, 31, 32, 34, 35, 38, 39, 40, 41, 56}

# What brokers of a ZooKeeper cluster say to each other; 3.9.1 was the last release to know it.
ZOOKEEPER_ERA = {
    4: ("LEADER_AND_ISR", 0, 7),
    5: ("STOP_REPLICA", 0, 4),
    6: ("UPDATE_METADATA", 0, 8),
    7: ("CONTROLLED_SHUTDOWN", 0, 3),
}


@pytest.mark.parametrize("key", KAFKA_4_4)
def test_versions_are_those_of_kafka_or_more(key: int) -> None:
    name, lowest, highest = KAFKA_4_4[key]
    result = api(key)
    assert (result.key.name, result.max_version) == (name, highest)
    assert result.min_version == (0 if key in FROM_ZERO else lowest)


@pytest.mark.parametrize("key", ZOOKEEPER_ERA)
def test_versions_of_the_zookeeper_era(key: int) -> None:
    result = api(key)
    assert (result.key.name, result.min_version, result.max_version) == ZOOKEEPER_ERA[key]


def test_no_key_is_missing() -> None:
    assert [int(key) for key in ApiKey] == list(range(95))
    assert KAFKA_4_4.keys() | ZOOKEEPER_ERA.keys() == set(range(95))


def test_from_zero_lists_only_the_differences() -> None:
    assert all(KAFKA_4_4[key][1] > 0 for key in FROM_ZERO)


@pytest.mark.parametrize("key", ApiKey)
def test_request_and_response_belong_together(key: ApiKey) -> None:
    result = api(key)
    assert result.request.INFO.kind is Kind.REQUEST
    assert result.response.INFO.kind is Kind.RESPONSE
    assert result.request.INFO.key == result.response.INFO.key == key
    assert result.request.INFO.versions == result.response.INFO.versions
    assert result.request.INFO.flexible == result.response.INFO.flexible
    assert result.request.__name__.removesuffix("Request") == result.response.__name__.removesuffix(
        "Response"
    )


def test_an_unstable_version_has_a_codec_but_is_not_offered() -> None:
    result = api(ApiKey.INIT_PRODUCER_ID)
    assert result.request.INFO.versions.high == 6
    assert result.max_version == 5


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (ApiKey.PRODUCE, 8, 1, 0),
        (ApiKey.PRODUCE, 9, 2, 1),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
        (ApiKey.API_VERSIONS, 0, 1, 0),
        (ApiKey.API_VERSIONS, 3, 2, 0),
        (ApiKey.API_VERSIONS, 99, 2, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 0, 0, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 1, 1, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 3, 2, 1),
        (ApiKey.OFFSET_DELETE, 0, 1, 0),
        (ApiKey.UNREGISTER_CONTROLLER, 0, 2, 1),
    ],
)
def test_header_versions(
    key: ApiKey, version: int, request_header: int, response_header: int
) -> None:
    assert api(key).request_header_version(version) == request_header
    assert api(key).response_header_version(version) == response_header


@pytest.mark.parametrize("key", [-1, 95, 10_000])
def test_keys_that_do_not_exist(key: int) -> None:
    with pytest.raises(UnsupportedVersionError, match=f"no API with key {key}"):
        api(key)
