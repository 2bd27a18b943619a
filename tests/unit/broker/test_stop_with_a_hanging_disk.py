"""A process whose threads wait for a disk that hangs ends all the same."""

import os
import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys, threading, time
from pathlib import Path
import penstock.broker.app as app

app.STOP_S = 0.5
is_ready = threading.Event()

def fdatasync(fd):
    if is_ready.is_set():
        time.sleep(3600)

os.fdatasync = fdatasync

def ready(endpoints):
    is_ready.set()
    print("ready", flush=True)

import logging
logging.basicConfig(stream=sys.stderr)
from penstock.broker.main import run
run(None, ["log.dirs=" + sys.argv[1], "listeners=PLAINTEXT://127.0.0.1:0",
    "log.flush.interval.ms=100"], ready)
"""


def test_the_process_ends(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "a disk may hang. The broker stops without waiting for it" in errors
