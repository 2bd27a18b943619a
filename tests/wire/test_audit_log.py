"""The audit log of a running broker: logins, denials and changes, without secrets (X3)."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.config.broker_config import ConfigError
from penstock.core.errors import ErrorCode
from penstock.records.record import Record
from penstock.security.acl import AclOperation, ResourceType
from penstock.security.scram_credential import ScramMechanism
from tests.support.broker.in_process import running_broker
from tests.support.broker.logins import (
    AUTHORIZER,
    SASL_SETTINGS,
    logged_in,
    plain_login,
    set_password,
)
from tests.support.protocol.admin import BROKER, allow, create_topic, try_alter, try_produce


def read_lines(directory: Path) -> list[dict[str, Any]]:
    text = (directory / "audit-1.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_who_did_what(tmp_path: Path) -> None:
    settings = {
        **SASL_SETTINGS,
        "node.id": "1",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin",
        "audit.log.dir": str(tmp_path),
    }
    with running_broker(tmp_path, settings) as broker:
        with broker.connect("SASL_PLAINTEXT") as stranger:
            assert plain_login(stranger, "ann", "wrong-secret").error_code
        with logged_in(broker, "admin") as admin:
            assert create_topic(admin, "orders") is ErrorCode.NONE
            assert create_topic(admin, "orders") is ErrorCode.TOPIC_ALREADY_EXISTS
            allow(admin, "User:bob", AclOperation.READ, ResourceType.TOPIC, "orders")
            set_password(admin, ScramMechanism.SCRAM_SHA_256, "carol", "carol-secret")
            secret = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
            jaas = SASL_SETTINGS[secret]
            try_alter(admin, BROKER, "1", {secret: jaas, "log.cleaner.threads": "1"})
        with logged_in(broker, "bob") as bob:
            for _ in range(3):
                response = try_produce(bob, "orders", Record(0, 0, None, b"x"))
                assert response.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert create_topic(bob, "mine") is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    lines = read_lines(tmp_path)
    text = json.dumps(lines)
    assert "-secret" not in text
    assert all(line["broker_id"] == 1 and line["time"].endswith("Z") for line in lines)

    failed, *logins = [line for line in lines if line["event"] == "login"]
    assert failed["user"] == "ann"
    assert failed["result"] == "SASL_AUTHENTICATION_FAILED"
    assert failed["listener"] == "SASL_PLAINTEXT"
    assert failed["address"] == "127.0.0.1"
    assert [(login["principal"], login["mechanism"]) for login in logins] == [
        ("User:admin", "PLAIN"),
        ("User:bob", "PLAIN"),
    ]

    changes = [line for line in lines if line["event"] == "change"]
    assert {change["principal"] for change in changes} == {"User:admin"}
    created, repeated, acl, user, configs = changes
    assert (created["api"], created["resource"]) == ("CREATE_TOPICS", "orders")
    assert created["details"]["partitions"] == 1
    assert (created["result"], repeated["result"]) == ("SUCCESS", "TOPIC_ALREADY_EXISTS")
    assert acl["details"]["acl"]["principal"] == "User:bob"
    assert (user["resource_type"], user["resource"]) == ("USER", "carol")
    assert configs["details"]["set"] == {secret: "(hidden)", "log.cleaner.threads": "1"}

    first, *rest = [line for line in lines if line["event"] == "denial"]
    assert first["api"] == "PRODUCE"
    assert (first["operation"], first["resource"]) == ("WRITE", "orders")
    assert "count" not in first
    assert [(line["api"], line["resource"], line.get("count")) for line in rest] == [
        ("CREATE_TOPICS", "mine", None),
        ("PRODUCE", "orders", 2),  # the repetitions, when the window ends
    ]


def test_a_directory_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    settings = {"audit.log.dir": str(tmp_path / "missing")}
    with (
        pytest.raises(ConfigError, match=r"audit\.log\.dir"),
        running_broker(tmp_path, settings),
    ):
        pass
