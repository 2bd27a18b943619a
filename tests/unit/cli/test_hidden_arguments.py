"""Passwords among the arguments are not readable in the process list (X2)."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.broker.config.broker_settings import BROKER_SETTINGS
from penstock.cli.hidden_arguments import secret_ranges

CERTIFICATES = {"ssl.keystore.certificate.chain", "ssl.truststore.certificates"}
"""Sensitive to Kafka, but public."""


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name, setting in BROKER_SETTINGS.items()
        if setting.sensitive and name not in CERTIFICATES
    ),
)
def test_every_secret_setting_is_hidden_in_every_form(name: str) -> None:
    for prefix in ("", "--set=", "-X", "listener.name.clients.plain.", "--set=listener.name.a."):
        arguments = f"penstock\0serve\0{prefix}{name}=se=cr et\0--log-level\0info\0".encode()
        ((start, end),) = secret_ranges(arguments)
        assert arguments[start:end] == b"se=cr et"


@pytest.mark.parametrize("argument", ["log.dirs=/secret/place", "x", "--password", "password"])
def test_other_arguments_stay(argument: str) -> None:
    assert secret_ranges(f"penstock\0{argument}\0".encode()) == []


def test_a_running_process_shows_no_password() -> None:
    program = (
        "import sys; from penstock.cli.hidden_arguments import hide_secrets; hide_secrets(); "
        "print(sys.argv[2], flush=True); sys.stdin.read()"
    )
    arguments = ["--set", 'sasl.jaas.config=user_ann="ann-secret";', "--set", "node.id=1"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert "ann-secret" in process.stdout.readline()
        shown = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
        process.communicate()
    assert b"--set" in shown
    assert b"node.id=1" in shown
    assert any(argument.startswith(b"sasl.jaas.config=xxx") for argument in shown)
    assert not any(b"ann-secret" in argument for argument in shown)
