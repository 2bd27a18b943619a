"""Registration of brokers, controller failover, and recovery of topics from log directories."""

from uuid import UUID

import pytest
from msgspec.structs import replace

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    BrokerKey,
    Change,
    ConfigRecord,
    Delete,
    FeaturesRecord,
    Put,
)
from penstock.controller.partition_state_machine import ElectionRules
from penstock.controller.producer_ids import next_block
from penstock.controller.topic_recovery import (
    RecoveredLog,
    recover_producer_ids,
    recover_topics,
)
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from tests.support.cluster import images
from tests.support.cluster.controller_start import become_controller, register_as_controller
from tests.support.cluster.images import (
    CLEAN,
    add_topic,
    broker,
    check_committable,
    ids,
    image_of,
    set_state,
    state,
)

SUPPORTED = {"group.version": (0, 1), "transaction.version": (0, 2)}


def start(
    image: ClusterImage,
    broker_id: int = 0,
    *,
    epoch: int = 0,
    features: dict[str, int] | None = None,
    rules: ElectionRules = CLEAN,
) -> list[Change]:
    changes = register_as_controller(
        image,
        replace(broker(broker_id, epoch=epoch), features=SUPPORTED),
        cluster_id="cluster",
        login_secret=b"secret",
        features={"group.version": 1} if features is None else features,
        now_ms=5,
        rules=rules,
    )
    check_committable(changes)
    image.apply(changes)
    return changes


def stop(image: ClusterImage, broker_id: int = 0) -> None:
    """What an ephemeral node does when the session is over: the controller decides nothing."""
    image.apply([Delete(BrokerKey(broker_id))])


def test_new_store() -> None:
    image = ClusterImage()
    start(image)
    assert image.cluster_id == "cluster"
    assert (image.controller_id, image.controller_epoch) == (0, 1)
    assert image.features is not None
    assert (image.features.levels, image.features.epoch) == ({"group.version": 1}, 0)


def test_restart_of_one_node() -> None:
    """R7: the partitions are led again, each changed once, in a new leader epoch."""
    image = ClusterImage()
    start(image)
    add_topic(image, "t", (0,), (0,))
    for session in (1, 2, 3):
        stop(image)
        changes = start(image)
        partitions = [c for c in changes if isinstance(c, Put) and c.record.key in image.partitions]
        assert len(partitions) == 2
        for partition in image.partitions_of("t"):
            assert (partition.leader, partition.isr) == (0, (0,))
            assert (partition.leader_epoch, partition.partition_epoch) == (session, session)
            assert partition.controller_epoch == image.controller_epoch == session + 1


def test_restart_after_a_session_that_was_never_ended() -> None:
    image = ClusterImage()
    start(image)
    add_topic(image, "t", (0,))
    start(image)
    assert (state(image, "t").leader, state(image, "t").leader_epoch) == (0, 1)


def test_restart_keeps_cluster_id_and_features() -> None:
    image = ClusterImage()
    start(image)
    image.cluster_id = "first"
    start(image, features={"group.version": 0, "transaction.version": 2})
    assert image.cluster_id == "first"
    assert image.features is not None
    assert (image.features.levels, image.features.epoch) == ({"group.version": 1}, 0)


def test_levels_that_the_broker_does_not_support() -> None:
    """E6: it does not start, and changes nothing."""
    image = ClusterImage()
    with pytest.raises(KafkaError, match=r"group\.version at level 2"):
        start(image, features={"group.version": 2})
    image.apply([Put(FeaturesRecord({"transaction.version": 3}, 4))])
    with pytest.raises(KafkaError, match=r"transaction\.version at level 3") as caught:
        start(image)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert image.brokers == {}


def test_the_store_may_count_registrations() -> None:
    image = ClusterImage()
    start(image, epoch=400)
    assert image.brokers[0].epoch == 400


def test_first_of_several_brokers_to_come_back() -> None:
    """R5, R7: it leads what it was in sync with; the others must catch up first."""
    image = image_of(0, 1, 2)
    add_topic(image, "t", (1, 0, 2), (1, 2, 0), (2, 1))
    set_state(image, "t", 1, (1, 2), partition=1)
    for broker_id in (0, 1, 2):
        stop(image, broker_id)
    start(image, 0)
    assert [(r.leader, r.isr) for r in image.partitions_of("t")] == [
        (0, (0,)),
        (-1, (1, 2)),
        (-1, (2, 1)),
    ]


def test_unclean_start() -> None:
    image = image_of(0, 1)
    add_topic(image, "t", (1, 0))
    set_state(image, "t", 1, (1,))
    stop(image, 0)
    stop(image, 1)
    start(image, 0, rules=images.UNCLEAN)
    assert (state(image, "t").leader, state(image, "t").isr) == (0, (0,))


def test_another_broker_takes_over_as_controller() -> None:
    """R6, R7: failures that nobody handled are handled in the new controller epoch."""
    image = image_of(0, 1, 2)
    add_topic(image, "t", (0, 1), (1, 2))
    untouched = state(image, "t", 1)
    stop(image, 0)
    changes = become_controller(image, 2, 9, CLEAN)
    check_committable(changes)
    image.apply(changes)
    assert (image.controller_id, image.controller_epoch) == (2, 8)
    partition = state(image, "t")
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1,), 1)
    assert partition.controller_epoch == 8
    assert state(image, "t", 1) is untouched


# --- adoption

T_ID = UUID(int=0x777)


def test_log_directories_become_topics() -> None:
    """S1: ids stay, gaps are filled, epochs rise above those in the logs."""
    image = image_of(4)
    logs = {
        TopicPartition("t", 2): {4: RecoveredLog(T_ID, 6)},
        TopicPartition("t", 0): {4: RecoveredLog()},
        TopicPartition("u", 0): {4: RecoveredLog()},
    }
    changes = recover_topics(image, logs, ids(), {})
    check_committable(changes)
    image.apply(changes)
    assert image.topics["t"].topic_id == T_ID
    assert image.topics["u"].topic_id == UUID(int=0x1001)
    assert [(r.leader, r.isr, r.leader_epoch) for r in image.partitions_of("t")] == [
        (4, (4,), 1),
        (4, (4,), 0),
        (4, (4,), 7),
    ]
    assert [r.partition_epoch for r in image.partitions_of("t")] == [0, 0, 0]


@pytest.mark.parametrize(
    ("logs", "replicas"),
    [
        pytest.param([(2, 90), (3, 80), (2, 99)], (1, 2, 0), id="the latest epoch"),
        pytest.param([(3, 80), (3, 81), (2, 99)], (1, 2, 0), id="then the longest log"),
        pytest.param([(3, 80), (3, 80), (3, 80)], (1, 2, 0), id="equal logs share the leaders"),
        pytest.param([(3, 80), (2, 80), (3, 80)], (2, 1, 0), id="only complete logs lead"),
    ],
)
def test_the_replica_with_everything_that_was_committed_leads_a_recovered_partition(
    logs: list[tuple[int, int]], replicas: tuple[int, ...]
) -> None:
    """R4: the ISR is not known, so that no other replica is in sync at first."""
    image = image_of(0, 1, 2)
    found = {broker: RecoveredLog(T_ID, *log) for broker, log in enumerate(logs)}
    changes = recover_topics(image, {TopicPartition("t", 1): found}, ids(), {})
    check_committable(changes)
    image.apply(changes)
    assert image.topics["t"].assignments[1].replicas == replicas
    partition = state(image, "t", 1)
    assert (partition.leader, partition.isr, partition.leader_epoch) == (
        replicas[0],
        replicas[:1],
        4,
    )


def test_recovered_topics_keep_everything_until_their_settings_are_known() -> None:
    image = image_of(0)
    logs = {
        TopicPartition("t", 0): {0: RecoveredLog()},
        TopicPartition("__consumer_offsets", 3): {0: RecoveredLog()},
    }
    internal = {"__consumer_offsets": {"cleanup.policy": "compact"}}
    image.apply(recover_topics(image, logs, ids(), internal))
    assert image.config("topics", "t") == {"cleanup.policy": ""}
    assert image.config("topics", "__consumer_offsets") == {"cleanup.policy": "compact"}


def test_recovered_topics_have_the_settings_that_were_stored_before() -> None:
    image = image_of(0)
    image.apply(
        [
            Put(ConfigRecord((("topics", "t"),), {"cleanup.policy": "compact", "segment.ms": "9"})),
            Put(ConfigRecord((("topics", "u"),), {"segment.ms": "9"})),
        ]
    )
    logs = {TopicPartition(topic, 0): {0: RecoveredLog()} for topic in ("t", "u")}
    image.apply(recover_topics(image, logs, ids(), {}))
    assert image.config("topics", "t") == {"cleanup.policy": "compact", "segment.ms": "9"}
    assert image.config("topics", "u") == {"cleanup.policy": "", "segment.ms": "9"}


def test_producer_ids_in_the_logs_are_not_allocated_again() -> None:
    """P3."""
    image = image_of(0)
    assert recover_producer_ids(image, 0, -1) == []
    image.apply(recover_producer_ids(image, 0, 4711))
    _, block, _ = next_block(image, 0)
    assert block.block_start == 4712
    assert recover_producer_ids(image, 0, 9999) == [], "the store knows better"


def test_what_the_store_knows_is_left_alone() -> None:
    image = image_of(0)
    add_topic(image, "t", (0,))
    names = (TopicPartition("t", 5), TopicPartition("__cluster_metadata", 0))
    assert recover_topics(image, {key: {0: RecoveredLog()} for key in names}, ids(), {}) == []


def test_log_directories_that_contradict_each_other() -> None:
    image = image_of(0)
    add_topic(image, "old", (0,), topic_id=T_ID)
    two = {
        TopicPartition("t", 0): {0: RecoveredLog(UUID(int=888))},
        TopicPartition("t", 1): {0: RecoveredLog(UUID(int=999))},
    }
    for logs in (two, {TopicPartition("t", 0): {0: RecoveredLog(T_ID)}}):
        with pytest.raises(KafkaError) as caught:
            recover_topics(image, logs, ids(), {})
        assert caught.value.code == ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_log_directory_with_an_absurd_partition_number() -> None:
    logs = {TopicPartition("t", 2**31 - 1): {0: RecoveredLog()}}
    with pytest.raises(KafkaError, match="t-2147483647") as caught:
        recover_topics(image_of(0), logs, ids(), {})
    assert caught.value.code == ErrorCode.INVALID_PARTITIONS
