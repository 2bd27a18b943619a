"""The blocking clients are derived from the asyncio clients, and have the same calls."""

import inspect

import pytest

from penstock.client import Admin, Consumer, Producer, aio
from penstock.client.admin.calls import AdminCalls
from tools import unasync


def test_generated_files_are_up_to_date() -> None:
    assert not unasync.stale_files(), "run `make generate`"


def public_calls(client: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(function)
        for name, function in inspect.getmembers(client, inspect.isfunction)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("blocking", "asynchronous"),
    [(Producer, aio.Producer), (Consumer, aio.Consumer), (Admin, aio.Admin)],
)
def test_twins_have_the_same_calls(blocking: type, asynchronous: type) -> None:
    twin_calls = public_calls(asynchronous)
    twin_calls.pop("start", None)
    calls = public_calls(blocking)
    assert calls.keys() == twin_calls.keys() - {"router"}
    for name in calls.keys() - {"transaction"}:
        assert [*calls[name].parameters] == [*twin_calls[name].parameters], name


def test_admin_calls_are_documented() -> None:
    for name in public_calls(AdminCalls):
        assert getattr(AdminCalls, name).__doc__, name


def test_asyncio_only_lines_and_blocks_are_removed() -> None:
    source = """\
def start():  # asyncio only
    connect()

    wait()
poll()
# lets other tasks run
sleep()  # asyncio only
"""
    assert unasync.without_asyncio_only(source) == "poll()\n"
