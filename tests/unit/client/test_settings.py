"""Settings are Kafka's, by Kafka's names and defaults (P5, C5)."""

import pytest

from penstock.client.errors import ConfigError
from penstock.client.settings import (
    AdminOptions,
    CommonOptions,
    ConsumerOptions,
    ProducerOptions,
    from_properties,
    items,
    resolve,
    settings_of,
)

HERE = "localhost:9092"


def test_defaults_are_filled_in() -> None:
    """P5: the accumulator's own numbers."""
    settings = resolve(ProducerOptions, {"bootstrap_servers": HERE, "linger_ms": 7})
    assert settings["linger_ms"] == 7
    assert settings["buffer_memory"] == 32 * 1024 * 1024
    assert settings["batch_size"] == 16 * 1024
    assert settings["acks"] == "all"
    assert set(settings) == set(settings_of(ProducerOptions))


def test_text_is_converted_as_property_files_need_it() -> None:
    options = {"bootstrap_servers": HERE, "enable_auto_commit": "False", "max_poll_records": "20"}
    settings = resolve(ConsumerOptions, options)
    assert settings["enable_auto_commit"] is False
    assert settings["max_poll_records"] == 20


def test_choices_are_not_case_sensitive() -> None:
    settings = resolve(CommonOptions, {"bootstrap_servers": HERE, "security_protocol": "sasl_ssl"})
    assert settings["security_protocol"] == "SASL_SSL"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "bootstrap_servers is missing"),
        ({"lingerms": 3}, "did you mean linger_ms"),
        ({"linger.ms": 3}, "did you mean linger_ms"),
        ({"completely_else": 3}, "there is no setting completely_else"),
        ({"linger_ms": -1}, "linger_ms=-1: it must be at least 0"),
        ({"linger_ms": "soon"}, "it must be a whole number"),
        ({"linger_ms": True}, "it must be a whole number"),
        ({"linger_ms": 1.5}, "it must be a whole number"),
        ({"compression_type": "rar"}, "it must be one of none, gzip, snappy, lz4, zstd"),
        ({"partitioner_ignore_keys": "perhaps"}, "it must be true or false"),
        ({"client_id": 7}, "it must be text"),
        ({"acks": {"all": 1}}, "acks="),
    ],
)
def test_the_error_of_an_invalid_setting_has_its_name(
    options: dict[str, object], message: str
) -> None:
    settings = options if not options else {"bootstrap_servers": HERE, **options}
    with pytest.raises(ConfigError, match=message):
        resolve(ProducerOptions, settings)


def test_property_files_become_arguments_and_unknown_names() -> None:
    options, unknown = from_properties(
        AdminOptions,
        {
            "bootstrap.servers": HERE,
            "security.protocol": "SSL",
            "key.serializer": "org.example.Mine",
            "max.poll.records": "3",
        },
    )
    assert options == {"bootstrap_servers": HERE, "security_protocol": "SSL"}
    assert unknown == ["key.serializer", "max.poll.records"]


def test_lists_come_with_commas_or_as_lists() -> None:
    assert items("a:1, b:2,") == items(["a:1", "b:2"]) == ["a:1", "b:2"]


def test_every_setting_is_explained() -> None:
    for kind in (ProducerOptions, ConsumerOptions, AdminOptions):
        assert all(about.doc for _, about in settings_of(kind).values())
