"""What the audit log says about each administrative request, and what it never says (X3)."""

import json
from typing import Any

import msgspec
import pytest

from penstock.broker.audit.changed_resource import ChangedResource
from penstock.broker.audit.changes import CHANGES, without_denied
from penstock.broker.audit.events import MAX_ELEMENTS, MAX_TEXT, bounded
from penstock.core.errors import ErrorCode
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey

FAILED = int(ErrorCode.INVALID_REQUEST)
DENIED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
TOPIC, BROKER = 2, 4
ACL = {"resource_type": 2, "resource_name": "orders", "principal": "User:ann", "host": "*"}
ACL |= {"operation": 3, "permission_type": 3}
ACL_DETAILS = {
    "pattern_type": "LITERAL",
    "principal": "User:ann",
    "host": "*",
    "operation": "READ",
    "permission": "ALLOW",
}
SECRET = "ssl.keystore.password"


def failed(**fields: Any) -> dict[str, Any]:
    return {**fields, "error_code": FAILED}


CASES: list[tuple[ApiKey, dict[str, Any], dict[str, Any], list[ChangedResource]]] = [
    (
        ApiKey.CREATE_TOPICS,
        {
            "topics": [
                {
                    "name": "orders",
                    "num_partitions": -1,
                    "replication_factor": -1,
                    "assignments": [{"partition_index": 0, "broker_ids": [1, 2]}],
                    "configs": [{"name": "retention.ms", "value": "5"}],
                },
                {"name": "bad", "num_partitions": 2, "replication_factor": 9},
            ]
        },
        {"topics": [{"name": "orders"}, failed(name="bad")]},
        [
            ChangedResource(
                "TOPIC",
                "orders",
                {
                    "partitions": -1,
                    "replication_factor": -1,
                    "assignments": {"0": [1, 2]},
                    "configs": {"retention.ms": "5"},
                },
            ),
            ChangedResource("TOPIC", "bad", {"partitions": 2, "replication_factor": 9}, FAILED),
        ],
    ),
    (
        ApiKey.DELETE_TOPICS,
        {"topics": [{"name": "orders"}, {"name": "other"}]},
        {"responses": [{"name": "orders"}, failed(name="other")]},
        [ChangedResource("TOPIC", "orders", {}), ChangedResource("TOPIC", "other", {}, FAILED)],
    ),
    (
        ApiKey.CREATE_PARTITIONS,
        {"topics": [{"name": "orders", "count": 4, "assignments": [{"broker_ids": [1]}]}]},
        {"results": [failed(name="orders")]},
        [ChangedResource("TOPIC", "orders", {"partitions": 4, "assignments": [[1]]}, FAILED)],
    ),
    (
        ApiKey.DELETE_RECORDS,
        {
            "topics": [
                {
                    "name": "orders",
                    "partitions": [
                        {"partition_index": 0, "offset": 7},
                        {"partition_index": 1, "offset": -1},
                    ],
                }
            ]
        },
        {
            "topics": [
                {
                    "name": "orders",
                    "partitions": [{"partition_index": 0}, failed(partition_index=1)],
                }
            ]
        },
        [
            ChangedResource("TOPIC", "orders", {"before_offsets": {"0": 7}}),
            ChangedResource("TOPIC", "orders", {"before_offsets": {"1": -1}}, FAILED),
        ],
    ),
    (
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        {
            "topics": [
                {
                    "name": "orders",
                    "partitions": [
                        {"partition_index": 0, "replicas": [2, 3]},
                        {"partition_index": 1, "replicas": None},
                    ],
                }
            ]
        },
        {
            "responses": [
                {
                    "name": "orders",
                    "partitions": [{"partition_index": 0}, {"partition_index": 1}],
                }
            ]
        },
        [ChangedResource("TOPIC", "orders", {"replicas": {"0": [2, 3], "1": "cancelled"}})],
    ),
    (
        ApiKey.ELECT_LEADERS,
        {"election_type": 1, "topic_partitions": [{"topic": "orders", "partitions": [0]}]},
        {
            "replica_election_results": [
                {"topic": "orders", "partition_result": [failed(partition_id=0)]}
            ]
        },
        [ChangedResource("TOPIC", "orders", {"elections": {"0": "unclean"}}, FAILED)],
    ),
    (
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        {"dirs": [{"path": "/b", "topics": [{"name": "orders", "partitions": [3]}]}]},
        {"results": [{"topic_name": "orders", "partitions": [{"partition_index": 3}]}]},
        [ChangedResource("TOPIC", "orders", {"directories": {"3": "/b"}})],
    ),
    (
        ApiKey.ALTER_CONFIGS,
        {
            "resources": [
                {
                    "resource_type": BROKER,
                    "resource_name": "1",
                    "configs": [
                        {"name": SECRET, "value": "hunter2"},
                        {"name": "num.io.threads", "value": "8"},
                        {"name": "unknown.setting", "value": "hunter2"},
                    ],
                }
            ]
        },
        {"responses": [{"resource_type": BROKER, "resource_name": "1"}]},
        [
            ChangedResource(
                "BROKER",
                "1",
                {
                    "replaced": True,
                    "configs": {
                        SECRET: "(hidden)",
                        "num.io.threads": "8",
                        "unknown.setting": "(hidden)",
                    },
                },
            )
        ],
    ),
    (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        {
            "resources": [
                {
                    "resource_type": TOPIC,
                    "resource_name": "orders",
                    "configs": [
                        {"name": "retention.ms", "config_operation": 0, "value": "1"},
                        {"name": "segment.ms", "config_operation": 1, "value": None},
                        {"name": "cleanup.policy", "config_operation": 2, "value": "compact"},
                    ],
                }
            ]
        },
        {"responses": [failed(resource_type=TOPIC, resource_name="orders")]},
        [
            ChangedResource(
                "TOPIC",
                "orders",
                {
                    "set": {"retention.ms": "1"},
                    "delete": {"segment.ms": None},
                    "append": {"cleanup.policy": "compact"},
                },
                FAILED,
            )
        ],
    ),
    (
        ApiKey.ALTER_CLIENT_QUOTAS,
        {
            "entries": [
                {
                    "entity": [
                        {"entity_type": "user", "entity_name": "ann"},
                        {"entity_type": "client-id", "entity_name": None},
                    ],
                    "ops": [
                        {"key": "producer_byte_rate", "value": 10.0},
                        {"key": "request_percentage", "remove": True},
                    ],
                }
            ]
        },
        {"entries": [{}]},
        [
            ChangedResource(
                "QUOTA",
                "user=ann,client-id=<default>",
                {"quotas": {"producer_byte_rate": 10.0, "request_percentage": None}},
            )
        ],
    ),
    (
        ApiKey.UPDATE_FEATURES,
        {"feature_updates": [{"feature": "group.version", "max_version_level": 1}]},
        {"error_code": FAILED},
        [ChangedResource("FEATURE", "group.version", {"level": 1}, FAILED)],
    ),
    (
        ApiKey.CREATE_ACLS,
        {"creations": [ACL]},
        {"results": [{}]},
        [ChangedResource("TOPIC", "orders", {"acl": ACL_DETAILS})],
    ),
    (
        ApiKey.DELETE_ACLS,
        {"filters": [{"resource_type_filter": 2, "resource_name_filter": "orders"}]},
        {"filter_results": [{"matching_acls": [ACL]}]},
        [ChangedResource("TOPIC", "orders", {"acl": ACL_DETAILS})],
    ),
    (
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        {
            "deletions": [{"name": "bob", "mechanism": 1}],
            "upsertions": [
                {
                    "name": "ann",
                    "mechanism": 2,
                    "iterations": 4096,
                    "salt": b"hunter2",
                    "salted_password": b"hunter2",
                }
            ],
        },
        {"results": [failed(user="bob"), {"user": "ann"}]},
        [
            ChangedResource("USER", "bob", {"deleted": "SCRAM-SHA-256"}, FAILED),
            ChangedResource("USER", "ann", {"set": "SCRAM-SHA-512", "iterations": 4096}),
        ],
    ),
    (
        ApiKey.CREATE_DELEGATION_TOKEN,
        {"renewers": [{"principal_type": "User", "principal_name": "bob"}]},
        {
            "principal_type": "User",
            "principal_name": "ann",
            "token_id": "t1",
            "hmac": b"hunter2",
            "expiry_timestamp_ms": 5,
            "max_timestamp_ms": 9,
        },
        [
            ChangedResource(
                "DELEGATION_TOKEN",
                "t1",
                {"owner": "User:ann", "renewers": ["User:bob"], "expiry_ms": 5, "max_ms": 9},
            )
        ],
    ),
    (
        ApiKey.RENEW_DELEGATION_TOKEN,
        {"hmac": b"hunter2", "renew_period_ms": 4},
        {"expiry_timestamp_ms": 8},
        [ChangedResource("DELEGATION_TOKEN", "", {"period_ms": 4, "expiry_ms": 8})],
    ),
    (
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        {"hmac": b"hunter2", "expiry_time_period_ms": -1},
        {"error_code": FAILED},
        [ChangedResource("DELEGATION_TOKEN", "", {"period_ms": -1, "expiry_ms": 0}, FAILED)],
    ),
    (
        ApiKey.DELETE_GROUPS,
        {"groups_names": ["a", "b"]},
        {"results": [{"group_id": "a"}, failed(group_id="b")]},
        [ChangedResource("GROUP", "a", {}), ChangedResource("GROUP", "b", {}, FAILED)],
    ),
    (
        ApiKey.OFFSET_DELETE,
        {
            "group_id": "g",
            "topics": [
                {"name": "orders", "partitions": [{"partition_index": 0}, {"partition_index": 1}]}
            ],
        },
        {
            "topics": [
                {
                    "name": "orders",
                    "partitions": [{"partition_index": 0}, failed(partition_index=1)],
                }
            ]
        },
        [
            ChangedResource("GROUP", "g", {"deleted_offsets": {"orders": [0]}}),
            ChangedResource("GROUP", "g", {"deleted_offsets": {"orders": [1]}}, FAILED),
        ],
    ),
    (
        ApiKey.WRITE_TXN_MARKERS,
        {
            "markers": [
                {
                    "producer_id": 7,
                    "producer_epoch": 1,
                    "topics": [{"name": "orders", "partition_indexes": [0, 1]}],
                }
            ]
        },
        {
            "markers": [
                {
                    "producer_id": 7,
                    "topics": [
                        {
                            "name": "orders",
                            "partitions": [{"partition_index": 0}, {"partition_index": 1}],
                        }
                    ],
                }
            ]
        },
        [
            ChangedResource(
                "TOPIC",
                "orders",
                {
                    "marker": "abort",
                    "producer_id": 7,
                    "producer_epoch": 1,
                    "partitions": [0, 1],
                },
            )
        ],
    ),
]


@pytest.mark.parametrize(
    ("key", "request_fields", "response_fields", "expected"),
    CASES,
    ids=[case[0].name for case in CASES],
)
def test_a_change_is_described(
    key: ApiKey,
    request_fields: dict[str, Any],
    response_fields: dict[str, Any],
    expected: list[ChangedResource],
) -> None:
    types = api(key)
    body = msgspec.convert(request_fields, types.request)
    response = msgspec.convert(response_fields, types.response)
    described = list(CHANGES[key](body, response))
    assert described == expected
    assert "hunter2" not in json.dumps(described)
    # If the whole request fails, there is no response, and each resource has its line as well.
    unanswered = list(CHANGES[key](body, types.response()))
    assert unanswered
    assert "hunter2" not in json.dumps(unanswered)


def test_every_kind_of_change_has_a_case() -> None:
    assert {case[0] for case in CASES} == CHANGES.keys()


def test_denied_changes_have_no_line() -> None:
    resources = [ChangedResource("TOPIC", "a", {}, DENIED), ChangedResource("TOPIC", "b", {})]
    assert [resource.name for resource in without_denied(resources)] == ["b"]


def test_details_are_bounded() -> None:
    details = {
        "text": "x" * (MAX_TEXT + 1),
        "list": list(range(MAX_ELEMENTS + 5)),
        "mapping": {str(number): {"deep": "y" * 10_000} for number in range(MAX_ELEMENTS + 5)},
    }
    result = bounded(details)
    assert result["text"] == "x" * MAX_TEXT + "…"
    assert result["list"] == [*range(MAX_ELEMENTS), "… 5 more"]
    assert result["mapping"]["0"] == {"deep": "y" * MAX_TEXT + "…"}
    assert len(result["mapping"]) == MAX_ELEMENTS + 1
    assert result["mapping"]["…"] == "5 more"
    assert bounded({"name": None, "count": 3}) == {"name": None, "count": 3}
