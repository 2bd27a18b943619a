"""Steps of the broker's wall clock: groups and transactions measure intervals (C3, P4)."""

from pathlib import Path

import pytest

from penstock.client import Consumer, Producer
from penstock.core.ids import TimestampMs
from penstock.core.system_clock import SystemClock
from tests.support.broker.in_process import running_broker
from tests.support.protocol.requests import make_topic

HOUR_MS = 3_600_000
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "20",
    "log.retention.check.interval.ms": "20",
    "log.retention.ms": "-1",
}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_and_transactions_survive_steps_of_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    real_now, step_ms = SystemClock.now_ms, 0
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: TimestampMs(real_now(self) + step_ms))
    with running_broker(tmp_path, SETTINGS) as broker:
        with broker.connect() as client:
            make_topic(client, "t")
        servers = broker.bootstrap_servers
        with (
            Producer(bootstrap_servers=servers, transactional_id="x") as producer,
            Consumer(
                bootstrap_servers=servers,
                group_id="g",
                group_protocol=protocol,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
            ) as consumer,
        ):
            consumer.subscribe(["t"])
            producer.init_transactions()
            received: list[bytes | None] = []
            joined = set()
            for number, step_ms in enumerate((0, HOUR_MS, -HOUR_MS, 24 * HOUR_MS, 0)):
                producer.begin_transaction()
                producer.send("t", b"%d" % number).result(10)
                step_ms -= HOUR_MS  # a step forward would time the transaction out, as in Kafka
                producer.commit_transaction()
                while len(received) <= number:
                    received += [record.value for record in consumer.poll(5)]
                consumer.commit()
                joined.add(consumer.group_metadata().generation_id)
            assert received == [b"0", b"1", b"2", b"3", b"4"]
            assert len(joined) == 1, "no member was expelled"
