"""The broker process: reads the settings, runs the event loop and handles signals."""

import asyncio
import logging
import os
import signal
import socket
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.broker.app import App
from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.properties import load_broker_config
from penstock.broker.garbage import collect_garbage
from penstock.controller.metadata import Endpoint

logger = logging.getLogger(__name__)

_ORPHAN_STOP_S = 30.0
"""How long a broker may take to stop after its supervisor has ended."""


def run(
    properties: Path | None, overrides: list[str], ready: Callable[[Sequence[Endpoint]], None]
) -> None:
    """Runs a broker until SIGTERM or SIGINT; KafkaError if it cannot start with these settings.

    `ready` is called once, with the advertised endpoints, when the broker accepts requests.
    """
    run_broker(load_broker_config(properties, overrides, hostname=socket.gethostname()), ready)


def run_broker(
    config: BrokerConfig,
    ready: Callable[[Sequence[Endpoint]], None],
    *,
    parent_fd: int | None = None,
) -> None:
    """Runs a broker with these settings, like `run`.

    It also stops when the other end of the pipe `parent_fd` is closed: its supervisor has ended.
    """
    # A thread that compresses records without releasing the interpreter lock stalls the loop for
    # this long: 5.4 ms with Python's default, 1.3 ms with this value.
    sys.setswitchinterval(0.0005)
    for warning in config.warnings():
        logger.warning("%s", warning)
    for directory in config.list("log.dirs"):
        _warn_if_readable_by_others(directory)
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        is_stuck = runner.run(_serve(config, ready, parent_fd))
    if is_stuck:
        # An orderly exit would wait for the threads, and they wait for a disk that hangs.
        logging.shutdown()
        os._exit(1)


def _warn_if_readable_by_others(directory: str) -> None:
    with suppress(OSError):
        mode = stat.S_IMODE(os.stat(directory).st_mode)
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            logger.warning(
                "%s has mode %o: other users of this machine can read its records; run chmod 700 "
                "%s, unless they should",
                directory,
                mode,
                directory,
            )


def _new_loop() -> asyncio.AbstractEventLoop:
    """Uses uvloop if it is installed: it takes less time for each request."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _serve(
    config: BrokerConfig, ready: Callable[[Sequence[Endpoint]], None], parent_fd: int | None
) -> bool:
    """Returns, after the stop, whether threads still wait for a disk that hangs."""
    loop = asyncio.get_running_loop()
    stop_request = _StopRequest()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_request.event.set)
    if parent_fd is not None:
        loop.add_reader(parent_fd, stop_request.read_parent, parent_fd)
    app = App(config)
    starting = loop.create_task(app.start())
    stopping = loop.create_task(stop_request.event.wait())
    tasks: list[asyncio.Task[Any]] = [starting, stopping]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        logger.info("stopping before the start is complete")
        starting.cancel()
        await asyncio.wait([starting])
    elif app.is_stuck and (error := starting.exception()) is not None:
        logger.error("the broker cannot start: %s", error)
        return True
    else:
        starting.result()
        collecting = loop.create_task(collect_garbage())
        ready(app.endpoints)
        await stopping
        collecting.cancel()
        logger.info("stopping")
        await app.stop(is_last=stop_request.is_for_all)
    logger.info("stopped")
    return app.is_stuck


class _StopRequest:
    """The stop that a signal or the supervisor has requested."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.is_for_all = False
        """Whether all brokers of the supervisor stop, so that none takes over leaderships."""

    def read_parent(self, parent_fd: int) -> None:
        """Called when the supervisor has written to the pipe, or has ended."""
        asyncio.get_running_loop().remove_reader(parent_fd)
        if not os.read(parent_fd, 16):
            logger.error("the supervisor has ended: this broker stops too")
            timer = threading.Timer(_ORPHAN_STOP_S, os._exit, (1,))
            timer.daemon = True
            timer.start()
        self.is_for_all = True
        self.event.set()
