"""What must hold in a simulated cluster, after every step and when the faults have ended."""

from collections.abc import Iterable, Mapping

from penstock.core.ids import TopicPartition
from penstock.storage.log.log import Log
from tests.sim.cluster.cluster_broker import SimBroker
from tests.sim.cluster.cluster_clients import TOPIC
from tests.support.faults.simulated_broker import read_records_of


class ClusterChecks:
    """Remembers who led and controlled in which epoch."""

    def __init__(self) -> None:
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._controllers: dict[int, int] = {}

    def step(self, brokers: Iterable[SimBroker]) -> None:
        """One leader for each leader epoch, one controller for each controller epoch."""
        for broker in brokers:
            if broker.app._parts is None or not broker.process.alive:
                continue
            controller = broker.app._controller.active
            if controller is not None and controller._is_started:
                epoch = controller.image.controller_epoch
                owner = self._controllers.setdefault(epoch, broker.broker_id)
                assert owner == broker.broker_id, (
                    f"{owner} and {broker.broker_id} are controllers in epoch {epoch}"
                )
            for replica in broker.app.broker.replicas:
                partition = replica.partition
                if partition.is_leader:
                    key = (partition.key, partition.leader_epoch)
                    leader = self._leaders.setdefault(key, broker.broker_id)
                    assert leader == broker.broker_id, (
                        f"{leader} and {broker.broker_id} lead {key[0]} in epoch {key[1]}"
                    )


def unsettled(
    brokers: Mapping[int, SimBroker], number: int, partitions: int, *, is_quiet: bool = False
) -> str:
    """Returns what is not as it should be when nothing disturbs the cluster; empty if all is.

    `is_quiet` means that nobody produces, so that all replicas must be equal.
    """
    if len(brokers) < number:
        return f"only the brokers {sorted(brokers)} run"
    for partition in range(partitions):
        leaders = []
        for broker in brokers.values():
            if not broker.is_up:
                return f"broker {broker.broker_id} is starting"
            replica = broker.app.broker.replicas.by_topic.get(TOPIC, {}).get(partition)
            if replica is None:
                return f"broker {broker.broker_id} has no replica of {partition}"
            if replica.partition.is_leader:
                leaders.append(replica)
        if len(leaders) != 1:
            return f"{len(leaders)} brokers lead {partition}"
        leader = leaders[0]
        if len(leader.partition.isr) < number:
            return f"the ISR of {partition} is {leader.partition.isr}"
        if is_quiet and leader.log.high_watermark < leader.log.log_end_offset:
            return f"{partition} is not committed to its end"
        for broker in brokers.values():
            log = broker.app.broker.replicas.find(TOPIC, partition).log
            if is_quiet and (log.log_end_offset, log.high_watermark) != (
                leader.log.log_end_offset,
                leader.log.high_watermark,
            ):
                return f"broker {broker.broker_id} has not caught up in {partition}"
            state = broker.app.broker.image.partitions.get(TopicPartition(TOPIC, partition))
            if state is None or state.leader != leader.partition.leader:
                return f"broker {broker.broker_id} does not know the leader of {partition}"
    return ""


def check_records(
    brokers: Mapping[int, SimBroker],
    partitions: int,
    acknowledged: Mapping[tuple[int, int], bytes],
    consumed: Mapping[tuple[int, int], bytes],
    sent: Iterable[Mapping[int, list[bytes]]],
) -> None:
    """R2: nothing that was acknowledged or read is lost, doubled or in another place."""
    sent = list(sent)
    for partition in range(partitions):
        logs = {
            broker.broker_id: broker.app.broker.replicas.find(TOPIC, partition).log
            for broker in brokers.values()
        }
        contents = {broker_id: _values(log) for broker_id, log in logs.items()}
        values = next(iter(contents.values()))
        for broker_id, content in contents.items():
            assert content == values, f"{partition}: the log of broker {broker_id} differs"
        for kind, records in (("acknowledged", acknowledged), ("consumed", consumed)):
            for (number, offset), value in records.items():
                if number == partition:
                    found = values.get(offset)
                    assert found == value, f"{kind} {partition}@{offset} {value!r} is {found!r}"
        in_order = [values[offset] for offset in sorted(values)]
        assert len(set(in_order)) == len(in_order), f"{partition} has a record twice"
        for producer in sent:
            own = set(producer[partition])
            kept = [value for value in in_order if value in own]
            assert kept == producer[partition], f"{partition}: lost or reordered records"


def _values(log: Log) -> dict[int, bytes]:
    return {
        record.offset: bytes(record.value)
        for record in read_records_of(log)
        if record.value is not None
    }
