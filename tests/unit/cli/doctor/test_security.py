"""`penstock doctor --security`: the report for people and programs (X3)."""

import json
from pathlib import Path

import pytest

from penstock.broker.config.broker_config import ConfigError
from penstock.cli.doctor.security import report_security
from penstock.cli.output import Output

SETTINGS = """
listeners=PLAINTEXT://127.0.0.1:9092,CLIENTS://:9093
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL
sasl.enabled.mechanisms=SCRAM-SHA-512
super.users=User:admin
"""


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(SETTINGS)
    return path


def test_people_read_a_table_the_rights_and_warnings_with_remedies(
    properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report_security(Output(as_json=False), properties)
    head, plaintext, clients, rights, warning, remedy = capsys.readouterr().out.splitlines()
    assert head.split("  ")[0] == "LISTENER"
    assert "this machine" in plaintext
    assert "User:ANONYMOUS" in plaintext
    assert "*:9093" in clients
    assert "SCRAM-SHA-512" in clients
    assert rights == "rights: none: every client may do everything"
    assert warning.startswith("warning: super.users: has no effect without an authorizer")
    assert "authorizer.class.name=" in remedy


def test_programs_read_the_same_as_json(
    properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report_security(Output(as_json=True), properties)
    document = json.loads(capsys.readouterr().out)
    assert [listener["listener"] for listener in document["listeners"]] == ["PLAINTEXT", "CLIENTS"]
    assert document["listeners"][1]["is_public"] is True
    assert [warning["setting"] for warning in document["warnings"]] == ["super.users"]


def test_settings_that_no_broker_starts_with_are_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("\nprincipal.builder.class=com.example.Mine\n")
    with pytest.raises(ConfigError, match=r"server\.properties, line 2: principal\.builder\.class"):
        report_security(Output(as_json=False), path)
