"""All requests of the authorization matrix."""

from typing import Final

from tests.support.security.admin_cases import ADMIN_CASES
from tests.support.security.data_cases import DATA_CASES
from tests.support.security.group_cases import GROUP_CASES
from tests.support.security.token_cases import TOKEN_CASES

CASES: Final = tuple(
    sorted(
        (*DATA_CASES, *GROUP_CASES, *ADMIN_CASES, *TOKEN_CASES),
        key=lambda case: (case.key, case.title),
    )
)
