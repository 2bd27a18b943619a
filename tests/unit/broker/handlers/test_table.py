"""What the broker says it serves is what it can read and write."""

import pytest

from penstock.broker.handlers.table import SERVED
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey


@pytest.mark.parametrize("key", SERVED, ids=lambda key: key.name)
def test_versions_are_those_of_the_messages(key: ApiKey) -> None:
    of = api(key)
    served = SERVED[key]
    assert served.min_version == of.min_version
    assert served.max_version == of.max_version
    assert callable(served.load())


def test_modules_are_named_after_their_keys() -> None:
    for key, served in SERVED.items():
        assert served.module == f"k{key.value:02d}_{key.name.lower()}"


def test_the_table_is_in_the_order_of_the_keys() -> None:
    assert list(SERVED) == sorted(SERVED)
