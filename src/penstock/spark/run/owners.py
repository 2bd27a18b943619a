"""Names for drivers: no two of them are ever the same, and a person can tell where one runs."""

import os
import secrets
import socket
from datetime import UTC, datetime


def new_owner() -> str:
    """The name of this driver: host, process, chance, and when it started."""
    started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}:{started}"
