"""The program of the relay's process."""

import asyncio
import json
import os

from penstock.testing.addresses import Route
from penstock.testing.faults import Faults
from penstock.testing.parent_pipe import LEASH, first_order, say
from penstock.testing.relay import Relay


async def _serve(routes: list[Route]) -> None:
    relay = Relay(routes)
    orders, _ = await _leash()
    say({"ready": True})
    while line := await orders.readline():
        order = json.loads(line)
        if "set" in order:
            await relay.set(Faults.from_json(order["set"]))
        if "cut" in order:
            await relay.cut()
        say({"lost": relay.lost.total()})
    os._exit(0)


async def _leash() -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(LEASH, "rb", closefd=False)
    )
    return reader, transport


def main() -> None:
    order = first_order()
    asyncio.run(_serve([Route(*each) for each in order["routes"]]))


if __name__ == "__main__":
    main()
