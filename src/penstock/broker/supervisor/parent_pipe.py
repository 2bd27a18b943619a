"""The pipes between the supervisor and a broker process, as the broker uses them.

Standard input has one line of JSON with the broker's id and settings, so that no password is in the
process list. The supervisor keeps the pipe open: a message requests that all brokers stop, and the
end of the pipe means that the supervisor has ended.
Standard output takes one line of JSON: the addresses of the broker, or why it cannot start.
"""

import os
import sys
from typing import Final

import msgspec

from penstock.broker.supervisor.launch import BrokerLaunch

PARENT_FD: Final = 0
STOP_MESSAGE: Final = b"stop\n"
_LAUNCHES: Final = msgspec.json.Decoder(BrokerLaunch)


class StartResult(msgspec.Struct):
    """The report of a broker process about its start: its addresses, or the error that ends it."""

    addresses: list[str] = []
    ports: dict[str, int] = {}
    """The port of each listener, which a restart uses again."""
    error: str = ""


def receive_launch() -> BrokerLaunch:
    """Waits for the settings of this process. Raises EOFError if the supervisor has ended."""
    line = bytearray()
    while not line.endswith(b"\n"):
        # One byte at a time: what follows the line must stay in the pipe.
        data = os.read(PARENT_FD, 1)
        if not data:
            raise EOFError("the supervisor has ended")
        line += data
    return _LAUNCHES.decode(line)


def report(result: StartResult) -> None:
    """Sends the result to the supervisor, which has ended if it cannot be sent."""
    try:
        sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os._exit(1)
