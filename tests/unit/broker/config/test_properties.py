"""Files and options: what they say, and where an error stands."""

from pathlib import Path

import pytest

from penstock.broker.config.properties import load_broker_config, parse_overrides, read_properties
from penstock.broker.config.settings import ConfigError
from penstock.core.errors import KafkaError


def written(directory: Path, content: str | bytes) -> Path:
    path = directory / "server.properties"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(path: Path | None, *options: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_broker_config(path, options)
    assert "\n" not in refused.value.message
    return refused.value.message


def test_no_file_is_needed() -> None:
    config = load_broker_config(None)
    assert [str(spec) for spec in config.listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert config.list("log.dirs") == ["./penstock-data"]


def test_a_file_and_options_on_top(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "# a comment\n"
        "num.partitions = 3\n"
        "log.dirs=/a,\\\n"
        "    /b\n"
        "listeners=PLAINTEXT://:9092\n"
        'sasl.jaas.config: org.example.Login required \\\n  user_a="b=c";\n',
    )
    config = load_broker_config(
        path, ["num.partitions=5", "listeners=PLAINTEXT://:1", "broker.rack = r=1 "], hostname="h"
    )
    assert config.int("num.partitions") == 5
    assert config.list("log.dirs") == ["/a", "/b"]
    assert [str(spec) for spec in config.advertised] == ["PLAINTEXT://h:1"]
    assert config.str("broker.rack") == "r=1"
    assert config.value("sasl.jaas.config") == 'org.example.Login required user_a="b=c";'


@pytest.mark.parametrize(
    "data", [b"\xef\xbb\xbfbroker.rack=\xc3\xbc", b"broker.rack=\xfc", b"broker.rack=\\u00fc"]
)
def test_encodings(tmp_path: Path, data: bytes) -> None:
    assert load_broker_config(written(tmp_path, data)).str("broker.rack") == "ü"


def test_an_error_names_file_and_line(tmp_path: Path) -> None:
    path = written(tmp_path, "num.partitions=3\n\nlog.retension.ms=5\n")
    assert refusal(path) == (
        f"{path}, line 3: log.retension.ms: no such setting; did you mean log.retention.ms?"
    )
    path = written(tmp_path, "num.partitions=many\n")
    assert refusal(path).startswith(f"{path}, line 1: num.partitions: 'many' is invalid")


def test_an_error_in_an_option_names_the_option(tmp_path: Path) -> None:
    path = written(tmp_path, "num.partitions=3\n")
    assert refusal(path, "num.partitions=0").startswith("--set num.partitions: '0' is invalid")
    assert refusal(None, "nmu.partitions=1").startswith("--set nmu.partitions: no such setting")


def test_an_error_of_a_setting_that_is_not_in_the_file_has_no_line(tmp_path: Path) -> None:
    path = written(tmp_path, "connections.max.idle.ms=50\n")
    assert refusal(path).startswith("connection.failed.authentication.delay.ms: must be less")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert (
        refusal(tmp_path / "none")
        == f"{tmp_path / 'none'}: cannot be read: No such file or directory"
    )
    assert "cannot be read" in refusal(tmp_path)
    path = written(tmp_path, "a=1\nlog.dirs=C:\\users\n")
    assert refusal(path).startswith(f"{path}, line 2: \\u without four hexadecimal digits")


def test_the_last_of_two_counts(tmp_path: Path) -> None:
    properties = read_properties(written(tmp_path, "a=1\na=2\n"))
    assert (properties["a"].value, properties["a"].line) == ("2", 2)
    assert parse_overrides(["a=1", "a=2", "b="]) == {"a": "2", "b": ""}


@pytest.mark.parametrize("option", ["num.partitions", "=3", ""])
def test_invalid_options_are_refused(option: str) -> None:
    assert "must be key=value" in refusal(None, option)


def test_listeners_without_a_login_have_those_of_the_jaas_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X2: KAFKA_OPTS names the file, as for Kafka's brokers."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    jaas_file = tmp_path / "jaas.conf"
    jaas_file.write_text(f'KafkaServer {{ {module} user_ann="from-file"; }};')
    monkeypatch.setenv("KAFKA_OPTS", f"-Djava.security.auth.login.config={jaas_file}")
    settings = [
        "listeners=SASL_PLAINTEXT://:0,SASL_SSL://:0,PLAINTEXT://:0",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
        f'listener.name.sasl_ssl.plain.sasl.jaas.config={module} user_ann="own";',
    ]
    config = load_broker_config(None, settings)
    assert config.listener_setting("SASL_PLAINTEXT", "sasl.jaas.config", "PLAIN") == (
        f'{module} user_ann="from-file";'
    )
    assert "own" in str(config.listener_setting("SASL_SSL", "sasl.jaas.config", "PLAIN"))
    assert config.listener_setting("SASL_SSL", "sasl.jaas.config", "SCRAM-SHA-256") is None
    other_file = tmp_path / "other.conf"
    other_file.write_text(f'KafkaServer {{ {module} user_ann="other"; }};')
    setting = f"java.security.auth.login.config={other_file}"
    config = load_broker_config(None, [*settings, setting])
    assert "other" in str(config.listener_setting("SASL_PLAINTEXT", "sasl.jaas.config", "PLAIN"))
    jaas_file.write_text("KafkaServer {")
    with pytest.raises(KafkaError, match=r"JAAS file .*jaas\.conf: the section KafkaServer does"):
        load_broker_config(None, settings)
    jaas_file.unlink()
    with pytest.raises(KafkaError, match=r"KAFKA_OPTS: the JAAS file .* cannot be read \(No such"):
        load_broker_config(None, settings)
