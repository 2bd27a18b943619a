"""Offsets kept in a relational database, saved in the same transaction as the results.

`Consumer.transaction` is the way in. SQLAlchemy is loaded with the first name that needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client.external_offsets.aio import AioOutsideOffsets as AioOutsideOffsets
    from penstock.client.external_offsets.aio import AioTransaction as AioTransaction
    from penstock.client.external_offsets.model import OffsetsMovedError as OffsetsMovedError
    from penstock.client.external_offsets.model import StoredOffset as StoredOffset
    from penstock.client.external_offsets.store import OffsetStore as OffsetStore
    from penstock.client.external_offsets.transaction import OutsideOffsets as OutsideOffsets
    from penstock.client.external_offsets.transaction import Transaction as Transaction

_HOMES = {
    "AioOutsideOffsets": "aio",
    "AioTransaction": "aio",
    "OffsetStore": "store",
    "OffsetsMovedError": "model",
    "OutsideOffsets": "transaction",
    "StoredOffset": "model",
    "Transaction": "transaction",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
