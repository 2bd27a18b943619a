"""`penstock txn` at our broker (P4)."""

from collections.abc import Mapping

import pytest

from penstock.records.build import build_batch
from penstock.records.record import Record
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.client.cli import Cli
from tests.support.coordinator.transaction_client import TxnProducer, produce_request
from tests.support.protocol.requests import NOW, make_topic


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {
        "log.retention.ms": "-1",
        "transaction.state.log.num.partitions": "2",
        "transaction.partition.verification.enable": "false",
    }


@pytest.fixture(scope="module")
def cli(broker: RunningBroker) -> Cli:
    return Cli(broker.bootstrap_servers)


def hang(client: WireClient, topic: str, producer_id: int) -> None:
    """A transactional record of a producer that no coordinator knows."""
    batch = build_batch(
        [Record(0, NOW, b"k", b"v")],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    response = client.request(produce_request("ghost", {(topic, 0): bytes(batch)}), 11)
    [part] = response.responses[0].partition_responses
    assert part.error_code == 0, part


def test_a_transaction_that_is_open(cli: Cli, client: WireClient) -> None:
    make_topic(client, "t", 2)
    producer = TxnProducer.started(client, "one")
    producer.write("t", b"x", partition=1)
    assert [["one", "0", str(producer.producer_id), "Ongoing"]] == cli.rows(
        "txn", "list", "--state", "ongoing", "--match", "on."
    )
    assert cli.json("txn", "list", "--producer-id", "424242") == []
    assert cli.json("txn", "list", "--duration", "3600000") == []
    [described] = cli.json("txn", "describe", "one")
    assert described.pop("start_time_ms") > NOW
    assert 0 <= described.pop("duration_ms") < 60_000
    assert described == {
        "transactional_id": "one",
        "coordinator_id": 0,
        "state": "Ongoing",
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "timeout_ms": 60_000,
        "partitions": [{"topic": "t", "partition": 1}],
    }
    [state] = cli.json("txn", "producers", "t:1")
    assert (state["producer_id"], state["current_transaction_start_offset"]) == (
        producer.producer_id,
        0,
    )
    [row] = cli.rows("txn", "describe", "one")
    assert row[-1] == "t-1"

    assert "--yes" in cli.refused("txn", "force-terminate", "one", status=2)
    assert cli.json("txn", "force-terminate", "one", "--yes")["terminated"]
    assert cli.json("txn", "describe", "one")[0]["partitions"] == []


def test_a_transaction_that_hangs_is_found_and_aborted(cli: Cli, client: WireClient) -> None:
    """P4: one whose coordinator does not know of it; readers go on behind it."""
    make_topic(client, "hung")
    hang(client, "hung", 777)
    alive = TxnProducer.started(client, "alive")
    alive.write("hung", b"x")
    assert cli.json("offsets", "hung")[0]["last_stable"] == 0

    result = cli.json("txn", "find-hanging")
    assert [(row["topic"], row["producer_id"], row["start_offset"]) for row in result] == [
        ("hung", 777, 0)
    ]
    now = cli.json("txn", "find-hanging", "hung:0", "--max-transaction-timeout", "0")
    assert [row["producer_id"] for row in now] == [777]
    assert cli.json("txn", "find-hanging", "--broker", "0") == result

    abort = ("txn", "abort", "hung:0")
    assert "no open transaction begins at offset 5" in cli.refused(*abort, "--start-offset", "5")
    assert "--yes" in cli.refused(*abort, "--start-offset", "0", status=2)
    assert cli.json(*abort, "--start-offset", "0", "--yes") == {
        "topic": "hung",
        "partition": 0,
        "producer_id": 777,
        "producer_epoch": 0,
        "aborted": True,
    }
    assert cli.json("txn", "find-hanging") == []
    assert cli.json("offsets", "hung")[0]["last_stable"] == 1
    alive.commit()


def test_a_transaction_is_aborted_by_its_numbers(cli: Cli, client: WireClient) -> None:
    make_topic(client, "numbers")
    hang(client, "numbers", 778)
    producer_options = ("--producer-id", "778", "--producer-epoch", "0")
    assert "name the transaction" in cli.refused(
        "txn", "abort", "numbers:0", *producer_options, status=2
    )
    cli("txn", "abort", "numbers:0", *producer_options, "--coordinator-epoch", "-1", "--yes")
    assert cli.json("txn", "find-hanging", "numbers") == []


def test_what_is_not_there(cli: Cli) -> None:
    error = cli.refused("txn", "describe", "missing")
    assert "penstock txn list" in error
    assert "(TRANSACTIONAL_ID_NOT_FOUND)" in error
    assert "there is no topic missing" in cli.refused("txn", "producers", "missing")
    cli.refused("txn", "abort", "t", "--start-offset", "0", status=2)
    cli.refused("txn", "list", "--state", "sleeping", status=2)
