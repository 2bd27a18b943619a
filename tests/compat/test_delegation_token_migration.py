"""Delegation tokens of Kafka 4.3.1 are valid at Penstock, and at Kafka after an export (X2)."""

from pathlib import Path
from typing import Any

import pytest

from penstock.client.admin import DelegationToken
from penstock.client.admin.admin import Admin
from tests.compat.test_delegation_token_answers import (
    BROKER_SETTINGS,
    KAFKA_SETTINGS,
    PENSTOCK_SETTINGS,
    SECRET,
)
from tests.compat.test_kafka_export import export
from tests.support.broker.in_process import running_broker
from tests.support.kafka.broker import KafkaBroker, KafkaParts, wait_until


def login(address: str, mechanism: str, user: str, password: str, **settings: Any) -> Admin:
    return Admin(
        bootstrap_servers=address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username=user,
        sasl_plain_password=password,
        **settings,
    )


def check_tokens(address: str, *tokens: DelegationToken) -> None:
    with login(address, "PLAIN", "ann", "ann-secret") as ann:
        assert set(ann.describe_delegation_token()) == set(tokens)
    for token in tokens:
        with login(
            address, "SCRAM-SHA-256", token.token_id, token.password, sasl_tokenauth=True
        ) as holder:
            holder.list_topics()


@pytest.mark.long
def test_tokens_move_to_penstock_and_back(kafka_parts: KafkaParts, tmp_path: Path) -> None:
    kafka_settings = {**BROKER_SETTINGS, **SECRET, **KAFKA_SETTINGS}
    with KafkaBroker(kafka_parts, tmp_path / "kafka", kafka_settings) as kafka:
        with login(kafka.bootstrap, "PLAIN", "ann", "ann-secret") as ann:
            token = ann.create_delegation_token(renewers=["User:bob", "User:CN=x, O=y:z"])
            ended = ann.create_delegation_token()
            # Kafka's controller responds before its broker knows of a change.
            wait_until(lambda: len(ann.describe_delegation_token()) == 2, "both tokens")
            ann.expire_delegation_token(ended.hmac)
        kafka.stop()

    settings = {
        **BROKER_SETTINGS,
        **SECRET,
        **PENSTOCK_SETTINGS,
        "node.id": "1",
        "log.dirs": str(kafka.data),
    }
    with running_broker(tmp_path / "penstock", settings) as broker:
        address = f"127.0.0.1:{broker.addresses[0].port}"
        check_tokens(address, token)
        with login(address, "PLAIN", "ann", "ann-secret") as ann:
            second = ann.create_delegation_token()

    again = KafkaBroker(kafka_parts, tmp_path / "again", kafka_settings)
    exported = export({"node.id": "1", "log.dirs": str(kafka.data)}, [again.data])
    assert exported["left_out"] == []
    with again:
        check_tokens(again.bootstrap, token, second)
