"""The settings of each broker process."""

from pathlib import Path

import pytest

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.settings import ConfigError
from penstock.broker.supervisor.launch import BrokerLaunch, plan_launches, with_ports


def launches(count: int, **settings: str) -> list[BrokerLaunch]:
    properties = {name.replace("_", "."): value for name, value in settings.items()}
    config = BrokerConfig.from_properties(properties, hostname="h")
    return plan_launches(config, count, rack="h", socket=Path("/d/s.sock"), request_memory=7)


def test_the_first_broker_keeps_its_settings_and_the_others_get_the_next() -> None:
    first, second = launches(2, log_dirs="/a,/b", num_partitions="3")
    assert first == BrokerLaunch(
        0,
        {
            "node.id": "0",
            "listeners": "PLAINTEXT://127.0.0.1:9092",
            "log.dirs": "/a,/b",
            "num.partitions": "3",
            "request.memory.max.bytes": "7",
            "broker.rack": "h",
            "metadata.store.socket": "/d/s.sock",
            "offsets.topic.replication.factor": "2",
            "transaction.state.log.replication.factor": "2",
            "transaction.state.log.min.isr": "1",
        },
    )
    assert second.broker_id == 1
    assert second.settings == first.settings | {
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:9093",
        "log.dirs": "/a/broker.1,/b/broker.1",
    }


def test_ids_continue_from_the_configured_one() -> None:
    plan = launches(3, broker_id="5", broker_rack="r1")
    assert [launch.broker_id for launch in plan] == [5, 6, 7]
    assert {launch.settings["broker.rack"] for launch in plan} == {"r1"}
    assert [launch.settings["log.dirs"] for launch in plan][1].endswith("/broker.6")


@pytest.mark.parametrize("name", ["node_id", "broker_id"])
def test_both_names_of_the_id_are_that_of_each_broker(name: str) -> None:
    for launch in launches(2, **{name: "5"}):
        settings = launch.settings | {"request.memory.max.bytes": "-1"}
        config = BrokerConfig.from_properties(settings, hostname="h")
        assert config.int("node.id") == config.int("broker.id") == launch.broker_id


def test_free_ports_stay_free_ports() -> None:
    plan = launches(2, listeners="PLAINTEXT://:0,SSL://[::1]:0")
    assert {launch.settings["listeners"] for launch in plan} == {"PLAINTEXT://:0,SSL://[::1]:0"}


def test_a_restart_uses_the_same_free_ports() -> None:
    listeners = "PLAINTEXT://127.0.0.1:0,SSL://[::1]:0,INTERNAL://:9099"
    (launch,) = launches(
        1,
        listeners=listeners,
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,SSL:SSL,INTERNAL:PLAINTEXT",
    )
    again = with_ports(launch, {"PLAINTEXT": 1234, "INTERNAL": 9099})
    assert again.settings == launch.settings | {
        "listeners": "PLAINTEXT://127.0.0.1:1234,SSL://[::1]:0,INTERNAL://:9099"
    }


def test_advertised_ports_move_with_the_ports() -> None:
    plan = launches(
        2, listeners="PLAINTEXT://:9092", advertised_listeners="PLAINTEXT://example.org:19092"
    )
    assert plan[1].settings["listeners"] == "PLAINTEXT://:9093"
    assert plan[1].settings["advertised.listeners"] == "PLAINTEXT://example.org:19093"


def test_listeners_that_would_share_a_port_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"broker 1 would have port 9093, as listener SSL of"
    ) as e:
        launches(2, listeners="PLAINTEXT://:9092,SSL://:9093")
    assert "leave one port per broker" in e.value.message
    assert len(launches(2, listeners="PLAINTEXT://:9092,SSL://:9094")) == 2


def test_a_port_above_the_highest_is_refused() -> None:
    with pytest.raises(ConfigError, match="broker 1 would listen on port 65536"):
        launches(2, listeners="PLAINTEXT://:65535")


def test_each_broker_has_the_next_port_for_metrics() -> None:
    plan = launches(3, metrics_port="9404")
    assert [launch.settings["metrics.port"] for launch in plan] == ["9404", "9405", "9406"]
    for port in ("0", "-1"):
        assert {launch.settings["metrics.port"] for launch in launches(2, metrics_port=port)} == {
            port
        }


def test_a_port_for_metrics_that_a_listener_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"metrics.port of broker 0 would have port 9093"):
        launches(2, listeners="PLAINTEXT://:9093", metrics_port="9093")


@pytest.mark.parametrize(("count", "factor", "min_isr"), [(2, 2, 1), (3, 3, 2), (5, 3, 2)])
def test_internal_topics_have_as_many_replicas_as_there_are_brokers(
    count: int, factor: int, min_isr: int
) -> None:
    for launch in launches(count):
        assert launch.settings["offsets.topic.replication.factor"] == str(factor)
        assert launch.settings["transaction.state.log.replication.factor"] == str(factor)
        assert launch.settings["transaction.state.log.min.isr"] == str(min_isr)


def test_the_replicas_of_internal_topics_can_be_set() -> None:
    (first, _) = launches(2, offsets_topic_replication_factor="1")
    assert first.settings["offsets.topic.replication.factor"] == "1"
    assert first.settings["transaction.state.log.replication.factor"] == "2"


def test_brokers_of_a_larger_cluster_keep_the_defaults() -> None:
    config = BrokerConfig.from_properties({"zookeeper.connect": "z:2181"}, hostname="h")
    (first, _) = plan_launches(config, 2, rack="h", socket=None, request_memory=7)
    assert "offsets.topic.replication.factor" not in first.settings
