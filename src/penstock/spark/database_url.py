"""Addresses of databases, as SQLAlchemy reads them: `postgresql://user:password@host/database`."""

import re

_PASSWORD = re.compile(r"(://[^/:]*:)[^@]*@|(?<=[?&]password=)[^&]*")


def without_password(url: str) -> str:
    """Returns the address with `***` in place of its password, for messages and plans."""
    return _PASSWORD.sub(lambda match: f"{match[1]}***@" if match[1] else "***", url)
