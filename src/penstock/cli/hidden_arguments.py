"""Hides passwords on the command line from the process list.

Every user of a machine can read the arguments of its processes. A process has them in its memory
and can overwrite them: `sasl.jaas.config=…` becomes `sasl.jaas.config=xxx`. Until it has started,
for some hundredths of a second, they can be read, and the shell's history keeps them: a file for
settings is better.
"""

import ctypes
import re
from pathlib import Path

_SECRET = re.compile(
    rb"(?:^|[^\w.-])[\w.-]*"
    rb"(?:password|passphrase|secret|jaas\.config|keystore\.key|master\.key"
    rb"|auth\.digest)[\w.-]*=(?P<value>.+)",
    re.DOTALL | re.IGNORECASE,
)
_ARG_START = 45
"""The position of `arg_start` in /proc/self/stat, counted after the name of the program."""


def hide_secrets() -> None:
    """Overwrites the values of passwords among the arguments of this process.

    It does nothing on systems that do not tell where the arguments are.
    """
    try:
        arguments = Path("/proc/self/cmdline").read_bytes()
        status = Path("/proc/self/stat").read_bytes()
        address = int(status.rpartition(b")")[2].split()[_ARG_START])
    except (OSError, ValueError, IndexError):
        return
    if address and ctypes.string_at(address, len(arguments)) == arguments:
        for start, end in secret_ranges(arguments):
            ctypes.memset(address + start, ord("x"), end - start)


def secret_ranges(arguments: bytes) -> list[tuple[int, int]]:
    """Returns the positions of passwords in arguments that are separated by zero bytes."""
    ranges: list[tuple[int, int]] = []
    start = 0
    for argument in arguments.split(b"\0"):
        match = _SECRET.search(argument)
        if match is not None:
            ranges.append((start + match.start("value"), start + match.end("value")))
        start += len(argument) + 1
    return ranges
