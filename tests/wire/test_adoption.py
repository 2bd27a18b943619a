"""`penstock cluster adopt`: topics whose metadata was lost get settings before the first start."""

import shutil
from pathlib import Path

import pytest

from penstock.client import Producer
from penstock.client.admin.admin import Admin
from penstock.client.admin.model_configs import ConfigResource
from penstock.client.admin.model_topics import NewTopic
from penstock.cluster.embedded import EmbeddedStore
from penstock.controller.metadata import ClusterIdRecord, Put
from penstock.core.ids import TopicPartition
from penstock.protocol.enums import ConfigResourceType, ConfigSource
from penstock.storage.checkpoint.checkpoint_files import load_meta_properties, store_meta_properties
from penstock.storage.disk import OsDisk
from tests.support.broker.process import BrokerError, PenstockBroker
from tests.support.client.cli import Cli
from tests.support.cluster.zookeeper_server import new_chroot, shared_server
from tests.support.kafka_clients.brokers import SETTINGS

penstock = Cli()


@pytest.fixture(scope="module")
def stopped_broker(tmp_path_factory: pytest.TempPathFactory) -> PenstockBroker:
    """A broker whose metadata store is lost."""
    broker = PenstockBroker(
        tmp_path_factory.mktemp("stopped"), {**SETTINGS, "offsets.topic.num.partitions": "1"}
    )
    with (
        broker,
        Admin(bootstrap_servers=broker.bootstrap) as admin,
        Producer(bootstrap_servers=broker.bootstrap) as producer,
    ):
        admin.create_topics([NewTopic(name, 2, 1) for name in ("orders", "prices")])
        producer.send("orders", b"value", partition=1).result()
        admin.alter_group_offsets("g", {TopicPartition("orders", 0): 0})
    (broker.data / "penstock-metadata.db").unlink()
    return broker


@pytest.fixture
def broker(stopped_broker: PenstockBroker, tmp_path: Path) -> PenstockBroker:
    """The same broker, with files of its own."""
    broker = PenstockBroker(tmp_path, SETTINGS)
    shutil.copytree(stopped_broker.data, broker.data)
    return broker


def sources(broker: PenstockBroker, *options: str) -> dict[str, tuple[str, str | None]]:
    """Returns the source of each topic's settings, and its cleanup.policy."""
    survey = penstock.json("cluster", "adopt", "--set", f"log.dirs={broker.data}", *options)
    return {
        topic["topic"]: (topic["source"], topic["settings"].get("cleanup.policy"))
        for topic in survey["topics"]
    }


def test_settings_are_confirmed_before_the_first_start(broker: PenstockBroker) -> None:
    unknown, internal = ("unknown", ""), ("internal", "compact")
    assert sources(broker) == {
        "orders": unknown,
        "prices": unknown,
        "__consumer_offsets": internal,
    }
    setting = ("--topic-config", "orders:cleanup.policy=compact")
    assert sources(broker, *setting)["orders"] == ("confirmed", "compact")
    assert not (broker.data / "penstock-metadata.db").exists(), "it was a dry run"
    more = ("--topic-config", "orders:segment.ms=1234567")
    assert sources(broker, *setting, *more, "--apply")["orders"] == ("confirmed", "compact")
    assert sources(broker)["orders"] == ("confirmed", "compact")
    with broker, Admin(bootstrap_servers=broker.bootstrap) as admin:
        resources = [
            ConfigResource(ConfigResourceType.TOPIC, name) for name in ("orders", "prices")
        ]
        settings = {
            (resource.name, entry.name): entry.value
            for resource, entries in admin.describe_configs(resources).items()
            for entry in entries.values()
            if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        }
        assert settings == {
            ("orders", "cleanup.policy"): "compact",
            ("orders", "segment.ms"): "1234567",
            ("prices", "cleanup.policy"): "",
        }
        assert len(admin.describe_topics(["orders"])["orders"].partitions) == 2
    assert "log.dirs has partitions of prices: these topics were registered" in (
        broker.log.read_text()
    )
    assert sources(broker)["orders"] == ("store", "compact")
    error = penstock.refused(
        "cluster", "adopt", "--set", f"log.dirs={broker.data}", *setting, "--apply"
    )
    assert "the metadata store has topics already" in error


def test_settings_are_confirmed_in_zookeeper(broker: PenstockBroker, tmp_path: Path) -> None:
    address = shared_server().address + new_chroot()
    options = ("--set", f"zookeeper.connect={address}")
    setting = ("--topic-config", "orders:cleanup.policy=compact")
    assert sources(broker, *options, *setting, "--apply")["orders"] == ("confirmed", "compact")
    with PenstockBroker(tmp_path, {**SETTINGS, "zookeeper.connect": address}):
        pass
    assert sources(broker, *options) == {
        "orders": ("store", "compact"),
        "prices": ("store", ""),
        "__consumer_offsets": ("store", "compact"),
    }


def test_a_broker_that_ended_too_early_continues_at_its_next_start(broker: PenstockBroker) -> None:
    """It had registered its cluster, but not the topics yet."""
    store = EmbeddedStore(broker.data / "penstock-metadata.db")
    properties = load_meta_properties(OsDisk(), str(broker.data))
    assert properties is not None
    assert properties.cluster_id is not None
    store.commit([Put(ClusterIdRecord(properties.cluster_id))])
    store.close()
    with broker, Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert {"orders", "prices"} <= admin.list_topics().keys()
    assert not list(broker.data.glob("*-stray"))


def test_a_broker_waits_for_the_one_that_registers_its_topics(
    broker: PenstockBroker, tmp_path: Path
) -> None:
    """Another broker of the cluster is the controller, and has not registered any topics."""
    address = shared_server().address + new_chroot()
    properties = load_meta_properties(OsDisk(), str(broker.data))
    assert properties is not None
    settings = {**SETTINGS, "zookeeper.connect": address}
    controller = PenstockBroker(tmp_path / "controller", {**settings, "node.id": "5"})
    controller.data.mkdir(parents=True)
    owner = properties._replace(node_id=5, directory_id=None)
    store_meta_properties(OsDisk(), str(controller.data), owner)
    with controller:
        for _ in range(2):
            with pytest.raises(BrokerError, match="when the other one has registered the topics"):
                PenstockBroker(tmp_path, settings).start()
    assert not list(broker.data.glob("*-stray"))


def test_people_see_what_will_happen(broker: PenstockBroker) -> None:
    result = penstock("cluster", "adopt", "--set", f"log.dirs={broker.data}")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["orders", "2", "2", "73", "unknown", "nothing", "is", "deleted"] in lines
    with broker:
        pass
    (broker.data / "prices-0").rename(broker.data / "left-0")
    result = penstock("cluster", "adopt", "--set", f"log.dirs={broker.data}")
    [left] = [line.split() for line in result.stdout.splitlines() if line.startswith("left")]
    assert left[:8] == ["left", "0", "1", "0", "none:", "not", "in", "the"]
    assert "nothing will be adopted" in result.stderr


def test_settings_that_make_no_sense_are_refused(broker: PenstockBroker) -> None:
    for setting, problem, status in (
        ("orders", "it must be TOPIC:KEY=VALUE", 2),
        ("missing:cleanup.policy=compact", "the log directories have no topic missing", 1),
        ("orders:cleanup.policy=burn", "cleanup.policy: 'burn' is invalid", 1),
        ("orders:clean.policy=compact", "no such topic setting; did you mean cleanup.policy?", 1),
        ("__consumer_offsets:cleanup.policy=delete", "are known: defaults of an internal", 1),
    ):
        options = ("--set", f"log.dirs={broker.data}", "--topic-config", setting, "--apply")
        assert problem in penstock.refused("cluster", "adopt", *options, status=status)
        assert not (broker.data / "penstock-metadata.db").exists()
