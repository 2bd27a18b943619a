"""The handler table agrees with the messages and with the parts of a broker."""

from dataclasses import fields
from importlib import import_module
from typing import get_type_hints

import pytest

from penstock.broker.broker import Broker
from penstock.broker.handlers.table import HANDLERS
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey


@pytest.mark.parametrize("key", HANDLERS, ids=lambda key: key.name)
def test_versions_are_those_of_the_messages(key: ApiKey) -> None:
    definition = api(key)
    spec = HANDLERS[key]
    assert spec.min_version == definition.min_version
    assert spec.max_version == definition.max_version


@pytest.mark.parametrize("key", HANDLERS, ids=lambda key: key.name)
def test_contexts_are_parts_of_a_broker(key: ApiKey) -> None:
    module = import_module(f"penstock.broker.handlers.{HANDLERS[key].module}")
    assert callable(module.handle)
    assert {field.name for field in fields(module.Context)} == get_type_hints(module.Context).keys()
    assert get_type_hints(module.Context).items() <= get_type_hints(Broker).items()


def test_modules_are_named_after_their_keys() -> None:
    for key, spec in HANDLERS.items():
        assert spec.module == f"k{key.value:02d}_{key.name.lower()}"


def test_the_table_is_in_the_order_of_the_keys() -> None:
    assert list(HANDLERS) == sorted(HANDLERS)
