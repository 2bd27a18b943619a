"""All metadata in one file: every kind of record survives it; other files are refused."""

import json
from uuid import UUID

import pytest

from penstock.cluster.metadata_file import decode_backup, encode_backup
from penstock.controller.metadata import (
    AccessControlEntry,
    AclRecord,
    Assignment,
    ClusterIdRecord,
    ConfigRecord,
    ControllerEpochRecord,
    FeaturesRecord,
    LoginSecretRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    TopicDeletionRecord,
    TopicRecord,
)
from penstock.core.errors import KafkaStorageError

RECORDS: list[Record] = [
    ClusterIdRecord("the-cluster"),
    LoginSecretRecord(b"secret"),
    ControllerEpochRecord(7),
    FeaturesRecord({"group.version": 1}, 0),
    ProducerIdsRecord(1, 1000, 1999),
    TopicRecord("t", UUID(int=77), {0: Assignment((1, 2), adding=(2,))}),
    PartitionRecord("t", 0, 1, 5, (1,), 7, 0, eligible_leader_replicas=(2,)),
    TopicDeletionRecord("t"),
    ConfigRecord((("users", "a/b"), ("clients", "<default>")), {"request_percentage": "12.5"}),
    AclRecord(
        "TOPIC", "PREFIXED", "t/x", frozenset([AccessControlEntry("User:a", "*", "READ", "DENY")])
    ),
]


def test_every_record_survives() -> None:
    backup = decode_backup(encode_backup(RECORDS, 123), "file")
    assert backup.records == RECORDS
    assert (backup.cluster_id, backup.created_ms) == ("the-cluster", 123)


def test_the_nodes_have_the_paths_and_the_content_of_zookeeper() -> None:
    document = json.loads(encode_backup(RECORDS, 123))
    assert document["format"] == "penstock-metadata"
    assert document["version"] == 1
    assert document["nodes"]["/cluster/id"] == {"version": "1", "id": "the-cluster"}
    assert document["nodes"]["/admin/delete_topics/t"] is None


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "f is not a backup of metadata: Input data was truncated"),
        (b"\xff", "f is not a backup of metadata"),
        (b'{"version":1}', "missing required field `format`"),
        (b'{"format":"other","version":1}', "its format is 'other', not 'penstock-metadata'"),
        (b'{"format":"penstock-metadata","version":2}', "has version 2, this release reads"),
        (b'{"format":"penstock-metadata","version":1}', "missing required field `cluster_id`"),
        (
            encode_backup(RECORDS, 1).replace(b'"cluster_id": "the', b'"cluster_id": "an'),
            "its cluster id and that of /cluster/id differ",
        ),
        (encode_backup(RECORDS, 1).replace(b'"isr"', b'"asr"'), "/brokers/topics/t/partitions/0"),
        (encode_backup(RECORDS, 1).replace(b'"/feature"', b'"/future"'), "/future"),
    ],
)
def test_other_files_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(KafkaStorageError) as raised:
        decode_backup(data, "f")
    assert problem in raised.value.message
    assert "\n" not in raised.value.message
