"""The recipe of docs/security-tls.md, as it is written there (X2)."""

import re
import subprocess
from pathlib import Path

from penstock.client import Admin
from tests.support.broker.process import PenstockBroker
from tests.support.client.cli import Cli
from tests.support.cluster.waiting import wait_until

DOC = Path(__file__).parents[2] / "docs" / "security-tls.md"


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", DOC.read_text(), re.DOTALL | re.MULTILINE)
    return [text for kind, text in found if kind == language]


def commands() -> tuple[str, str]:
    """Returns the commands of the page that make the authority, and the broker's certificate."""
    text = blocks("console")[0].replace("$ ", "")
    start = text.index("openssl req -newkey")
    return text[:start], text[start:]


def run(script: str, directory: Path) -> None:
    subprocess.run(
        ["bash", "-ec", script], cwd=directory, check=True, capture_output=True, timeout=60
    )


def test_the_recipe(tmp_path: Path) -> None:
    authority, certificate = commands()
    client_certificate = re.sub(r'-addext "[^"]*"', "", certificate.replace("broker", "ann"))
    run(authority + certificate + client_certificate, tmp_path)
    lines = blocks("")[0].replace("/etc/penstock", str(tmp_path)).splitlines()
    settings = dict(line.split("=", 1) for line in lines)
    settings |= {
        "listeners": "SSL://localhost:0",
        "node.id": "1",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ann1",
        "security.inter.broker.protocol": "SSL",
    }
    client = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "ann.pem"),
    }
    with PenstockBroker(tmp_path / "broker", settings) as broker:
        with Admin(
            bootstrap_servers=broker.bootstrap,
            security_protocol="SSL",
            ssl_cafile=str(tmp_path / "ca.pem"),
            ssl_certfile=str(tmp_path / "ann.crt"),
            ssl_keyfile=str(tmp_path / "ann.key"),
        ) as admin:
            assert admin.describe_cluster().nodes
        options = [
            part
            for name, value in ({"security.protocol": "SSL"} | client).items()
            for part in ("-X", f"{name}={value}")
        ]
        cli = Cli(broker.bootstrap, *options)
        # Only User:ann1, whom the rule has found in the certificate, may do this.
        cli("topic", "create", "t")
        (command,) = blocks("console")[1].strip().splitlines()
        words = command.removeprefix("$ penstock ").replace("/etc/penstock", str(tmp_path)).split()
        run(certificate, tmp_path)
        cli(*words)
        wait_until(lambda: "uses new keys and certificates" in broker.log.read_text())
