"""Limits of sizes that do not fit each other are named at start (P7)."""

import pytest

from penstock.broker.config.broker_config import BrokerConfig


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, []),
        ({"message.max.bytes": "1048589"}, ["message.max.bytes"]),
        ({"message.max.bytes": "5000000", "replica.fetch.max.bytes": "5000000"}, []),
        ({"replica.fetch.max.bytes": "20000000"}, ["replica.fetch.max.bytes"]),
        (
            {"message.max.bytes": "60000000", "replica.fetch.max.bytes": "60000000"},
            ["replica.fetch.max.bytes", "message.max.bytes"],
        ),
    ],
)
def test_sizes_that_do_not_fit(settings: dict[str, str], names: list[str]) -> None:
    warnings = BrokerConfig.from_properties(settings).warnings()
    assert [warning.partition(":")[0] for warning in warnings] == names


def test_the_warning_names_both_limits_and_the_remedy() -> None:
    (warning,) = BrokerConfig.from_properties({"message.max.bytes": "2000000"}).warnings()
    assert "2000000" in warning
    assert "replica.fetch.max.bytes" in warning
    assert "raise" in warning
