"""Commands begin quickly: what is heavy is imported when it is needed."""

import subprocess
import sys

HEAVY = ("rich", "pydantic", "asyncio", "penstock.client", "penstock.broker", "penstock.net")
COMMANDS = ("topic", "group", "offsets", "config", "quota", "user", "acl", "txn", "cluster")

PROGRAM = f"""
import sys
from penstock.cli.app import new_app
for name in {COMMANDS}:
    new_app(name)
print(*[name for name in {HEAVY} if name in sys.modules])
"""


def test_nothing_heavy_is_imported_before_a_command_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == []
