"""The main program of the relay's process."""

import asyncio
import json
import os

from penstock.testing.addresses import Route
from penstock.testing.faults import Faults
from penstock.testing.parent_pipe import PARENT_FD, receive_first_command, send_response
from penstock.testing.relay import Relay


async def _serve(routes: list[Route]) -> None:
    relay = Relay(routes)
    commands = await _open_parent_pipe()
    send_response({"ready": True})
    while line := await commands.readline():
        command = json.loads(line)
        if "set" in command:
            await relay.set(Faults.from_json(command["set"]))
        if "cut" in command:
            await relay.cut()
        send_response({"lost": relay.lost.total()})
    os._exit(0)


async def _open_parent_pipe() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(PARENT_FD, "rb", closefd=False)
    )
    return reader


def main() -> None:
    command = receive_first_command()
    asyncio.run(_serve([Route(*route) for route in command["routes"]]))


if __name__ == "__main__":
    main()
