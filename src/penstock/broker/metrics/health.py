"""The health of a broker: whether it serves its leaderships, and the state of its disks."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from penstock.broker.assembly import BrokerAssembly
from penstock.broker.broker import Broker
from penstock.broker.pacer import Steps
from penstock.broker.replica.replica import Replica
from penstock.core.errors import KafkaError
from penstock.core.name_lists import shorten_names
from penstock.storage.manager.log_dir import LogDir


class BrokerState(Enum):
    """The value is Kafka's number of the state."""

    STARTING = 1
    RUNNING = 3
    STOPPING = 7


class Readiness(NamedTuple):
    """A broker is ready if there is no reason against it."""

    reasons: list[str]

    @property
    def is_ready(self) -> bool:
        return not self.reasons


def check_readiness(
    state: BrokerState, dirs: Sequence[LogDir], parts: BrokerAssembly | None
) -> Steps[Readiness]:
    """Returns why the broker does not serve its leaderships; no reasons if it does."""
    reasons: list[str] = []
    if state is not BrokerState.RUNNING:
        reasons.append(f"the broker is {state.name.lower()}")
    if parts is None:
        return Readiness([*reasons, *_loading_progress(dirs)])
    broker = parts.broker
    if not broker.controller.session_status.is_registered:
        reasons.append("the broker is not registered in the metadata store")
    if not broker.controller_requests.has_metadata.is_set():
        reasons.append("the controller has not sent the metadata of the cluster")
    unserved = yield from _unserved_partitions(broker)
    if unserved:
        reasons.append(
            f"partitions that this broker leads have no usable log here: {shorten_names(unserved)}"
        )
    return Readiness(reasons)


def _loading_progress(dirs: Sequence[LogDir]) -> list[str]:
    """Returns how many logs of each directory that is being loaded are loaded."""
    return [
        f"{log_dir.path}: {len(log_dir.logs) + len(log_dir.load_errors)} of {log_dir.found_logs} "
        "logs are loaded"
        for log_dir in dirs
        if log_dir.found_logs and log_dir.is_online
    ]


def _unserved_partitions(broker: Broker) -> Steps[list[str]]:
    """Returns partitions that other brokers expect here, and that have no leader or log here."""
    unserved: list[str] = []
    for key, record in list(broker.image.partitions.items()):
        yield
        if record.leader != broker.broker_id:
            continue
        replica = broker.replicas.by_topic.get(key.topic, {}).get(key.partition)
        if replica is None or not _is_served(replica):
            unserved.append(str(key))
    return unserved


def _is_served(replica: Replica) -> bool:
    try:
        replica.leader_log()
    except KafkaError:
        return False
    return True


def disk_states(dirs: list[LogDir]) -> Mapping[str, str]:
    """Returns `online`, `hanging` or `offline` for each log directory."""
    return {
        log_dir.path: "offline"
        if not log_dir.is_online
        else "hanging"
        if log_dir.is_hanging
        else "online"
        for log_dir in dirs
    }
