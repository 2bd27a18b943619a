"""A broker process as its supervisor sees it: started with settings, observed, stopped."""

import asyncio
import logging
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from penstock.broker.supervisor.launch import BrokerLaunch
from penstock.broker.supervisor.parent_pipe import STOP_MESSAGE, StartResult

logger = logging.getLogger(__name__)

_RESULTS: Final = msgspec.json.Decoder(StartResult)


class BrokerProcess:
    """One run of a broker, from its start to its exit."""

    def __init__(self, launch: BrokerLaunch, process: Process) -> None:
        """Use `start_broker_process`."""
        self.broker_id = launch.broker_id
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def start_result(self) -> StartResult:
        """Waits until the broker serves requests or has failed to start."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if line:
            with suppress(msgspec.MsgspecError):
                return _RESULTS.decode(line)
        return StartResult(error=f"it {exit_text(await self._process.wait())} while it started")

    async def wait(self) -> str:
        """Waits for the exit; returns how the process ended."""
        return exit_text(await self._process.wait())

    async def stop(self, timeout_s: float) -> None:
        """Stops it together with all others, and waits for the exit; kills it after the timeout.

        A signal instead of the message would move its leaderships to the others first.
        """
        assert self._process.stdin is not None
        with suppress(ConnectionError):
            self._process.stdin.write(STOP_MESSAGE)
        try:
            await asyncio.wait_for(self._process.wait(), timeout_s)
        except TimeoutError:
            logger.error(
                "broker %d (pid %d) has not stopped within %g s: it is killed",
                self.broker_id,
                self.pid,
                timeout_s,
            )
            self.kill()
            await self._process.wait()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()


async def start_broker_process(command: Sequence[str], launch: BrokerLaunch) -> BrokerProcess:
    """Starts `command` with the launch on its standard input. Raises OSError.

    The process writes its log to the standard error of this one. It has a process group of its
    own, so that Ctrl-C reaches only the supervisor, which stops the brokers in its way.
    """
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, process_group=0
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(launch) + b"\n")
    return BrokerProcess(launch, process)


def exit_text(code: int) -> str:
    """Returns how a process ended: `exited with code 1`, `was killed by SIGKILL`."""
    if code >= 0:
        return f"exited with code {code}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"
