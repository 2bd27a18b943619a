"""The asyncio admin client, on the caller's event loop."""

from typing import Self, Unpack

from penstock.client.admin.calls import AdminCalls
from penstock.client.network import create_network_client
from penstock.client.settings import AdminOptions, resolve
from penstock.core.system_clock import SystemClock


class Admin(AdminCalls):
    """Administers a cluster. A client belongs to one event loop.

        async with Admin(bootstrap_servers="localhost:9092") as admin:
            await admin.create_topics([NewTopic("orders", num_partitions=3)])

    Nothing is sent before the first call. Close it with `async with` or `await close()`.
    """

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        settings = resolve(AdminOptions, options)
        super().__init__(
            create_network_client(settings, clock=SystemClock()),
            retries=settings["retries"],
            default_api_timeout_ms=settings["default_api_timeout_ms"],
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()
