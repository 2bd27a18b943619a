"""A Kerberos realm of its own for tests: Debian's KDC as a process on loopback, in a directory.

Nothing of the machine's own Kerberos configuration is used: `environment` names the realm's
krb5.conf, a ticket cache and a replay cache in the directory. libkrb5 reads these variables when
it is used, so a test that uses it in its own process sets them in `os.environ`.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support.kafka.broker import MissingPartError

REALM: Final = "PENSTOCK.TEST"
HOST: Final = "localhost"
BROKER: Final = f"kafka/{HOST}@{REALM}"
_START_S: Final = 20.0
_SEARCHED: Final = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"


@dataclass(frozen=True)
class Realm:
    """A running KDC, and the files of its directory."""

    directory: Path
    environment: Mapping[str, str]
    """The variables with which a process belongs to the realm."""

    @property
    def java_option(self) -> str:
        """The option with which a JVM belongs to the realm: Java does not read KRB5_CONFIG."""
        return f"-Djava.security.krb5.conf={self.directory / 'krb5.conf'}"

    def add(self, *principals: str, options: str = "") -> None:
        """Adds principals with random keys; `options` are those of addprinc, such as
        `-maxlife 1hour`."""
        self._kadmin(*(f"addprinc -randkey {options} {principal}" for principal in principals))

    def keytab(self, principal: str, name: str | None = None) -> Path:
        """Writes the principal's key, which stays the same, to a new keytab."""
        path = self.directory / f"{name or principal.split('@')[0].replace('/', '-')}.keytab"
        path.unlink(missing_ok=True)
        self._kadmin(f"ktadd -norandkey -k {path} {principal}")
        return path

    def new_key(self, principal: str) -> None:
        """Gives the principal another key, so that keytabs written before are wrong."""
        self._kadmin(f"cpw -randkey {principal}")

    def delete(self, principal: str) -> None:
        self._kadmin(f"delprinc -force {principal}")

    def kinit(self, principal: str, keytab: Path, cache: Path, *options: str) -> None:
        """Gets a ticket into a cache."""
        _run(
            self.environment,
            *("kinit", *options, "-c", str(cache), "-k", "-t", str(keytab), principal),
        )

    def tickets_issued(self, principal: str) -> int:
        """Returns how many initial tickets the KDC has issued to a principal."""
        lines = (self.directory / "kdc.log").read_text().splitlines()
        name = f"{principal}@{REALM} for krbtgt/"
        return sum("AS_REQ" in line and "ISSUE" in line and name in line for line in lines)

    def _kadmin(self, *commands: str) -> None:
        # One process for all commands: each would open the database again.
        _run(self.environment, "kadmin.local", "-r", REALM, stdin="\n".join(commands) + "\n")


def krb5_login_module(keytab: Path, principal: str) -> str:
    """Returns the `sasl.jaas.config` of a login with a keytab."""
    return (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        f'keyTab="{keytab}" principal="{principal}";'
    )


@contextmanager
def kerberos_realm(clock_skew_s: int = 300) -> Iterator[Realm]:
    """Starts a KDC with the principal `BROKER`, and stops it at the end.

    Tickets are accepted for `clock_skew_s` after their end.

    Its directory has a short path: libkrb5 refuses long ones for some files.
    """
    with tempfile.TemporaryDirectory(prefix="krb") as name:
        directory = Path(name)
        port = _free_port()
        environment = _write_configuration(directory, port, clock_skew_s)
        _run(environment, "kdb5_util", "create", "-s", "-r", REALM, "-P", "master-password")
        realm = Realm(directory, environment)
        realm.add(BROKER)
        with (directory / "kdc.err").open("w") as errors:
            process = subprocess.Popen(
                [_program("krb5kdc"), "-n", "-r", REALM],
                env={**os.environ, **environment},
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        try:
            _await_port(port, process, directory)
            yield realm
        finally:
            process.terminate()
            process.wait(10)


@contextmanager
def realm_of_this_process(clock_skew_s: int = 300) -> Iterator[Realm]:
    """Starts a KDC, and makes the test's own process belong to its realm until the end."""
    with kerberos_realm(clock_skew_s) as realm, pytest.MonkeyPatch.context() as patch:
        for name, value in realm.environment.items():
            patch.setenv(name, value)
        yield realm


def broker_settings(realm: Realm) -> dict[str, str]:
    """Returns the settings of a broker with one listener, for GSSAPI logins, at a free port."""
    return {
        "listeners": f"SASL_PLAINTEXT://{HOST}:0",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": krb5_login_module(
            realm.keytab(BROKER), BROKER
        ),
        "connection.failed.authentication.delay.ms": "0",
        "group.initial.rebalance.delay.ms": "0",
    }


def _write_configuration(directory: Path, port: int, clock_skew_s: int) -> dict[str, str]:
    (directory / "krb5.conf").write_text(
        f"""\
[libdefaults]
    default_realm = {REALM}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
    forwardable = true
    clockskew = {clock_skew_s}
[realms]
    {REALM} = {{
        kdc = 127.0.0.1:{port}
    }}
[domain_realm]
    localhost = {REALM}
"""
    )
    (directory / "kdc.conf").write_text(
        f"""\
[kdcdefaults]
    kdc_listen = 127.0.0.1:{port}
    kdc_tcp_listen = 127.0.0.1:{port}
[realms]
    {REALM} = {{
        database_name = {directory}/principal
        key_stash_file = {directory}/stash
        acl_file = {directory}/kadm5.acl
        max_life = 10h
        max_renewable_life = 7d
        supported_enctypes = aes256-cts-hmac-sha1-96:normal
    }}
[logging]
    kdc = FILE:{directory}/kdc.log
    admin_server = FILE:{directory}/kadmin.log
"""
    )
    return {
        "KRB5_CONFIG": str(directory / "krb5.conf"),
        "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
        "KRB5CCNAME": f"FILE:{directory}/no-tickets",
        "KRB5_CLIENT_KTNAME": f"FILE:{directory}/no-client-keytab",
        "KRB5_KTNAME": f"FILE:{directory}/no-keytab",
        "KRB5RCACHENAME": f"file2:{directory}/replays",
    }


def _program(name: str) -> str:
    path = shutil.which(name, path=_SEARCHED)
    if path is None:
        raise MissingPartError(f"{name} (Kerberos) is missing: run make setup")
    return path


def _run(environment: Mapping[str, str], program: str, *arguments: str, stdin: str = "") -> None:
    done = subprocess.run(
        [_program(program), *arguments],
        env={**os.environ, **environment},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    # kadmin.local ends with 0 whatever becomes of its commands.
    failed = [line for line in done.stderr.splitlines() if "while" in line]
    if done.returncode or (program == "kadmin.local" and failed):
        raise RuntimeError(f"{program} failed:\n{done.stdout}\n{done.stderr}")


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def _await_port(port: int, process: "subprocess.Popen[bytes]", directory: Path) -> None:
    end = time.monotonic() + _START_S
    while True:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the KDC did not start:\n{(directory / 'kdc.err').read_text()}")
        time.sleep(0.01)
