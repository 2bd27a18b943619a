"""Our config definitions compared with Kafka's, and our responses with a real broker's."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.broker_settings import BROKER_SETTINGS, family_of
from penstock.broker.config.client_metrics_config import (
    CLIENT_METRICS_SETTINGS,
    describe_client_metrics,
    validate_client_metrics_configs,
)
from penstock.broker.config.dynamic import ONLY_PER_LISTENER
from penstock.broker.config.entry import ConfigEntry
from penstock.broker.config.group_config import (
    GROUP_SETTINGS,
    broker_synonym,
    describe_group,
    validate_group_configs,
)
from penstock.broker.config.properties import load_broker_config
from penstock.broker.config.settings import ConfigError, Dynamic, Setting, Table
from penstock.broker.config.topic_config import (
    TOPIC_SETTINGS,
    TOPIC_SYNONYMS,
    describe_topic,
    validate_topic_configs,
)
from tests.support.kafka.broker import JAVA_DIRECTORY, KafkaBroker, KafkaParts
from tests.support.kafka.once import once_per_run

PROGRAM = JAVA_DIRECTORY / "DumpConfigs.java"

TABLES: dict[str, Table] = {
    "broker": BROKER_SETTINGS,
    "quota": BROKER_SETTINGS,
    "topic": TOPIC_SETTINGS,
    "group": GROUP_SETTINGS,
    "client-metrics": CLIENT_METRICS_SETTINGS,
}

OWN_SETTINGS = frozenset(
    (
        "message.max.decompressed.bytes",
        "metadata.store.socket",
        "metrics.host",
        "metrics.max.group.partitions",
        "metrics.max.topics",
        "metrics.port",
        "request.memory.max.bytes",
        "controller.queue.max.requests",
        "delegation.token.max.tokens.per.owner",
        "socket.request.max.elements",
        "java.security.auth.login.config",
        "zookeeper.auth.digest",
        "audit.log.dir",
        "audit.log.max.bytes",
        "audit.log.max.files",
    )
)
"""Settings that Kafka does not have."""

OTHER_DEFAULTS = {
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dir": "./penstock-data",
    "log.dirs": "./penstock-data",
    "node.id": "0",
    "broker.id": "0",
    "process.roles": None,
    "controller.listener.names": None,
}
"""Defaults for a broker without a config file, which listens on the loopback address only."""

OLD_SYNONYMS = {"message.downconversion.enable": ["log.message.downconversion.enable"]}
"""Settings of down-conversion, which Kafka 4 removed."""

OTHER_LIMITS = {
    "group.consumer.assignors": "assignors of one's own would be Java classes",
    "offsets.topic.compression.codec": "there are five codecs",
    "broker.id": "-1 stands for no number",
    "log.index.size.max.bytes": "an index needs room for two entries",
    "segment.index.bytes": "an index needs room for two entries",
    "interval.ms": "Kafka checks the range elsewhere",
    "match": "Kafka checks the patterns elsewhere",
}


@dataclass(frozen=True)
class KafkaSetting:
    table: str
    name: str
    type: str
    default: str
    importance: str
    internal: str
    validator: str
    may_be_empty: str


@dataclass(frozen=True)
class KafkaTables:
    settings: list[KafkaSetting]
    lines: list[list[str]]

    def of(self, kind: str) -> dict[str, list[str]]:
        return {line[1]: line[2:] for line in self.lines if line[0] == kind}


@pytest.fixture(scope="module")
def kafka(kafka_parts: KafkaParts, tmp_path_factory: pytest.TempPathFactory) -> KafkaTables:
    output = once_per_run(
        tmp_path_factory, "config-tables", lambda _: kafka_parts.run(PROGRAM).stdout
    )
    lines = [line.split("\t") for line in output.splitlines()]
    return KafkaTables([KafkaSetting(*line) for line in lines if line[0] in TABLES], lines)


def test_every_setting_of_kafka_is_known(kafka: KafkaTables) -> None:
    """Any server.properties of Kafka 4 starts."""
    assert [
        setting for setting in kafka.settings if setting.name not in TABLES[setting.table]
    ] == []
    assert len(kafka.settings) > 400


def test_types_importance_and_defaults_are_kafkas(kafka: KafkaTables) -> None:
    differing = []
    for setting in kafka.settings:
        ours = TABLES[setting.table][setting.name]
        default = None if setting.default == "\\N" else setting.default
        expected = OTHER_DEFAULTS.get(setting.name, default)
        facts = (ours.type.name, ours.default, ours.importance.name, ours.internal, ours.old)
        if facts != (setting.type, expected, setting.importance, setting.internal == "true", False):
            differing.append((setting, facts))
    assert differing == []


def in_our_notation(setting: KafkaSetting) -> str:
    """Translates the description of a validator of Kafka."""
    empty = "+" if setting.may_be_empty == "false" else ""
    if match := re.fullmatch(
        r"\[([-\d.]+?),\.\.\.(?:,([-\d.]+))?](?: or (-1))?", setting.validator
    ):
        return f"{match[1]}..{match[2] or ''}" + (f"|{match[3]}" if match[3] else "")
    if match := re.fullmatch(r"(\(case insensitive\) )?\[(\w[\w, ]*)]", setting.validator):
        return empty + ("~" if match[1] else "") + "{" + match[2].replace(" ", "") + "}"
    named = {"non-empty string": "+", "[latest, earliest, by_duration:PnDTnHnMn.nS]": "reset"}
    if setting.validator.startswith("[partitionId]"):
        return "replicas"
    return named.get(setting.validator, empty or ".")


def test_limits_are_kafkas(kafka: KafkaTables) -> None:
    differing = {
        setting.name
        for setting in kafka.settings
        if TABLES[setting.table][setting.name].validator != in_our_notation(setting)
    }
    assert differing == set(OTHER_LIMITS)


def test_dynamic_settings_are_kafkas(kafka: KafkaTables) -> None:
    modes = kafka.of("dynamic")
    for name, setting in BROKER_SETTINGS.items():
        expected = modes.get(name, [Dynamic.READ_ONLY.value])[0]
        assert (name, setting.dynamic.value) == (name, expected)
    assert sorted(ONLY_PER_LISTENER) == sorted(kafka.of("security"))


def test_synonyms_are_kafkas(kafka: KafkaTables) -> None:
    """S4: a topic without an override uses the broker's setting."""
    ours = {name: list(synonyms) for name, synonyms in TOPIC_SYNONYMS.items()}
    ours |= {name: [synonym] for name in GROUP_SETTINGS if (synonym := broker_synonym(name))}
    assert ours == {**kafka.of("synonyms"), **OLD_SYNONYMS}
    same = kafka.of("same")
    assert {name: list(family_of(name)) for name in same} == same


def test_settings_removed_from_kafka_are_marked(kafka: KafkaTables) -> None:
    for table in (BROKER_SETTINGS, TOPIC_SETTINGS, GROUP_SETTINGS, CLIENT_METRICS_SETTINGS):
        present = {setting.name for setting in kafka.settings if TABLES[setting.table] is table}

        def is_old(setting: Setting, present: set[str] = present) -> bool:
            return setting.name not in present and setting.name not in OWN_SETTINGS

        assert [item.name for item in table.values() if item.old] == [
            item.name for item in table.values() if is_old(item)
        ]


# --- compared with a real broker

BROKER_SETTINGS_IN_FILE = {
    "log.retention.hours": "24",
    "log.roll.ms": " 3600000",
    "log.preallocate": "FALSE",
    "log.cleanup.policy": "compact, delete",
    "log.cleaner.min.cleanable.ratio": "1",
    "log.cleaner.io.max.bytes.per.second": "12345678.5",
    "num.partitions": "3",
    "ssl.key.password": "secret",
    "listener.name.plaintext.max.connections": "100",
    "log.initial.task.delay.ms": "500",
    "message.max.bytes": "2000000",
    "group.consumer.heartbeat.interval.ms": "6000",
}

CHANGES = [
    ("BROKER", "", "log.retention.ms", "1000000"),
    ("BROKER", "", "message.max.bytes", "3000000"),
    ("BROKER", "", "log.flush.interval.ms", "5000"),
    ("BROKER", "1", "message.max.bytes", "4000000"),
    ("BROKER", "1", "log.cleaner.threads", "2"),
    ("BROKER", "1", "leader.replication.throttled.rate", "1000"),
    ("BROKER", "", "follower.replication.throttled.rate", "1000"),
    ("BROKER", "1", "listener.name.plaintext.ssl.keystore.type", "PEM"),
    ("BROKER", "1", "listener.name.plaintext.ssl.key.password", "secret"),
    ("TOPIC", "t", "retention.ms", "5000"),
    ("TOPIC", "t", "cleanup.policy", "compact"),
    ("TOPIC", "t", "min.cleanable.dirty.ratio", "0.25"),
    ("TOPIC", "t", "max.compaction.lag.ms", "1000000"),
    ("TOPIC", "t", "leader.replication.throttled.replicas", "0:1, 1:2"),
    ("GROUP", "g", "consumer.session.timeout.ms", "50000"),
    ("GROUP", "g", "share.auto.offset.reset", "by_duration:P1DT2H"),
    ("CLIENT_METRICS", "m", "match", "client_id=a.*"),
    ("CLIENT_METRICS", "m", "metrics", "*"),
]

WRITTEN_BY_KAFKA = {"min.insync.replicas": "1"}
"""Stored as a cluster default by KRaft together with eligible leader replicas."""

REFUSED_ONLY_HERE = {
    # Kafka stores it and applies it at the next start.
    ("BROKER", "1", "listener.name.plaintext.sasl.enabled.mechanisms", "PLAIN"),
}

ATTEMPTS = [
    ("BROKER", "1", "log.retention.ms", "0"),
    ("BROKER", "1", "log.retention.ms", "-1"),
    ("BROKER", "1", "log.retention.ms", "soon"),
    ("BROKER", "1", "log.retention.hours", "5"),
    ("BROKER", "1", "broker.rack", "r"),
    ("BROKER", "1", "num.io.threads", "16"),
    ("BROKER", "1", "num.io.threads", "17"),
    ("BROKER", "1", "num.io.threads", "3"),
    ("BROKER", "1", "num.network.threads", "7"),
    ("BROKER", "1", "background.threads", "5"),
    ("BROKER", "", "num.replica.fetchers", "0"),
    ("BROKER", "1", "ssl.keystore.location", "x.pem"),
    ("BROKER", "", "listener.name.plaintext.ssl.keystore.type", "PEM"),
    ("BROKER", "", "listener.name.plaintext.max.connections", "7"),
    ("BROKER", "1", "listener.name.plaintext.max.connections", "7"),
    ("BROKER", "1", "listener.name.plaintext.max.connections", "many"),
    ("BROKER", "1", "listener.name.plaintext.sasl.enabled.mechanisms", "PLAIN"),
    ("BROKER", "1", "log.cleaner.dedupe.buffer.size", "1000"),
    ("BROKER", "1", "log.cleaner.threads", "0"),
    ("BROKER", "1", "log.local.retention.ms", "2000000"),
    ("BROKER", "1", "log.local.retention.ms", "1000"),
    ("BROKER", "1", "log.cleaner.max.compaction.lag.ms", "0"),
    ("BROKER", "1", "max.connections.per.ip", "0"),
    ("BROKER", "1", "max.connections.per.ip.overrides", "127.0.0.1:x"),
    ("BROKER", "1", "max.connections.per.ip.overrides", "127.0.0.1:5"),
    ("BROKER", "1", "compression.type", "brotli"),
    ("BROKER", "1", "compression.gzip.level", "0"),
    ("BROKER", "1", "log.cleanup.policy", "purge"),
    ("BROKER", "1", "listeners", "PLAINTEXT://127.0.0.1:1"),
    ("BROKER", "", "sasl.enabled.mechanisms", "PLAIN"),
    ("BROKER", "", "leader.replication.throttled.rate", "-1"),
    ("BROKER", "", "leader.replication.throttled.rate", "1000"),
    ("TOPIC", "t", "retention.ms", "-1"),
    ("TOPIC", "t", "retention.ms", "-2"),
    ("TOPIC", "t", "retention.bytes", "-2"),
    ("TOPIC", "t", "retenton.ms", "1"),
    ("TOPIC", "t", "segment.bytes", "1024"),
    ("TOPIC", "t", "internal.segment.bytes", "1024"),
    ("TOPIC", "t", "cleanup.policy", ""),
    ("TOPIC", "t", "cleanup.policy", "delete,delete"),
    ("TOPIC", "t", "cleanup.policy", "delete,,compact"),
    ("TOPIC", "t", "min.compaction.lag.ms", "1000000"),
    ("TOPIC", "t", "min.compaction.lag.ms", "1000001"),
    ("TOPIC", "t", "max.compaction.lag.ms", "0"),
    ("TOPIC", "t", "remote.storage.enable", "true"),
    ("TOPIC", "t", "min.insync.replicas", "0"),
    ("TOPIC", "t", "min.insync.replicas", "70000"),
    ("TOPIC", "t", "message.timestamp.type", "createtime"),
    ("TOPIC", "t", "follower.replication.throttled.replicas", "*"),
    ("TOPIC", "t", "follower.replication.throttled.replicas", "none"),
    ("TOPIC", "t", "follower.replication.throttled.replicas", "0-1"),
    ("TOPIC", "t", "unclean.leader.election.enable", "yes"),
    ("TOPIC", "t", "min.cleanable.dirty.ratio", "1.5"),
    ("TOPIC", "t", "min.cleanable.dirty.ratio", "5e-1"),
    ("GROUP", "g", "consumer.session.timeout.ms", "44999"),
    ("GROUP", "g", "consumer.session.timeout.ms", "60001"),
    ("GROUP", "g", "consumer.heartbeat.interval.ms", "15000"),
    ("GROUP", "g", "consumer.heartbeat.interval.ms", "15001"),
    ("GROUP", "g", "share.record.lock.duration.ms", "60001"),
    ("GROUP", "g", "share.delivery.count.limit", "11"),
    ("GROUP", "g", "share.auto.offset.reset", "by_duration:1D"),
    ("GROUP", "g", "share.auto.offset.reset", "EARLIEST"),
    ("GROUP", "g", "share.isolation.level", "read_committed"),
    ("GROUP", "g", "share.isolation.level", "serializable"),
    ("GROUP", "g", "streams.num.standby.replicas", "3"),
    ("GROUP", "g", "session.timeout.ms", "3"),
    ("CLIENT_METRICS", "m", "interval.ms", "99"),
    ("CLIENT_METRICS", "m", "interval.ms", "3600000"),
    ("CLIENT_METRICS", "m", "interval.ms", "3600001"),
    ("CLIENT_METRICS", "m", "match", "client_id"),
    ("CLIENT_METRICS", "m", "match", "client_name=a"),
    ("CLIENT_METRICS", "m", "match", "client_id=("),
    ("CLIENT_METRICS", "m", "colour", "red"),
]

FILES: list[dict[str, str]] = [
    {"listeners": "PLAINTEXT://:1,SASL_SSL://:2", "sasl.enabled.mechanisms": "GSSAPI"},
    {"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"},
    {"listeners": "PLAINTEXT://:1,SSL://:1"},
    {"listeners": "PLAINTEXT://:0,SSL://:0"},
    {"listeners": "PLAINTEXT://127.0.0.1:1,SSL://[::1]:1"},
    {"listeners": "PLAINTEXT://127.0.0.1:1,SSL://127.0.0.2:1"},
    {"listeners": "PLAINTEXT://h:1,SSL://[::1]:1"},
    {"listeners": "plaintext://:1"},
    {"listeners": "CLIENT://:1"},
    {
        "listeners": "CLIENT://:1",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENT",
    },
    {"listeners": "localhost:9092"},
    {"listeners": "PLAINTEXT://localhost"},
    {"listeners": ""},
    {"listener.security.protocol.map": "CLIENT:TLS"},
    {"advertised.listeners": "PLAINTEXT://0.0.0.0:1"},
    {"advertised.listeners": "PLAINTEXT://:1"},
    {"advertised.listeners": "SSL://h:1"},
    {"advertised.listeners": ""},
    {"listeners": "PLAINTEXT://:1,SSL://:2", "advertised.listeners": "PLAINTEXT://h:5"},
    {"listeners": "PLAINTEXT://:1,SSL://:2", "advertised.listeners": "PLAINTEXT://h:5,SSL://h:5"},
    {"listeners": "PLAINTEXT://:1,SSL://:2", "inter.broker.listener.name": "ssl"},
    {"listeners": "PLAINTEXT://:1,SSL://:2", "inter.broker.listener.name": "X"},
    {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
    {"security.inter.broker.protocol": "SSL"},
    {"listeners": "SSL://:1", "security.inter.broker.protocol": "SSL"},
    {"log.dirs": "/a, /b"},
    {"log.dirs": "/a,,/b"},
    {"log.dirs": ""},
    {"log.retention.ms": "0"},
    {"log.retention.hours": "0"},
    {"log.retention.hours": "-1"},
    {"log.retention.ms": "-2"},
    {"log.retention.ms": "5", "log.retention.hours": "0"},
    {"log.roll.ms": "0"},
    {"log.roll.jitter.ms": "-1"},
    {"log.cleaner.dedupe.buffer.size": "1048576"},
    {"log.cleaner.dedupe.buffer.size": "1048577"},
    {"replica.fetch.wait.max.ms": "30001"},
    {"replica.lag.time.max.ms": "499"},
    {"queued.max.request.bytes": "1000"},
    {"queued.max.request.bytes": "-5"},
    {"max.connections.per.ip": "0"},
    {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"},
    {"max.connections.per.ip.overrides": "127.0.0.1"},
    {"connections.max.idle.ms": "100"},
    {"connections.max.idle.ms": "-1"},
    {"group.consumer.heartbeat.interval.ms": "4999"},
    {"group.consumer.max.session.timeout.ms": "44999"},
    {"group.consumer.min.session.timeout.ms": "45001"},
    {"group.share.max.record.lock.duration.ms": "30000"},
    {"group.share.delivery.count.limit": "11"},
    {"group.share.max.delivery.count.limit": "5", "group.share.delivery.count.limit": "6"},
    {"group.streams.num.standby.replicas": "3"},
    {"group.consumer.max.assignment.interval.ms": "500"},
    {"node.id": "2"},
    {"broker.id": "1"},
    {"broker.id": "2"},
    {"ssl.client.auth": "maybe"},
    {"num.partitions": " 3 "},
    {"num.partitions": "3.0"},
    {"auto.create.topics.enable": "yes"},
    {"listener.name.plaintext.max.connections": "5"},
    {"metrics.recording.level": "LOUD"},
    {"zookeeper.connect": "localhost:2181"},
    {"inter.broker.protocol.version": "2.8"},
]

ANOTHER_VERDICT: list[tuple[dict[str, str], bool]] = [
    # A single broker needs no PLAINTEXT listener for other brokers.
    ({"listeners": "SSL://:1"}, True),
    ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, True),
    # Files that Kafka would ignore silently or reject later.
    ({"log.retension.ms": "5"}, False),
    ({"authorizer.class.name": "org.example.Mine"}, False),
    ({"log.index.size.max.bytes": "4"}, False),
    (
        {"log.cleaner.min.compaction.lag.ms": "5", "log.cleaner.max.compaction.lag.ms": "4"},
        False,
    ),
]
"""Files that are valid for Kafka and not for us, or the reverse."""

KRAFT = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
    "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
}

RESOURCES = [
    ("BROKER", "1"),
    ("BROKER", ""),
    ("TOPIC", "t"),
    ("GROUP", "g"),
    ("CLIENT_METRICS", "m"),
]


@dataclass(frozen=True)
class BrokerResults:
    """A real broker's results, and our config with the same file and changes."""

    verdicts: list[str]
    entries: dict[tuple[str, str], dict[str, list[str]]]
    config: BrokerConfig
    starts: list[bool]


@pytest.fixture(scope="module")
def results(kafka_parts: KafkaParts, tmp_path_factory: pytest.TempPathFactory) -> BrokerResults:
    commands = ["create\tt"]
    commands += ["\t".join(("alter", *change)) for change in CHANGES]
    commands += ["\t".join(("describe", *resource)) for resource in RESOURCES]
    commands += ["\t".join(("try", *attempt)) for attempt in ATTEMPTS]
    for file in (*FILES, *(file for file, _ in ANOTHER_VERDICT)):
        commands.append(
            "\t".join(("start", *(text for pair in (KRAFT | file).items() for text in pair)))
        )

    def run_commands(directory: Path) -> tuple[Path, str]:
        with KafkaBroker(kafka_parts, directory, BROKER_SETTINGS_IN_FILE) as broker:
            run = kafka_parts.run(PROGRAM, broker.bootstrap, stdin="\n".join(commands) + "\n")
        return directory, run.stdout

    directory, output = once_per_run(tmp_path_factory, "config-results", run_commands)
    lines = iter(output.splitlines())
    assert [next(lines) for _ in CHANGES] == ["NONE"] * len(CHANGES)
    entries: dict[tuple[str, str], dict[str, list[str]]] = {}
    for resource in RESOURCES:
        result = entries.setdefault(resource, {})
        while (line := next(lines)) != "end":
            name, *facts = line.split("\t")[1:]
            result[name] = facts
    config = load_broker_config(directory / "server.properties")
    config.set_dynamic(stored("BROKER", "") | WRITTEN_BY_KAFKA, stored("BROKER", "1"))
    verdicts = [next(lines) for _ in ATTEMPTS]
    return BrokerResults(verdicts, entries, config, [line == "true" for line in lines])


def stored(kind: str, resource: str) -> dict[str, str]:
    return {name: text for k, r, name, text in CHANGES if (k, r) == (kind, resource)}


def facts_of(entry: ConfigEntry) -> list[str]:
    def text(value: str | None) -> str:
        return "\\N" if value is None else value

    facts = [text(entry.value), entry.source.name, str(entry.sensitive).lower()]
    facts += [str(entry.read_only).lower(), entry.type.name]
    for synonym in entry.synonyms:
        facts += [synonym.name, text(synonym.value), synonym.source.name]
    return facts


def our_entries(config: BrokerConfig, kind: str, resource: str) -> list[ConfigEntry]:
    own = stored(kind, resource)
    if kind == "TOPIC":
        return describe_topic(config, own)
    if kind == "GROUP":
        return describe_group(config, own)
    if kind == "CLIENT_METRICS":
        return describe_client_metrics(own)
    return config.describe_all() if resource else config.describe_default()


def without_our_defaults(name: str, facts: list[str]) -> list[str]:
    """Omits defaults in which we differ from Kafka on purpose."""
    if name in OTHER_DEFAULTS and facts[-1] == "DEFAULT_CONFIG":
        return [facts[0], *facts[1:-3]] if facts[1] != "DEFAULT_CONFIG" else []
    return facts


@pytest.mark.parametrize(("kind", "resource"), RESOURCES)
def test_settings_are_described_as_by_kafka(
    results: BrokerResults, kind: str, resource: str
) -> None:
    """Values, sources and synonyms in Kafka's order, for every setting of every resource."""
    theirs = results.entries[kind, resource]
    ours = {entry.name: facts_of(entry) for entry in our_entries(results.config, kind, resource)}
    assert set(ours) == set(theirs)
    assert {name: without_our_defaults(name, facts) for name, facts in ours.items()} == {
        name: without_our_defaults(name, facts) for name, facts in theirs.items()
    }


def our_verdict(config: BrokerConfig, kind: str, resource: str, name: str, text: str) -> bool:
    changed = stored(kind, resource) | {name: text}
    try:
        if kind == "TOPIC":
            validate_topic_configs(changed, config)
        elif kind == "GROUP":
            validate_group_configs(changed, config)
        elif kind == "CLIENT_METRICS":
            validate_client_metrics_configs(changed)
        else:
            config.validate_dynamic(changed, per_broker=resource != "")
    except ConfigError:
        return False
    return True


def test_config_changes_are_accepted_and_rejected_as_by_kafka(results: BrokerResults) -> None:
    theirs = {
        attempt: verdict == "NONE"
        for attempt, verdict in zip(ATTEMPTS, results.verdicts, strict=True)
    }
    ours = {attempt: our_verdict(results.config, *attempt) for attempt in ATTEMPTS}
    assert ours == theirs | dict.fromkeys(REFUSED_ONLY_HERE, False)
    assert all(theirs[attempt] for attempt in REFUSED_ONLY_HERE)


def starts_here(file: dict[str, str]) -> bool:
    try:
        BrokerConfig.from_properties(KRAFT | file)
    except ConfigError:
        return False
    return True


def test_config_files_are_accepted_and_rejected_as_by_kafka(results: BrokerResults) -> None:
    """X1, E6."""
    theirs = {str(file): starts for file, starts in zip(FILES, results.starts, strict=False)}
    assert {str(file): starts_here(file) for file in FILES} == theirs


def test_documented_differences_in_config_files(results: BrokerResults) -> None:
    for (file, verdict), theirs in zip(ANOTHER_VERDICT, results.starts[len(FILES) :], strict=True):
        assert (file, starts_here(file), theirs) == (file, verdict, not verdict)
