"""`penstock doctor --security`: explains the security posture of a broker's settings (X3)."""

import socket
from pathlib import Path

from penstock.broker.config.properties import load_broker_config
from penstock.broker.config.security_posture import SecurityPosture, describe_security
from penstock.cli.output import Output


def report_security(out: Output, properties: Path) -> None:
    """Prints who can get in where, as whom, with which rights, and what is less safe than it looks.

    Raises KafkaError if a broker would not start with these settings.
    """
    config = load_broker_config(properties, hostname=socket.gethostname())
    posture = describe_security(config, config.listeners)
    if out.as_json:
        out.document(_document(posture))
        return
    out.table(
        ["listener", "address", "reached from", "encryption", "login", "clients are", "may do"],
        [
            (
                listener.listener,
                listener.address,
                "any machine" if listener.is_public else "this machine",
                listener.encryption,
                listener.login,
                listener.principal,
                listener.rights,
            )
            for listener in posture.listeners
        ],
    )
    out.line(f"rights: {posture.authorization}")
    if posture.super_users:
        out.line(f"super users: {', '.join(posture.super_users)}")
    if posture.zookeeper is not None:
        out.line(f"ZooKeeper: {posture.zookeeper}")
    if posture.delegation_tokens is not None:
        out.line(f"delegation tokens: {posture.delegation_tokens}")
    for warning in posture.warnings:
        out.line(f"warning: {warning.setting}: {warning.problem}")
        out.line(f"  → {warning.remedy}")


def _document(posture: SecurityPosture) -> dict[str, object]:
    return {
        "listeners": [listener._asdict() for listener in posture.listeners],
        "authorization": posture.authorization,
        "super_users": posture.super_users,
        "zookeeper": posture.zookeeper,
        "delegation_tokens": posture.delegation_tokens,
        "warnings": [warning._asdict() for warning in posture.warnings],
    }
