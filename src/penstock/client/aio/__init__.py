"""The asyncio clients, with the same calls as those in `penstock.client`.

from penstock.client.aio import Producer

async with Producer(bootstrap_servers="localhost:9092") as producer:
    sent = await producer.send("orders", b"value")
    print(await sent)
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client.aio.admin import Admin as Admin
    from penstock.client.aio.consumer import Consumer as Consumer
    from penstock.client.aio.producer import Producer as Producer

_MODULES = {
    "Admin": "penstock.client.aio.admin",
    "Consumer": "penstock.client.aio.consumer",
    "Producer": "penstock.client.aio.producer",
}


def __getattr__(name: str) -> object:
    """Imports the module of a name with its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(_MODULES)
