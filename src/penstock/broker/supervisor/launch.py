"""The settings of each broker process of a supervisor: ids, ports and directories.

The first broker keeps the settings of a single one, so that a data directory can be used with one
broker or with several. The others get the next ids, the next ports, and subdirectories.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.listeners import ListenerSpec
from penstock.broker.config.settings import ConfigError
from penstock.storage.file_names import broker_directory_name


class BrokerLaunch(NamedTuple):
    """A broker process to start: its id and all of its settings."""

    broker_id: int
    settings: dict[str, str]


_MAX_REPLICAS: Final = 3


def replication_settings(brokers: int) -> dict[str, str]:
    """Returns the settings of internal topics that a cluster of so many brokers allows.

    Kafka's defaults need three brokers. As with those, one broker may be down.
    """
    replicas = min(brokers, _MAX_REPLICAS)
    return {
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(max(1, replicas - 1)),
    }


def plan_launches(
    config: BrokerConfig, count: int, *, rack: str, socket: Path | None, request_memory: int
) -> list[BrokerLaunch]:
    """Returns the processes for `count` brokers with the ids from `node.id` on.

    `rack` is the rack of all of them if `broker.rack` is not set. `socket` is the supervisor's
    metadata store, None if they use another one, which brokers of other machines may use too.
    `request_memory` is what each of them may use for the requests in progress. Raises ConfigError
    if two listeners would have the same port.
    """
    first_id = config.int("node.id")
    launches = []
    ports: dict[int, str] = {}
    for index in range(count):
        broker_id = first_id + index
        listeners = _shifted(config.listeners, index)
        for spec in listeners:
            _claim_port(
                ports, spec.port, f"listener {spec.name} of broker {broker_id}", "listeners"
            )
        metrics_port = config.int("metrics.port")
        if metrics_port > 0:
            metrics_port += index
            _claim_port(ports, metrics_port, f"metrics.port of broker {broker_id}", "metrics.port")
        settings = {} if socket is None else replication_settings(count)
        settings |= config.texts()
        settings |= {
            "node.id": str(broker_id),
            "listeners": ",".join(map(str, listeners)),
            "request.memory.max.bytes": str(request_memory),
            "log.dirs": ",".join(
                path if index == 0 else f"{path}/{broker_directory_name(broker_id)}"
                for path in config.list("log.dirs")
            ),
        }
        # The former name of node.id must not have the id of the first broker.
        settings.pop("broker.id", None)
        if config.text("advertised.listeners") is not None:
            settings["advertised.listeners"] = ",".join(
                map(str, _shifted(config.advertised, index))
            )
        if metrics_port > 0:
            settings["metrics.port"] = str(metrics_port)
        if config.text("broker.rack") is None:
            settings["broker.rack"] = rack
        if socket is not None:
            settings["metadata.store.socket"] = str(socket)
        launches.append(BrokerLaunch(broker_id, settings))
    return launches


def with_ports(launch: BrokerLaunch, ports: Mapping[str, int]) -> BrokerLaunch:
    """Returns the launch with these ports instead of free ones, so that clients find it again."""
    listeners = [
        f"{listener.removesuffix(':0')}:{ports[name]}"
        if listener.endswith(":0") and (name := listener.partition("://")[0]) in ports
        else listener
        for listener in launch.settings["listeners"].split(",")
    ]
    return launch._replace(settings=launch.settings | {"listeners": ",".join(listeners)})


def _shifted(listeners: Iterable[ListenerSpec], index: int) -> list[ListenerSpec]:
    return [spec._replace(port=spec.port + index if spec.port else 0) for spec in listeners]


def _claim_port(ports: dict[int, str], port: int, owner: str, setting: str) -> None:
    """Raises ConfigError if the port is out of range or another listener has it."""
    if not port:
        return
    other = ports.setdefault(port, owner)
    if port > 65535:
        raise ConfigError(
            f"{owner} would listen on port {port}",
            setting,
            remedy="use a lower port: each broker has the next one",
        )
    if other != owner:
        raise ConfigError(
            f"{owner} would have port {port}, as {other}",
            setting,
            remedy="leave one port per broker between the ports of listeners",
        )
