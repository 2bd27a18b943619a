"""A finding about a setting that does not protect as it seems to (X3)."""

from typing import NamedTuple


class SecurityWarning(NamedTuple):
    setting: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.setting}: {self.problem}; {self.remedy}"
