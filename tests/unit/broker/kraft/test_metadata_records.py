"""The metadata of a cluster as records of a KRaft controller, and back (S1, X2, X3, X4)."""

from pathlib import Path
from uuid import UUID

from penstock.broker.kraft.metadata_image import KraftImage
from penstock.broker.kraft.metadata_log import read_metadata
from penstock.broker.kraft.metadata_records import to_kraft_records
from penstock.broker.kraft.snapshot import build_snapshot, snapshot_name
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    AccessControlEntry,
    AclRecord,
    Assignment,
    ConfigRecord,
    DelegationTokenRecord,
    FeaturesRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Put,
    Record,
    TopicDeletionRecord,
    TopicRecord,
)
from penstock.core.ids import TopicPartition
from penstock.protocol.stored import cluster_metadata as kraft
from penstock.security.scram_credential import ScramCredential

T0 = TopicPartition("t", 0)
ID, DIRECTORY = UUID(int=77), UUID(int=88)
TOPIC = TopicRecord("t", ID, {0: Assignment((1, 2))})
CREDENTIAL = ScramCredential(b"salt", b"stored", b"server", 4096).to_text()
USER = (("users", "ann"),)
EVERYTHING: list[Record] = [
    FeaturesRecord({"group.version": 1, "transaction.version": 2}, 0),
    ProducerIdsRecord(1, 1000, 1999),
    TOPIC,
    PartitionRecord("t", 0, 1, 5, (1, 2), 0, 0),
    ConfigRecord((("topics", "t"),), {"cleanup.policy": "compact"}),
    ConfigRecord((("brokers", "<default>"),), {"message.max.bytes": "99"}),
    ConfigRecord(USER, {"SCRAM-SHA-256": CREDENTIAL, "producer_byte_rate": "1000"}),
    ConfigRecord((("users", "ann"), ("clients", "<default>")), {"request_percentage": "12.5"}),
    AclRecord(
        "TOPIC", "PREFIXED", "t", frozenset([AccessControlEntry("User:ann", "*", "READ", "ALLOW")])
    ),
    DelegationTokenRecord("id", "User:ann", "User:bob", ("User:carl", "User:dora"), 1, 9, 5),
]


def image_of(*records: Record) -> ClusterImage:
    image = ClusterImage()
    image.apply(map(Put, records))
    return image


def test_a_snapshot_has_everything(tmp_path: Path) -> None:
    image = image_of(*EVERYTHING)
    exported = to_kraft_records(image, {(1, T0): DIRECTORY})
    assert exported.omissions == []
    snapshot = b"".join(build_snapshot(exported.records, timestamp=1, epoch=1))
    (tmp_path / snapshot_name(len(exported.records), 1)).write_bytes(snapshot)
    taken_over = KraftImage()
    for record in read_metadata(tmp_path):
        taken_over.apply(record)
    restored = ClusterImage()
    restored.apply(taken_over.changes(restored, 1, {T0}))
    assert restored.topics == image.topics
    assert restored.configs == image.configs
    assert restored.acls == image.acls
    assert restored.delegation_tokens == image.delegation_tokens
    assert restored.features is not None
    assert restored.features.levels == {"group.version": 1, "transaction.version": 2}
    assert taken_over.last_producer_id == 1999


def test_no_partition_has_a_leader_before_its_broker_registers() -> None:
    records = to_kraft_records(image_of(*EVERYTHING), {(1, T0): DIRECTORY}).records
    [partition] = [record for record in records if isinstance(record, kraft.PartitionRecord)]
    assert (partition.leader, partition.leader_epoch, partition.isr) == (-1, 5, [1, 2])
    assert partition.directories == [DIRECTORY, UUID(int=0)], "broker 2 knows its own"


def test_eligible_leader_replicas_replace_an_empty_isr() -> None:
    state = PartitionRecord("t", 0, -1, 5, (), 0, 0, eligible_leader_replicas=(2,))
    exported = to_kraft_records(image_of(TOPIC, state), {})
    [partition] = [r for r in exported.records if isinstance(r, kraft.PartitionRecord)]
    assert partition.isr == [2]
    assert exported.omissions == []


def test_what_kafka_cannot_take_over_is_named() -> None:
    exported = to_kraft_records(
        image_of(
            TOPIC,
            TopicRecord("deleted", UUID(int=1), {0: Assignment((1,))}),
            TopicDeletionRecord("deleted"),
            PartitionRecord("t", 0, 1, 5, (1,), 0, 0, eligible_leader_replicas=(2,)),
            FeaturesRecord({"own.version": 3}, 0),
            ConfigRecord((("topics", "t"),), {"message.format.version": "2.8", "segment.ms": "9"}),
            ConfigRecord((("topics", "missing"),), {"segment.ms": "9"}),
            ConfigRecord(USER, {"shoe_size": "42"}),
        ),
        {},
    )
    assert exported.omissions == [
        "level 3 of feature own.version: set it in Kafka if it has it",
        "topic deleted: its deletion was requested",
        "eligible leader replicas of t-0: its ISR is kept",
        "settings of topic missing: there is no such topic",
        "message.format.version=2.8 of topics t: Kafka 4 has no such setting",
        "shoe_size of users ann: neither a quota nor a credential",
    ]
    kinds = [type(record).__name__ for record in exported.records]
    assert kinds == ["FeatureLevelRecord", "TopicRecord", "PartitionRecord", "ConfigRecord"]


def test_every_node_writes_the_same_ids_of_acls() -> None:
    first, second = (to_kraft_records(image_of(*EVERYTHING), {}).records for _ in range(2))
    assert first == second
