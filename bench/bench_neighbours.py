"""A well-behaved client beside hostile ones: slow readers and senders, half-open TLS, bombs, storms
of connections, giant requests (X5). It loses nothing, and its 99 % stays below twice its usual one.

`PENSTOCK_NEIGHBOURS_SECONDS` sets how long they stay.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from uuid import uuid4

from bench.broker_process import Server, clients_on_a_core, start_broker
from bench.canary import Canary, CanaryReport
from bench.report import Row, at_most
from tests.support.broker.certificates import make_identity, simple_name

SECONDS = float(os.environ.get("PENSTOCK_NEIGHBOURS_SECONDS", "30"))
MEMORY_MB = 1200
"""What a broker of some 60 MB may take: request.memory.max.bytes, and what bombs decompress to."""


def _settings() -> dict[str, str]:
    identity = make_identity(simple_name("broker"))
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": identity.key_pem(),
        "ssl.keystore.certificate.chain": identity.certificate_pem,
        "connections.max.idle.ms": "10000",
    }


def _canary_for(broker: Server, seconds: float) -> CanaryReport:
    with Canary(broker.address, f"canary-{uuid4().hex}") as canary:
        time.sleep(seconds)
        return canary.stop()


def _beside_neighbours(broker: Server) -> tuple[CanaryReport, dict[str, int], float]:
    """Returns what the canary saw, how often each neighbour acted, and the most memory in MB."""
    plaintext, tls = broker.ports
    most = 0.0
    with subprocess.Popen(
        [sys.executable, "-m", "bench.hostile_neighbours", str(plaintext), str(tls)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as neighbours:
        try:
            assert neighbours.stdout is not None
            neighbours.stdout.readline()
            with Canary(broker.address, f"canary-{uuid4().hex}") as canary:
                until = time.monotonic() + SECONDS
                while time.monotonic() < until:
                    time.sleep(0.1)
                    most = max(most, broker.memory().own)
                report = canary.stop()
            output, _ = neighbours.communicate(timeout=60)
        finally:
            neighbours.kill()
    return report, json.loads(output), most


def run() -> list[Row]:
    with (
        tempfile.TemporaryDirectory() as directory,
        clients_on_a_core(),
        start_broker(Path(directory) / "neighbours", _settings()) as broker,
    ):
        usual = _canary_for(broker, min(SECONDS, 20))
        report, acts, most = _beside_neighbours(broker)
        tracebacks = sum("Traceback" in line for line in broker.log_lines())
    return [
        Row("canary alone, median", usual.median_ms, "ms"),
        Row("canary alone, 99 %", usual.p99_ms, "ms"),
        Row("canary beside hostile clients, median", report.median_ms, "ms"),
        Row("canary beside hostile clients, 99 %", report.p99_ms, "ms"),
        Row("canary beside hostile clients, longest", report.max_ms, "ms"),
        at_most("  its 99 % to the usual one", report.p99_ms / usual.p99_ms, "x", 2),
        at_most("acknowledged records lost", usual.lost + report.lost, "", 0),
        at_most("most memory of the broker", most, "MB", MEMORY_MB),
        at_most("tracebacks in the log", tracebacks, "", 0),
        *(Row(f"  {name.replace('_', ' ')}", count, "times") for name, count in acts.items()),
    ]
