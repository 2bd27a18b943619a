"""Names of drivers: unique, and readable enough to find the driver's host and process."""

import os
import secrets
import socket
from datetime import UTC, datetime


def new_owner() -> str:
    """Returns a name for this driver: host, process id, a random part, and the start time."""
    started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}:{started}"
