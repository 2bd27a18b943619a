"""The main program of the relays' process, which may serve the metadata store of a cluster too."""

import asyncio
import json
import logging
import os
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from penstock.core.errors import KafkaError
from penstock.testing.addresses import Route
from penstock.testing.cuts import Direction
from penstock.testing.faults import Faults
from penstock.testing.parent_pipe import PARENT_FD, receive_first_command, send_response
from penstock.testing.relay import Cuts, Relay


class Relays:
    """The relays by name, and the cuts that they share."""

    def __init__(self, routes: dict[str, list[list[Any]]]) -> None:
        self._cuts = Cuts()
        self._relays = {
            name: Relay([Route(*route) for route in routes], self._cuts)
            for name, routes in routes.items()
        }

    async def obey(self, command: dict[str, Any]) -> dict[str, object]:
        """Executes a command of the parent; returns the response."""
        if "cuts" in command:
            self._cuts.replace(map(Direction._make, command["cuts"]))
            for relay in self._relays.values():
                relay.release()
            return {}
        relay = self._relays[command["relay"]]
        if "set" in command:
            await relay.set(Faults.from_json(command["set"]))
        if "cut" in command:
            await relay.cut()
        return {"lost": relay.lost.total()}


async def _serve(routes: dict[str, list[list[Any]]]) -> None:
    relays = Relays(routes)
    commands = await _open_parent_pipe()
    send_response({"ready": True})
    while line := await commands.readline():
        send_response(await relays.obey(json.loads(line)))


async def _open_parent_pipe() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(PARENT_FD, "rb", closefd=False)
    )
    return reader


def _serve_store(directory: Path, stack: ExitStack) -> None:
    from penstock.cluster.embedded import EmbeddedStore
    from penstock.cluster.factory import SOCKET_FILE, STORE_FILE
    from penstock.cluster.supervised.server import StoreServer

    server = StoreServer(EmbeddedStore(directory / STORE_FILE), directory / SOCKET_FILE)
    stack.callback(server.close)


def main() -> None:
    command = receive_first_command()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s %(message)s"
    )
    try:
        with ExitStack() as stack:
            if command["store"] is not None:
                _serve_store(Path(command["store"]), stack)
            asyncio.run(_serve(command["routes"]))
    except KafkaError as error:
        print(error.message, file=sys.stderr)  # noqa: T201
        sys.exit(1)
    if command["remove"] is not None:
        shutil.rmtree(command["remove"], ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main()
