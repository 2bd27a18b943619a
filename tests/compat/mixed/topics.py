"""Topics created, grown, altered and deleted, as every broker sees them."""

import time
from collections.abc import Mapping

from penstock.client.admin.model_configs import ConfigOp, ConfigResource
from penstock.client.admin.model_topics import NewPartitions
from penstock.core.errors import ErrorCode
from penstock.protocol.enums import ConfigOpType, ConfigResourceType
from penstock.records.record import Record
from penstock.storage.checkpoint.checkpoint_files import uuid_text
from tests.compat.mixed.view import KAFKA, WAIT_S, MixedView
from tests.support.history.cluster import BROKER_IDS
from tests.support.protocol.admin import TOPIC, describe, try_produce

REPLICAS = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
NEW_PARTITION = (2, 1, 3)
CREATED = {"cleanup.policy": "compact", "retention.ms": "86400000", "min.insync.replicas": "1"}
ALTERED = {"cleanup.policy": "delete", "retention.ms": "3600000", "min.insync.replicas": "1"}
MAX_MESSAGE_BYTES = 5000


def change_topics(view: MixedView, name: str) -> None:
    """A topic is created, gets a partition and other settings, which every leader obeys."""
    view.create_topic(name, *REPLICAS, configs=CREATED)
    check_files(view, name, len(REPLICAS))
    wait_for_settings(view, name, CREATED)

    view.admin.create_partitions({name: NewPartitions(4, [NEW_PARTITION])})
    view.wait_for_partitions(name, *REPLICAS, NEW_PARTITION)
    check_files(view, name, 4)

    topic = ConfigResource(ConfigResourceType.TOPIC, name)
    changes = [
        ConfigOp("cleanup.policy", None, ConfigOpType.DELETE),
        ConfigOp("retention.ms", ALTERED["retention.ms"]),
        ConfigOp("max.message.bytes", str(MAX_MESSAGE_BYTES)),
    ]
    view.admin.incremental_alter_configs({topic: changes})
    altered = {**ALTERED, "max.message.bytes": str(MAX_MESSAGE_BYTES)}
    wait_for_settings(view, name, altered)
    for number, replicas in enumerate(REPLICAS):
        wait_for_refusal(view, name, number, replicas[0])


def check_files(view: MixedView, name: str, partitions: int) -> None:
    """Every broker has the directories, with the topic id that every broker's metadata name."""
    for broker_id in BROKER_IDS:
        topic_id = view.describe(broker_id, name).topic_id
        for number in range(partitions):
            path = view.replica_directory(broker_id, name, number) / "partition.metadata"
            view.wait_until(path.exists, f"{path}")
            version, stored = path.read_text().splitlines()
            assert (version, stored) == ("version: 0", f"topic_id: {uuid_text(topic_id)}")


def wait_for_settings(view: MixedView, name: str, expected: Mapping[str, str]) -> None:
    """Waits until every broker describes these settings: brokers read them from notifications."""

    def problem() -> str:
        for broker_id in BROKER_IDS:
            with view.connected(broker_id) as client:
                entries = describe(client, TOPIC, name, list(expected))
            values = {key: entry.value for key, entry in entries.items()}
            if values != expected:
                return f"broker {broker_id} has {values}"
        return ""

    view.cluster.poll(problem, WAIT_S)


def wait_for_refusal(view: MixedView, name: str, partition: int, leader: int) -> None:
    """Waits until the leader refuses a record that is larger than the topic allows."""
    record = Record(0, int(time.time() * 1000), b"key", bytes(2 * MAX_MESSAGE_BYTES))

    def is_refused() -> bool:
        with view.connected(leader) as client:
            response = try_produce(client, name, record, partition=partition)
        return ErrorCode(response.error_code) is ErrorCode.MESSAGE_TOO_LARGE

    view.wait_until(is_refused, f"refusal by broker {leader}")


def delete_topic_while_a_broker_is_down(view: MixedView, name: str, controller: int) -> None:
    """The deletion ends when the broker returns, which is not of the controller's kind."""
    absent = next(i for i in BROKER_IDS if (i == KAFKA) != (controller == KAFKA))
    view.create_topic(name, *REPLICAS)
    kept = f"{name}-kept"
    view.create_topic(kept, *REPLICAS)
    view.cluster.stop(absent)
    view.admin.delete_topics([name])
    others = [broker_id for broker_id in BROKER_IDS if broker_id != absent]
    for broker_id in others:
        wait_for_absence(view, name, broker_id)
    assert view.replica_directory(absent, name, 0).is_dir()
    view.cluster.start(absent)
    view.cluster.wait_until_ready()
    wait_for_absence(view, name, absent)
    paths = (f"/admin/delete_topics/{name}", f"/brokers/topics/{name}", f"/config/topics/{name}")
    view.wait_until(lambda: not any(map(view.zookeeper.exists, paths)), "end of the deletion")
    for broker_id in BROKER_IDS:
        assert view.replica_directory(broker_id, kept, 0).is_dir()
    view.cluster.wait_until_in_sync()


def wait_for_absence(view: MixedView, name: str, broker_id: int) -> None:
    def is_absent() -> bool:
        code = ErrorCode(view.describe(broker_id, name).error_code)
        directories = [view.replica_directory(broker_id, name, number) for number in range(3)]
        return code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not any(
            directory.exists() for directory in directories
        )

    view.wait_until(is_absent, f"absence of {name} on broker {broker_id}")
