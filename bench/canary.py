"""A well-behaved client beside hostile ones: it produces and consumes, and measures its latency."""

import json
import statistics
import subprocess
import sys
import threading
import time
from typing import NamedTuple, Self
from uuid import UUID

from bench.broker_client import Client, batch, fetch_frame, produce_frame

INTERVAL_S = 0.005
RECORD_BYTES = 100


class CanaryReport(NamedTuple):
    round_trips: int
    """Records that were produced, and consumed again."""
    median_ms: float
    p99_ms: float
    max_ms: float
    lost: int
    """Acknowledged records that the log does not have."""


class Canary:
    """The client in a process of its own, so that only the broker can slow it down."""

    def __init__(self, address: tuple[str, int], topic: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.canary", address[0], str(address[1]), topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError("the canary did not start")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def stop(self) -> CanaryReport:
        """Ends the client; raises RuntimeError if it had failed."""
        output, _ = self._process.communicate(timeout=60)
        if self._process.returncode:
            raise RuntimeError("the canary failed; see its error above")
        result = json.loads(output)
        latencies = result["latencies"]
        return CanaryReport(
            len(latencies),
            statistics.median(latencies),
            statistics.quantiles(latencies, n=100)[98],
            max(latencies),
            result["produced"] - result["end_offset"],
        )


def main(host: str, port: str, topic: str) -> None:
    """Runs until its standard input ends, then prints latencies in milliseconds and its offset."""
    ended = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    request = produce_frame(topic, {0: batch(1, RECORD_BYTES)})
    latencies: list[float] = []
    with Client((host, int(port))) as client:
        client.create_topic(topic, 1)
        topic_id = client.metadata(topic)
        print("ready", flush=True)
        produced = 0
        while not ended.is_set():
            started = time.perf_counter()
            client.produced(request)
            _consume(client, topic_id, produced)
            latencies.append((time.perf_counter() - started) * 1000)
            produced += 1
            time.sleep(INTERVAL_S)
        end = client.end_offsets(topic)
    print(json.dumps({"latencies": latencies, "produced": produced, "end_offset": end}))


def _consume(client: Client, topic_id: UUID, offset: int) -> None:
    """Fetches the record at an offset, which must be there."""
    request = fetch_frame(
        topic_id, {0: offset}, max_bytes=1 << 20, partition_bytes=1 << 20, max_wait_ms=1000
    )
    client.sock.sendall(request)
    response = client.read_response()
    if len(response) < RECORD_BYTES:
        raise RuntimeError(
            f"the record at offset {offset} is missing in the response {response.hex()}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
