"""Settings: parsing, formatting and validation."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.broker.config.broker_settings import BROKER_SETTINGS, family_of, setting_of
from penstock.broker.config.client_metrics_config import CLIENT_METRICS_SETTINGS
from penstock.broker.config.group_config import GROUP_SETTINGS
from penstock.broker.config.settings import (
    ConfigError,
    Dynamic,
    Importance,
    Setting,
    Table,
    format_value,
    nearest,
)
from penstock.broker.config.topic_config import TOPIC_SETTINGS, TOPIC_SYNONYMS
from penstock.broker.config.validators import Value
from penstock.core.errors import ErrorCode
from penstock.protocol.enums import ConfigType

ALL = [
    setting
    for table in (BROKER_SETTINGS, TOPIC_SETTINGS, GROUP_SETTINGS, CLIENT_METRICS_SETTINGS)
    for setting in table.values()
]


def setting_of_type(kind: str, validator: str = ".", default: str = "null") -> Setting:
    return Table(f"some.setting {kind} M-* {validator} {default}\n    What it does.")[
        "some.setting"
    ]


def refusal(setting: Setting, text: str) -> str:
    with pytest.raises(ConfigError) as refused:
        setting.parse(text)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert refused.value.name == "some.setting"
    assert "\n" not in refused.value.message
    return refused.value.message


def test_a_row_of_a_table_defines_a_setting() -> None:
    table = Table("\na.b LONG Hc*i 0.. 5\n    What it does.\nc.d LIST Lb-o .\n    No more.\n")
    assert table["a.b"] == Setting(
        name="a.b",
        type=ConfigType.LONG,
        default="5",
        doc="What it does.",
        validator="0..",
        importance=Importance.HIGH,
        dynamic=Dynamic.CLUSTER_WIDE,
        effect=True,
        internal=True,
        old=False,
    )
    second = table["c.d"]
    assert (second.default, second.dynamic, second.effect, second.old) == (
        "",
        Dynamic.PER_BROKER,
        False,
        True,
    )
    assert (list(table), len(table), "a.b" in table, "x" in table) == (
        ["a.b", "c.d"],
        2,
        True,
        False,
    )
    with pytest.raises(KeyError):
        table["x"]


@pytest.mark.parametrize(
    ("kind", "text", "value", "normalized"),
    [
        ("BOOLEAN", " TRUE ", True, "true"),
        ("BOOLEAN", "false", False, "false"),
        ("STRING", "  a b ", "a b", "a b"),
        ("INT", " +5", 5, "5"),
        ("INT", "-2147483648", -(2**31), "-2147483648"),
        ("SHORT", "32767", 32767, "32767"),
        ("LONG", "9223372036854775807", 2**63 - 1, "9223372036854775807"),
        ("DOUBLE", "1", 1.0, "1.0"),
        ("DOUBLE", "5e-1", 0.5, "0.5"),
        ("DOUBLE", "2d", 2.0, "2.0"),
        ("DOUBLE", ".5", 0.5, "0.5"),
        ("LIST", "a , b,c", ["a", "b", "c"], "a,b,c"),
        ("LIST", "a,b,a", ["a", "b"], "a,b"),
        ("LIST", "", [], ""),
        ("CLASS", "a.b.C", "a.b.C", "a.b.C"),
        ("PASSWORD", " secret ", "secret", "secret"),
    ],
)
def test_text_is_parsed_as_in_java(kind: str, text: str, value: Value, normalized: str) -> None:
    setting = setting_of_type(kind)
    assert setting.parse(text) == value
    assert type(setting.parse(text)) is type(value)
    assert setting.normalize(text) == normalized


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9999999.0, "9999999.0"),
        (10000000.0, "1.0E7"),
        (12345678.5, "1.23456785E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (-2.5e-10, "-2.5E-10"),
        (float("inf"), "Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_doubles_are_formatted_as_in_java(value: float, text: str) -> None:
    assert format_value(value) == text


@given(st.floats(allow_nan=False))
def test_a_formatted_double_is_parsed_to_the_same_value(value: float) -> None:
    text = format_value(value)
    assert text is not None
    assert setting_of_type("DOUBLE").parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "expected_error"),
    [
        ("BOOLEAN", "yes", "true or false"),
        ("INT", "2147483648", "between -2147483648 and 2147483647"),
        ("INT", "1.5", "whole number"),
        ("INT", "", "whole number"),
        ("INT", "1_000", "whole number"),
        ("INT", "१", "whole number"),
        ("SHORT", "32768", "between -32768 and 32767"),
        ("LONG", "9223372036854775808", "between"),
        ("DOUBLE", "half", "must be a number"),
        ("DOUBLE", "1_0", "must be a number"),
        ("LIST", "a,,b", "an empty item between commas"),
        ("LIST", "a,", "an empty item between commas"),
    ],
)
def test_text_of_another_type_is_refused(kind: str, text: str, expected_error: str) -> None:
    message = refusal(setting_of_type(kind), text)
    assert message.startswith("some.setting: ")
    assert repr(text) in message
    assert expected_error in message


@pytest.mark.parametrize(
    ("kind", "validator", "good", "bad", "expected_error"),
    [
        ("INT", "1..", "1", "0", "at least 1"),
        ("INT", "-1..9", "9", "10", "between -1 and 9"),
        ("INT", "1..9|-1", "-1", "0", "between 1 and 9, or -1"),
        ("DOUBLE", "0..0.5", "0.5", "0.6", "between 0 and 0.5"),
        ("DOUBLE", "0..1", "1", "NaN", "between 0 and 1"),
        ("STRING", "{a,b}", "b", "B", "one of a, b"),
        ("STRING", "~{A,B}", "b", "c", "one of A, B"),
        ("STRING", "+", "x", " ", "must not be empty"),
        ("LIST", "+", "x", "", "must not be empty"),
        ("LIST", "{a,b}", "b,a", "a,c", "one of a, b"),
        ("LIST", "+{a,b}", "b", "", "must not be empty"),
        ("STRING", "version", "3.9-IV0", "newest", "a Kafka version"),
        ("LIST", "replicas", "0:1,2:3", "0-1", "partition:broker"),
        ("LIST", "replicas", "*", "*,0:1", "partition:broker"),
        ("STRING", "reset", "by_duration:PT1H30M", "by_duration:P", "by_duration"),
        ("STRING", "reset", "earliest", "first", "latest, earliest"),
        ("LIST", "match", "client_id=a.*,client_source_port=1", "id=a", "client_instance_id"),
        ("LIST", "match", "client_id=[ab]", "client_id=[", "not a regular expression"),
    ],
)
def test_values_beyond_the_limits_are_refused(
    kind: str, validator: str, good: str, bad: str, expected_error: str
) -> None:
    setting = setting_of_type(kind, validator)
    setting.parse(good)
    assert expected_error in refusal(setting, bad)


def test_a_secret_is_not_repeated_in_an_error() -> None:
    message = refusal(setting_of_type("PASSWORD", "{good}"), "hush")
    assert "hush" not in message


@pytest.mark.parametrize("setting", ALL, ids=lambda setting: setting.name)
def test_every_default_is_valid_and_every_doc_is_a_line(setting: Setting) -> None:
    if setting.default is not None:
        assert setting.normalize(setting.default) == setting.default
        assert setting.default_value() == setting.parse(setting.default)
    assert setting.doc.endswith(".")
    assert setting.sensitive is (setting.type is ConfigType.PASSWORD)


def test_settings_that_the_code_reads_are_marked_as_effective() -> None:
    """Code that starts to read a setting must change the flag in its row."""
    package = Path(penstock.__file__).parent
    read = {synonym for synonyms in TOPIC_SYNONYMS.values() for synonym in synonyms}
    read -= {"log.local.retention.bytes", "log.local.retention.ms"}  # only described
    # Clients and commands name settings of brokers without reading them.
    excluded_packages = [
        package / name for name in ("broker/config", "cli", "client", "spark", "testing")
    ]
    for path in package.rglob("*.py"):
        if not any(path.is_relative_to(excluded_package) for excluded_package in excluded_packages):
            read |= set(re.findall(r'"([a-z0-9]+\.[a-z0-9.]+)"', path.read_text()))
    read_settings = read & set(BROKER_SETTINGS)
    assert "num.partitions" in read_settings
    assert sorted(name for name in read_settings if not BROKER_SETTINGS[name].effect) == []


def test_a_setting_of_a_listener_has_the_definition_of_its_base_name() -> None:
    """X1."""
    for name, base in (
        ("listener.name.internal.ssl.keystore.location", "ssl.keystore.location"),
        ("listener.name.l.scram-sha-256.sasl.jaas.config", "sasl.jaas.config"),
        ("listener.name.l.plain.connections.max.reauth.ms", "connections.max.reauth.ms"),
    ):
        assert setting_of(name) is BROKER_SETTINGS[base]
        assert family_of(name) == (name, base)
    assert setting_of("listener.name.l.colour") is None
    assert setting_of("colour") is None


def test_the_nearest_name_is_suggested() -> None:
    assert nearest("log.retension.ms", BROKER_SETTINGS) == "; did you mean log.retention.ms?"
    assert nearest("zzz", BROKER_SETTINGS) == ""
