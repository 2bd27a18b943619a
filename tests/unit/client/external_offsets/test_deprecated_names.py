"""`penstock.client.offsets_outside`, the former name of the package."""

import importlib
import sys

import pytest

from penstock.client import external_offsets


def test_former_names_are_aliases_with_a_warning() -> None:
    sys.modules.pop("penstock.client.offsets_outside", None)
    with pytest.warns(DeprecationWarning, match=r"penstock\.client\.external_offsets"):
        former = importlib.import_module("penstock.client.offsets_outside")
    assert former.OutsideOffsets is external_offsets.ExternalOffsets
    assert former.AioOutsideOffsets is external_offsets.AioExternalOffsets
    for name in (
        "AioTransaction",
        "OffsetStore",
        "OffsetsMovedError",
        "StoredOffset",
        "Transaction",
    ):
        assert getattr(former, name) is getattr(external_offsets, name)
    with pytest.raises(AttributeError):
        former.Ledger  # noqa: B018
