"""ZooKeeper servers of the tests: Debian's package, each in a temporary directory on free ports.

    with ZooKeeperServer(directory) as server:
        KazooClient(server.address)

They are small and fast: no sync of the disk, and ticks of 100 ms, so that sessions may be short.
"""

import atexit
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

import kazoo.protocol.connection
import kazoo.retry
from kazoo.client import KazooClient

# kazoo's threads draw random delays. Hypothesis reports that as its own if they use the global
# generator while it draws.
kazoo.protocol.connection.random = Random()
kazoo.retry.random = Random()

JAR = Path("/usr/share/java/zookeeper.jar")
_OTHER_JARS = (
    "slf4j-simple",
    "netty-resolver",
    "netty-codec",
    "netty-transport-native-unix-common",
)
"""Jars of its dependencies that its manifest does not name; servers with TLS need them."""
_START_TIMEOUT_S = 120.0
_JAVA_OPTIONS = (
    "-Xms16m",
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=64",
    "-Dzookeeper.admin.enableServer=false",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


class ZooKeeperServer:
    """A server process. It keeps its data and its port over `stop` and `start`."""

    def __init__(
        self,
        directory: Path,
        settings: dict[str, str] | None = None,
        port: int | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        self._java_options = java_options
        self.directory = directory
        self.port = port or free_ports(1)[0]
        self._settings = settings or {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, wait: bool = True) -> None:
        java = shutil.which("java")
        assert java is not None, "Java is missing: run make setup"
        assert JAR.exists(), "ZooKeeper is missing: run make setup"
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        settings = {
            "tickTime": "100",
            "minSessionTimeout": "200",
            "maxSessionTimeout": "60000",
            "dataDir": str(data),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": "0",
            "4lw.commands.whitelist": "ruok,srvr",
            **self._settings,
        }
        config = self.directory / "zoo.cfg"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        jars = (JAR, *(JAR.with_name(f"{name}.jar") for name in _OTHER_JARS))
        class_path = ":".join(map(str, jars))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = [java, *_JAVA_OPTIONS, *self._java_options, "-cp", class_path, main, str(config)]
        # setpriv lets the kernel end the server if the test process is killed.
        if shutil.which("setpriv"):
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        with (self.directory / "zookeeper.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )
        if wait:
            self.wait_until_serving()

    def wait_until_serving(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self.mode():
            assert self._process is not None
            assert self._process.poll() is None, self._log()
            assert time.monotonic() < deadline, self._log()
            time.sleep(0.02)

    def mode(self) -> str:
        """Returns `standalone`, `leader` or `follower`; an empty text while it serves nobody."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 2) as connection:
            connection.sendall(b"srvr")
            response = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
            for line in response.splitlines():
                if line.startswith("Mode: "):
                    return line.removeprefix("Mode: ")
        return ""

    def kill(self) -> None:
        """Kills the process, as a crash of the machine would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _log(self) -> str:
        return (self.directory / "zookeeper.log").read_text(errors="replace")[-2000:]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()


class ZooKeeperEnsemble:
    """Three servers, of which any one may be killed."""

    def __init__(self, directory: Path) -> None:
        ports = free_ports(9)
        members = {
            f"server.{number + 1}": f"127.0.0.1:{ports[3 + number]}:{ports[6 + number]}"
            for number in range(3)
        }
        settings = {"initLimit": "50", "syncLimit": "50", **members}
        self.servers = [
            ZooKeeperServer(directory / str(number + 1), settings, ports[number])
            for number in range(3)
        ]

    @property
    def address(self) -> str:
        return ",".join(server.address for server in self.servers)

    @property
    def leader(self) -> ZooKeeperServer:
        return next(server for server in self.servers if server.mode() == "leader")

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for number, server in enumerate(self.servers):
                (server.directory / "data").mkdir(parents=True)
                (server.directory / "data" / "myid").write_text(str(number + 1))
                server.start(wait=False)
                stack.callback(server.kill)
            for server in self.servers:
                server.wait_until_serving()
            stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for server in self.servers:
            server.kill()


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [server.getsockname()[1] for server in sockets]
    finally:
        for server in sockets:
            server.close()


@cache
def shared_server() -> ZooKeeperServer:
    """The server of all tests of this process, each with a chroot of its own (`new_chroot`)."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-zookeeper-"))
    server = ZooKeeperServer(directory)
    server.start()

    def stop() -> None:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)

    atexit.register(stop)
    return server


def new_chroot() -> str:
    return f"/tests/{uuid.uuid4().hex}"


def end_session(address: str, session: tuple[int, bytes]) -> None:
    """Ends a session that another client has, as if it had expired."""
    client = KazooClient(address, client_id=session)
    client.start()
    client.stop()
    client.close()
