"""Reads the JAAS file of this process: of a setting, or of KAFKA_OPTS as for Java programs (X2)."""

import os
from collections.abc import Sequence

from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.jaas import LoginModule, parse_jaas_file
from penstock.security.jaas_file import SETTING, VARIABLE, find_login, jaas_file_path


def read_jaas_file(setting: str | None = None) -> dict[str, list[LoginModule]]:
    """Returns the login modules of each section of a file; nothing if there is no file.

    `setting` is the value of `java.security.auth.login.config`; without it KAFKA_OPTS counts.
    Raises KafkaError if the file is not valid.
    """
    path = setting or jaas_file_path(os.environ)
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"the JAAS file {path} cannot be read ({cause})",
            subject=SETTING if setting else VARIABLE,
            remedy="correct java.security.auth.login.config, or remove it",
        ) from None
    return parse_jaas_file(text, f"the JAAS file {path}")


def login_of_jaas_file(
    sections: Sequence[str], mechanism: str, setting: str | None = None
) -> str | None:
    """Returns what the file has for a mechanism in the first of the sections that exists.

    None if there is no such file or entry. Raises KafkaError if the file is not valid.
    """
    return find_login(read_jaas_file(setting), sections, mechanism)
