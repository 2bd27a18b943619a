"""kafka-configs.sh for users, clients and addresses: quotas (X4) and SCRAM credentials (X2)."""

import re

import pytest

from tests.support.kafka.tools import Shell


def _quotas(shell: Shell, *entity: str) -> list[str]:
    """Returns the quotas as the tool prints them."""
    return shell("configs", "--describe", *entity).lines


def test_user_quotas_are_altered_and_described(shell: Shell, name: str) -> None:
    user = ("--user", name)
    rates = "consumer_byte_rate=2048,producer_byte_rate=1024"
    changed = shell("configs", "--alter", *user, "--add-config", rates)
    assert changed.lines == [f"Completed updating config for user {name}."]
    assert _quotas(shell, *user) == [
        f"Quota configs for user-principal '{name}' are "
        "consumer_byte_rate=2048.0, producer_byte_rate=1024.0"
    ]
    shell("configs", "--alter", *user, "--delete-config", "producer_byte_rate,consumer_byte_rate")
    assert _quotas(shell, *user) == []


def test_quotas_of_a_users_client_are_altered_and_described(shell: Shell, name: str) -> None:
    pair = ("--user", name, "--client", "app")
    shell("configs", "--alter", *pair, "--add-config", "request_percentage=50")
    assert _quotas(shell, *pair) == [
        f"Quota configs for user-principal '{name}', client-id 'app' are request_percentage=50.0"
    ]


@pytest.mark.parametrize(
    ("entity", "quota", "described"),
    [
        (["--user-defaults"], "producer_byte_rate=9999", "the default user-principal"),
        (["--client-defaults"], "consumer_byte_rate=78", "the default client-id"),
        (["--client", "quick"], "consumer_byte_rate=77", "client-id 'quick'"),
        (["--ip", "127.0.0.9"], "connection_creation_rate=10", "ip '127.0.0.9'"),
        (["--ip-defaults"], "connection_creation_rate=1000", "the default ip"),
    ],
)
def test_client_and_ip_quotas_are_altered_and_described(
    shell: Shell, entity: list[str], quota: str, described: str
) -> None:
    shell("configs", "--alter", *entity, "--add-config", quota)
    try:
        assert _quotas(shell, *entity) == [f"Quota configs for {described} are {quota}.0"]
    finally:
        shell("configs", "--alter", *entity, "--delete-config", quota.partition("=")[0])
    assert _quotas(shell, *entity) == []


def test_an_invalid_quota_is_rejected(shell: Shell, name: str) -> None:
    refused = shell.attempt(
        "configs", "--alter", "--user", name, "--add-config", "producer_byte_rate=-1"
    )
    assert refused.exit == 1
    assert "InvalidRequestException: the quota producer_byte_rate must be greater" in refused.err


def test_a_quota_is_enforced(shell: Shell, name: str) -> None:
    """X4: the client receives its throttle time, and the tool's metrics show it.

    All records go out in one request, so that nothing waits until the client may send again.
    """
    shell("topics", "--create", "--topic", name, "--partitions", "1")
    shell("configs", "--alter", "--client", name, "--add-config", "producer_byte_rate=5000")
    slow, quick = (
        shell(
            *("producer-perf-test", "--topic", name, "--num-records", "1500"),
            *("--record-size", "100", "--throughput", "-1", "--print-metrics"),
            *("--command-property", f"client.id={client}"),
            *("batch.size=1000000", "linger.ms=60000"),
        )
        for client in (name, "another")
    )
    assert _throttle_time(slow.out) > 0
    assert _throttle_time(quick.out) == 0


def _throttle_time(metrics: str) -> float:
    match = re.search(r"produce-throttle-time-max:\{.*?\}\s*: (\S+)", metrics)
    assert match is not None, metrics
    return float(match[1])


def test_scram_credentials_are_created_and_deleted(shell: Shell, name: str) -> None:
    user = ("--user", name)
    for mechanism in (
        "SCRAM-SHA-256=[iterations=8192,password=secret]",
        "SCRAM-SHA-512=[password=s]",
    ):
        changed = shell("configs", "--alter", *user, "--add-config", mechanism)
        assert changed.lines == [f"Completed updating config for user {name}."]
    described = (
        f"SCRAM credential configs for user-principal '{name}' are "
        "SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096"
    )
    assert shell("configs", "--describe", *user).lines == [described]
    assert described in shell("configs", "--describe", "--entity-type", "users").lines
    shell("configs", "--alter", *user, "--delete-config", "SCRAM-SHA-256")
    again = shell.attempt("configs", "--alter", *user, "--delete-config", "SCRAM-SHA-256")
    assert again.exit == 1
    assert f"user '{name}' has no SCRAM-SHA-256 credential to delete" in again.err
    assert shell("configs", "--describe", *user).lines == [
        f"SCRAM credential configs for user-principal '{name}' are SCRAM-SHA-512=iterations=4096"
    ]
