"""Settings of a subscription to clients' metrics."""

import pytest

from penstock.broker.config.client_metrics_config import (
    describe_client_metrics,
    validate_client_metrics_configs,
)
from penstock.broker.config.entry import Synonym
from penstock.broker.config.settings import ConfigError
from penstock.protocol.enums import ConfigSource


def test_valid_settings_are_accepted() -> None:
    validate_client_metrics_configs(
        {
            "interval.ms": "100",
            "match": "client_id=app.*,client_source_port=9[0-9]+",
            "metrics": "org.apache.kafka.producer.,org.apache.kafka.consumer.",
        }
    )
    validate_client_metrics_configs({"metrics": "*", "match": ""})


@pytest.mark.parametrize(
    ("name", "text", "expected_error"),
    [
        ("interval.ms", "99", "between 100 and 3600000"),
        ("interval.ms", "3600001", "between 100 and 3600000"),
        ("match", "app", "must be name=pattern pairs"),
        ("match", "client_id=a=b", "must be name=pattern pairs"),
        ("match", "client_id=*", "not a regular expression"),
        ("interval", "5", "did you mean interval.ms?"),
    ],
)
def test_invalid_settings_are_refused(name: str, text: str, expected_error: str) -> None:
    with pytest.raises(ConfigError) as refused:
        validate_client_metrics_configs({name: text})
    assert refused.value.message.startswith(f"{name}: ")
    assert expected_error in refused.value.message


def test_described_settings() -> None:
    interval, match, metrics = describe_client_metrics({"match": "client_id=a, client_id=b"})
    source = ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG
    assert (interval.value, interval.source, interval.synonyms) == (
        "300000",
        ConfigSource.DEFAULT_CONFIG,
        (),
    )
    assert (match.value, match.source) == ("client_id=a,client_id=b", source)
    assert match.synonyms == (Synonym("match", "client_id=a,client_id=b", source),)
    assert metrics.value == ""
    assert [entry.name for entry in describe_client_metrics({}, ["metrics"])] == ["metrics"]
