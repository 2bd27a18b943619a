"""The main program of the broker's process: the broker, without the command line."""

import json
import logging
import os
import shutil
import sys
import threading

from penstock.broker.main import run
from penstock.core.errors import KafkaError
from penstock.testing.parent_pipe import (
    PARENT_FD,
    receive_first_command,
    send_response,
    set_kill_on_parent_exit,
)


def _exit_with_parent(directory: str | None) -> None:
    """Runs on a thread. The only command that arrives prepares for a pause, or ends it."""
    while line := os.read(PARENT_FD, 4096):
        set_kill_on_parent_exit(json.loads(line)["pause"])
        send_response({})
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)
    os._exit(1)


def main() -> None:
    command = receive_first_command()
    watcher = threading.Thread(target=_exit_with_parent, args=(command["remove"],), daemon=True)
    watcher.start()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s %(message)s"
    )
    settings = [f"{name}={value}" for name, value in command["settings"].items()]
    try:
        run(None, settings, lambda _: send_response({"ready": True}))
    except KafkaError as error:
        print(error.message.removeprefix("--set "), file=sys.stderr)  # noqa: T201
        sys.exit(1)


if __name__ == "__main__":
    main()
