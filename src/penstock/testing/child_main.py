"""The program of the broker's process: the broker itself, without the command line around it."""

import json
import logging
import os
import shutil
import sys
import threading

from penstock.broker.main import run
from penstock.core.errors import KafkaError
from penstock.testing.parent_pipe import LEASH, first_order, let_the_kernel_watch, say


def _end_with_parent(folder: str | None) -> None:
    """On a thread. The only order that comes, and is waited for, is to get ready for a pause."""
    while line := os.read(LEASH, 4096):
        let_the_kernel_watch(json.loads(line)["pause"])
        say({})
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def main() -> None:
    order = first_order()
    watch = threading.Thread(target=_end_with_parent, args=(order["remove"],), daemon=True)
    watch.start()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s %(message)s"
    )
    settings = [f"{name}={value}" for name, value in order["settings"].items()]
    try:
        run(None, settings, lambda _: say({"ready": True}))
    except KafkaError as error:
        print(error.message.removeprefix("--set "), file=sys.stderr)  # noqa: T201
        sys.exit(1)


if __name__ == "__main__":
    main()
