"""kafka-configs.sh for topics, brokers and loggers, and kafka-client-metrics.sh (M4)."""

from collections.abc import Iterator

import pytest

from tests.support.kafka.tools import Shell, ToolRun


@pytest.fixture
def topic(shell: Shell, name: str) -> str:
    shell("topics", "--create", "--topic", name, "--config", "cleanup.policy=compact")
    return name


@pytest.fixture
def clean_broker(shell: Shell) -> Iterator[None]:
    """Removes the broker's dynamic configs after the test."""
    yield
    for entity in (["--broker", "1"], ["--broker-defaults"]):
        for line in shell("configs", "--describe", *entity).lines[1:]:
            setting, _, rest = line.partition("=")
            own = "DYNAMIC_BROKER" if len(entity) == 2 else "DYNAMIC_DEFAULT_BROKER"
            if own in rest:
                shell("configs", "--alter", *entity, "--delete-config", setting)


def _refused(run: ToolRun, error: str) -> str:
    """Returns the error message that the tool prints."""
    assert run.exit == 1
    assert f"errors.{error}Exception: " in run.err
    return run.err.split(f"errors.{error}Exception: ")[1].splitlines()[0]


def test_topic_configs_are_altered_and_described(shell: Shell, topic: str) -> None:
    change = shell(
        *("configs", "--alter", "--topic", topic),
        *("--add-config", "retention.ms=70000,segment.bytes=1048576"),
        *("--delete-config", "cleanup.policy"),
    )
    assert change.lines == [f"Completed updating config for topic {topic}."]
    shell("configs", "--alter", "--topic", topic, "--add-config", "cleanup.policy=[compact,delete]")
    assert shell("configs", "--describe", "--topic", topic).lines == [
        f"Dynamic configs for topic {topic} are:",
        "cleanup.policy=compact,delete sensitive=false "
        "synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}",
        "retention.ms=70000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=70000}",
        "segment.bytes=1048576 sensitive=false "
        "synonyms={DYNAMIC_TOPIC_CONFIG:segment.bytes=1048576, "
        "DEFAULT_CONFIG:log.segment.bytes=1073741824}",
    ]
    described = shell("configs", "--describe", "--topic", topic, "--all").lines
    assert len(described) == 1 + 33  # as many topic settings as Kafka 4.3 has
    assert "max.message.bytes=1048588 sensitive=false synonyms={" in "\n".join(described)


def test_invalid_topic_configs_are_rejected(shell: Shell, topic: str) -> None:
    alter = ("configs", "--alter", "--topic", topic, "--add-config")
    wrong = _refused(shell.attempt(*alter, "segment.bytes=abc"), "InvalidConfiguration")
    assert wrong == "segment.bytes: 'abc' is invalid: must be a whole number"
    unknown = _refused(shell.attempt(*alter, "retention.sm=1"), "InvalidConfiguration")
    assert unknown.startswith("retention.sm: no such topic setting")
    missing = shell.attempt(
        "configs", "--alter", "--topic", "missing", "--add-config", "retention.ms=1"
    )
    assert "topic 'missing' does not exist" in _refused(missing, "UnknownTopicOrPartition")
    assert len(shell("configs", "--describe", "--topic", topic).lines) == 1 + 1


@pytest.mark.usefixtures("clean_broker")
def test_broker_configs_override_cluster_defaults(shell: Shell) -> None:
    """A broker's value overrides the cluster default, which overrides the file's."""
    alter = ("configs", "--alter")
    altered = shell(*alter, "--broker", "1", "--add-config", "log.retention.ms=123456")
    assert altered.lines == ["Completed updating config for broker 1."]
    every = shell(
        *alter, "--broker-defaults", "--add-config", "log.retention.ms=234567,num.io.threads=9"
    )
    assert every.lines == ["Completed updating default config for brokers in the cluster."]
    assert shell("configs", "--describe", "--broker", "1").lines == [
        "Dynamic configs for broker 1 are:",
        "log.retention.ms=123456 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:"
        "log.retention.ms=123456, DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=234567, "
        "DEFAULT_CONFIG:log.retention.hours=168}",
    ]
    assert shell("configs", "--describe", "--broker-defaults").lines == [
        "Default configs for brokers in the cluster are:",
        "log.retention.ms=234567 sensitive=false "
        "synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=234567}",
        "num.io.threads=9 sensitive=false "
        "synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:num.io.threads=9}",
    ]
    shell(*alter, "--broker", "1", "--delete-config", "log.retention.ms")
    everything = shell("configs", "--describe", "--broker", "1", "--all").lines
    assert (
        "log.retention.ms=234567 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:"
        "log.retention.ms=234567, DEFAULT_CONFIG:log.retention.hours=168}" in everything
    )
    assert (
        "num.io.threads=9 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:"
        "num.io.threads=9, DEFAULT_CONFIG:num.io.threads=8}" in everything
    )
    assert (
        "num.partitions=2 sensitive=false synonyms={STATIC_BROKER_CONFIG:num.partitions=2, "
        "DEFAULT_CONFIG:num.partitions=1}" in everything
    )


@pytest.mark.usefixtures("clean_broker")
def test_a_dynamic_setting_takes_effect_at_once(shell: Shell, topic: str) -> None:
    """P7, E2: a record is rejected, the limit is raised, the same record is stored."""
    large = "k\t" + "x" * 1_200_000 + "\n"
    produce = ("console-producer", "--topic", topic)
    options = ("--command-property", "max.request.size=3000000")
    keys = ("--reader-property", "parse.key=true")
    refused = shell(*produce, *options, *keys, stdin=large)
    assert "errors.RecordTooLargeException: a batch of 12000" in refused.err
    assert "raise the limit" in refused.err
    shell("configs", "--alter", "--broker-defaults", "--add-config", "message.max.bytes=2000000")
    assert shell(*produce, *options, *keys, stdin=large).text == ""
    assert (
        sum(int(line.split(":")[2]) for line in shell("get-offsets", "--topic", topic).lines) == 1
    )


@pytest.mark.parametrize(
    ("entity", "setting", "reason"),
    [
        (["--broker", "1"], "log.dirs=elsewhere", "cannot change while the broker runs"),
        (["--broker", "1"], "node.id=9", "cannot change while the broker runs"),
        (["--broker-defaults"], "listeners=PLAINTEXT://:1", "is a setting of single brokers"),
        (["--broker", "1"], "num.io.threads=x", "must be a whole number"),
        (["--broker", "1"], "log.retentoin.ms=1", "no such setting"),
    ],
)
def test_read_only_broker_configs_are_rejected(
    shell: Shell, entity: list[str], setting: str, reason: str
) -> None:
    refused = shell.attempt("configs", "--alter", *entity, "--add-config", setting)
    message = _refused(refused, "InvalidRequest")
    assert message.startswith(setting.partition("=")[0])
    assert reason in message


def test_configs_of_an_unknown_broker_are_an_error(shell: Shell) -> None:
    assert shell("configs", "--describe", "--broker", "9").lines == [
        "The broker '9' doesn't exist and doesn't have dynamic config."
    ]


def test_logger_levels_are_altered_and_described(shell: Shell) -> None:
    logger = ("--broker-logger", "1")
    assert "root=INFO sensitive=false synonyms={}" in shell("configs", "--describe", *logger).lines
    shell("configs", "--alter", *logger, "--add-config", "penstock.broker.coordinator=DEBUG")
    assert "penstock.broker.coordinator=DEBUG " in shell("configs", "--describe", *logger).out
    shell("configs", "--alter", *logger, "--delete-config", "penstock.broker.coordinator")
    assert "penstock.broker.coordinator=INFO " in shell("configs", "--describe", *logger).out


def test_group_configs_are_altered_and_described(shell: Shell, name: str) -> None:
    group = ("--entity-type", "groups", "--entity-name", name)
    added = "consumer.session.timeout.ms=50000"
    assert shell("configs", "--alter", *group, "--add-config", added).lines == [
        f"Completed updating config for group {name}."
    ]
    described = shell("configs", "--describe", *group).lines
    assert described[0] == f"Dynamic configs for group {name} are:"
    assert any(line.startswith(f"{added} sensitive=false") for line in described)


def test_client_metrics_subscriptions_are_altered_and_described(shell: Shell, name: str) -> None:
    assert shell(
        *("client-metrics", "--alter", "--name", name, "--metrics", "org.apache.kafka.producer."),
        *("--interval", "30000", "--match", "client_id=x.*"),
    ).lines == [f"Altered client metrics config for {name}."]
    assert name in shell("client-metrics", "--list").lines
    described = shell("client-metrics", "--describe", "--name", name).lines
    assert described[0] == f"Client metrics configs for {name} are:"
    assert sorted(described[1:]) == [
        "interval.ms=30000",
        "match=client_id=x.*",
        "metrics=org.apache.kafka.producer.",
    ]
    refused = shell.attempt("client-metrics", "--alter", "--name", name, "--interval", "1")
    assert refused.exit == 1
    assert "must be between 100 and 3600000" in refused.out
    shell("client-metrics", "--delete", "--name", name)
    assert name not in shell("client-metrics", "--list").lines
