"""The former name of `penstock.client.external_offsets`; deprecated."""

import warnings
from typing import TYPE_CHECKING

from penstock.client import external_offsets

if TYPE_CHECKING:
    from penstock.client.external_offsets import AioExternalOffsets as AioOutsideOffsets
    from penstock.client.external_offsets import AioTransaction as AioTransaction
    from penstock.client.external_offsets import ExternalOffsets as OutsideOffsets
    from penstock.client.external_offsets import OffsetsMovedError as OffsetsMovedError
    from penstock.client.external_offsets import OffsetStore as OffsetStore
    from penstock.client.external_offsets import StoredOffset as StoredOffset
    from penstock.client.external_offsets import Transaction as Transaction

__all__ = [
    "AioOutsideOffsets",
    "AioTransaction",
    "OffsetStore",
    "OffsetsMovedError",
    "OutsideOffsets",
    "StoredOffset",
    "Transaction",
]

_RENAMED = {"AioOutsideOffsets": "AioExternalOffsets", "OutsideOffsets": "ExternalOffsets"}

warnings.warn(
    "penstock.client.offsets_outside is deprecated; import penstock.client.external_offsets",
    DeprecationWarning,
    stacklevel=2,
)


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(external_offsets, _RENAMED.get(name, name))
