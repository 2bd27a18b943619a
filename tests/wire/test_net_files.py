"""Sending ranges of files: exact bytes, cold disks, files that are removed."""

import asyncio
import hashlib
import os
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.net.server.connection import Connection, PendingResponse
from penstock.net.server.file_ranges import FileLoader
from penstock.net.server.limits import Limits
from penstock.net.server.send_queue import SendableFile
from penstock.net.tls.settings import TlsSettings
from penstock.storage.disk import OsDisk, OsFile
from penstock.storage.segment.log_segment import LogSlice
from tests.support.broker.certificates import make_identity, simple_name
from tests.support.broker.net_server import Client, RecordingService, client, framed, run, serving

SIZE = 6_000_000


class Secured(NamedTuple):
    server: TlsSettings | None
    client: ssl.SSLContext | None


@pytest.fixture(scope="module")
def tls() -> Secured:
    identity = make_identity(simple_name("broker"))
    settings = TlsSettings(
        "PEM",
        keystore_key=identity.key_pem(),
        keystore_certificate_chain=identity.certificate_pem,
    )
    context = ssl.create_default_context(cadata=identity.certificate_pem)
    context.check_hostname = False
    return Secured(settings, context)


@pytest.fixture(params=["plain", "tls"])
def secured(request: pytest.FixtureRequest, tls: Secured) -> Secured:
    return tls if request.param == "tls" else Secured(None, None)


@pytest.fixture
def file(disk_directory: Path) -> OsFile:
    content = b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(SIZE // 32))
    path = disk_directory / "00000000000000000000.log"
    path.write_bytes(content)
    return OsDisk().open(str(path))


def slices(file: OsFile, *ranges: tuple[int, int]) -> list[bytes | LogSlice]:
    """A fetch response: a header, then ranges with small parts between them."""
    parts: list[bytes | LogSlice] = []
    for position, size in ranges:
        parts += [b"partition", LogSlice(file, position, size)]
    size = sum(part.size if isinstance(part, LogSlice) else len(part) for part in parts)
    return [size.to_bytes(4, "big"), *parts, b""]


def expected(file: OsFile, *ranges: tuple[int, int]) -> bytes:
    return b"".join(b"partition" + file.read_at(*file_range) for file_range in ranges)


RANGES = ((0, 1), (17, 100_000), (5, 3_000_001), (SIZE - 10, 10), (100, 0), (7, 1_048_576))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("cold", [False, True])
def test_ranges_are_sent_exactly(file: OsFile, secured: Secured, loop: str, cold: bool) -> None:
    """S6: from file to socket, with cold data through a thread, in the order of responses."""
    loader = FileLoader(probe=lambda fd, position, size: not cold)

    async def scenario() -> None:
        def respond(connection: Connection, frame: memoryview, response: PendingResponse) -> None:
            response.send(slices(file, *RANGES))

        async with (
            serving(RecordingService(respond), tls=secured.server, files=loader) as (_, _, port),
            client(port, ssl=secured.client) as peer,
        ):
            await peer.send(b"1", b"2")
            for _ in range(2):
                assert await peer.receive() == expected(file, *RANGES)

    run(scenario, loop)
    assert (loader.loads > 0) is cold
    file.close()


def test_other_requests_are_handled_while_a_range_is_sent(file: OsFile, secured: Secured) -> None:
    async def scenario() -> None:
        def respond(connection: Connection, frame: memoryview, response: PendingResponse) -> None:
            if bytes(frame) == b"large":
                response.send(slices(file, (0, 2_000_000)))
            else:
                response.send([framed(b"small")])

        service = RecordingService(respond)
        limits = Limits(send_buffer=20_000)
        async with (
            serving(service, limits, tls=secured.server) as (_, _, port),
            client(port, ssl=secured.client, limit=2**15) as slow,
            client(port, ssl=secured.client) as second,
        ):
            await slow.send(b"large", b"small")
            await service.until(lambda: len(service.frames) == 2)
            assert await second.request(b"small") == b"small"
            assert await slow.receive() == expected(file, (0, 2_000_000))
            assert await slow.receive() == b"small"

    run(scenario)
    file.close()


def check_damage_during_send(
    file: OsFile, secured: Secured, damage: Callable[[], None], reason: str
) -> None:
    """Changes the file while a client reads a range slowly."""

    async def scenario() -> None:
        service = RecordingService(lambda c, f, response: response.send(slices(file, (0, SIZE))))
        limits = Limits(send_buffer=20_000)
        async with (
            serving(service, limits, tls=secured.server) as (_, _, port),
            client(port, ssl=secured.client, limit=1024) as slow,
        ):
            content = expected(file, (0, SIZE))
            await slow.send(b"fetch")
            start = await slow.reader.readexactly(1000)
            damage()
            rest = await read_all(slow)
            assert (start + rest)[4:] == content[: len(start + rest) - 4]
            assert len(rest) < SIZE - 1000
            await service.until(lambda: len(service.reasons) == 1)
            assert reason in service.reasons[0]

    run(scenario)


async def read_all(peer: Client) -> bytes:
    data = bytearray()
    try:
        while piece := await peer.reader.read(65536):
            data += piece
    except ConnectionError:
        pass  # closed by the server with bytes on their way
    return bytes(data)


def test_closing_the_file_closes_the_connection_without_foreign_bytes(
    file: OsFile, secured: Secured, tmp_path: Path
) -> None:
    other_files: list[OsFile] = []

    def replace() -> None:
        file.close()
        (tmp_path / "other").write_bytes(b"!" * SIZE)
        other_files.append(OsDisk().open(str(tmp_path / "other")))

    check_damage_during_send(file, secured, replace, "the segment has been deleted")
    other_files[0].close()


def test_truncating_the_file_closes_the_connection(file: OsFile, secured: Secured) -> None:
    check_damage_during_send(file, secured, lambda: file.truncate(1000), "the log was truncated")
    file.close()


@pytest.mark.parametrize("is_warm", [True, False])
def test_a_file_that_is_closed_between_probe_and_send(
    file: OsFile, secured: Secured, tmp_path: Path, is_warm: bool
) -> None:
    """Retention closes segments on a thread; the number of the descriptor is reused at once."""
    content = expected(file, (0, SIZE))
    other_file = tmp_path / "other"
    other_file.write_bytes(b"secret" * (SIZE // 4))
    reused: list[int] = []

    def probe(fd: int, position: int, size: int) -> bool:
        if not reused:
            thread = threading.Thread(target=file.close)
            thread.start()
            thread.join()
            reused.extend(os.open(other_file, os.O_RDONLY) for _ in range(50))
        return is_warm

    async def scenario() -> None:
        service = RecordingService(lambda c, f, response: response.send(slices(file, (0, SIZE))))
        loader = FileLoader(probe=probe)
        async with (
            serving(service, tls=secured.server, files=loader) as (_, _, port),
            client(port, ssl=secured.client) as peer,
        ):
            await peer.send(b"fetch")
            received = await peer.reader.read()
        assert content.startswith(received[4:])
        assert len(received) < len(content)
        assert service.reasons

    run(scenario)
    for fd in reused:
        os.close(fd)


def test_a_cold_read_of_a_closed_connection_is_dropped(file: OsFile, secured: Secured) -> None:
    """The thread pins the file, and its result is dropped."""
    probed = threading.Event()

    def probe(fd: int, position: int, size: int) -> bool:
        probed.set()
        return False

    loader = FileLoader(probe=probe)

    async def scenario() -> None:
        service = RecordingService(lambda c, f, response: response.send(slices(file, (0, SIZE))))
        async with serving(service, tls=secured.server, files=loader) as (server, _, port):
            async with client(port, ssl=secured.client) as peer:
                await peer.send(b"fetch")
                while not probed.is_set():
                    await asyncio.sleep(0)
                server.connections[0].close("enough")
                file.close()
            await service.until(lambda: service.reasons == ["enough"])

    before = len(os.listdir("/proc/self/fd"))
    run(scenario)
    assert loader.loads == 1
    assert len(os.listdir("/proc/self/fd")) <= before


def test_other_clients_are_served_during_a_cold_read(file: OsFile) -> None:
    """A consumer of cold data must not block the loop."""
    done: list[Callable[[bytes | OSError], None]] = []

    class StuckLoader(FileLoader):
        def load(
            self,
            loop: asyncio.AbstractEventLoop,
            file: SendableFile,
            position: int,
            size: int,
            done_: Callable[[bytes | OSError], None],
            *,
            keep: bool,
        ) -> None:
            done.append(done_)

    async def scenario() -> None:
        def respond(connection: Connection, frame: memoryview, response: PendingResponse) -> None:
            if bytes(frame) == b"cold":
                response.send(slices(file, (0, 1000)))
            else:
                response.send([framed(b"warm")])

        loader = StuckLoader(probe=lambda fd, position, size: False)
        async with (
            serving(RecordingService(respond), files=loader) as (_, service, port),
            client(port) as peer,
            client(port) as second,
        ):
            await peer.send(b"cold")
            await service.until(lambda: len(service.frames) == 1)
            for _ in range(3):
                assert await second.request(b"warm") == b"warm"
            done[0](b"")
            assert await peer.receive() == expected(file, (0, 1000))
            await peer.send(b"cold")
            await service.until(lambda: len(done) == 2)
            done[1](OSError(5, "Input/output error"))
            assert await peer.reader.read(13) in (b"", b"\0\0\3\xf1partition")
            await service.until(lambda: len(service.reasons) == 1)
            assert "Input/output error" in service.reasons[0]

    run(scenario)
    file.close()
