"""kafka-producer-perf-test.sh and kafka-consumer-perf-test.sh against our broker (M4)."""

import re

from tests.support.kafka.tools import Shell

RECORDS = 5000
SUMMARY = re.compile(
    r"(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), [\d.]+ ms avg latency, "
    r"[\d.]+ ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99.9th\."
)


def test_the_perf_tools_report_all_records(shell: Shell, name: str) -> None:
    shell("topics", "--create", "--topic", name, "--partitions", "2")
    produce = (
        *("producer-perf-test", "--topic", name, "--throughput", "-1"),
        *("--num-records", str(RECORDS), "--record-size", "100"),
    )
    for properties in (["acks=all"], ["acks=1", "compression.type=lz4"]):
        sent = SUMMARY.fullmatch(shell(*produce, "--command-property", *properties).lines[-1])
        assert sent is not None
        assert int(sent[1]) == RECORDS
        assert float(sent[2]) > 0

    consume = ("consumer-perf-test", "--topic", name, "--num-records", str(2 * RECORDS))
    head, row = (line.split(", ") for line in shell(*consume).lines)
    figures = dict(zip(head, row, strict=True))
    assert int(figures["data.consumed.in.nMsg"]) == 2 * RECORDS
    assert float(figures["data.consumed.in.MB"]) == round(2 * RECORDS * 100 / 2**20, 4)
    assert float(figures["fetch.nMsg.sec"]) > 0

    detailed = shell(*consume, "--show-detailed-stats", "--reporting-interval", "1").lines
    assert detailed[0].startswith("time, threadId, data.consumed.in.MB")
