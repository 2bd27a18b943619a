"""External offsets: a consumer's offsets in a relational database, saved with its results.

Most programs use them through `Consumer.transaction`. SQLAlchemy is imported with the first name
that needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client.external_offsets.aio import AioExternalOffsets as AioExternalOffsets
    from penstock.client.external_offsets.aio import AioTransaction as AioTransaction
    from penstock.client.external_offsets.model import OffsetsMovedError as OffsetsMovedError
    from penstock.client.external_offsets.model import StoredOffset as StoredOffset
    from penstock.client.external_offsets.store import OffsetStore as OffsetStore
    from penstock.client.external_offsets.transaction import ExternalOffsets as ExternalOffsets
    from penstock.client.external_offsets.transaction import Transaction as Transaction

_MODULES = {
    "AioExternalOffsets": "aio",
    "AioTransaction": "aio",
    "ExternalOffsets": "transaction",
    "OffsetStore": "store",
    "OffsetsMovedError": "model",
    "StoredOffset": "model",
    "Transaction": "transaction",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
