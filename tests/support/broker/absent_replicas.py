"""Topics with a replica on a broker that does not exist, for tests on one node."""

from msgspec.structs import replace

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Assignment, Put
from penstock.controller.result import ControllerResult
from penstock.core.ids import TopicPartition
from tests.support.broker.in_process import RunningBroker

ABSENT = 99


def add_absent_replica(broker: RunningBroker, topic: str) -> None:
    """Adds a second replica to partition 0 that is not in sync, because its broker is down."""

    def add(image: ClusterImage) -> ControllerResult[None]:
        record = image.topics[topic]
        state = image.partitions[TopicPartition(topic, 0)]
        replicas = Assignment((*record.assignments[0].replicas, ABSENT))
        return ControllerResult(
            [
                Put(replace(record, assignments={**record.assignments, 0: replicas})),
                Put(
                    replace(
                        state,
                        leader_epoch=state.leader_epoch + 1,
                        partition_epoch=state.partition_epoch + 1,
                    )
                ),
            ],
            None,
        )

    broker.wait(lambda running: running.controller.run(add))
