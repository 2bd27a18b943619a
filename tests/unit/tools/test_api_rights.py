"""docs/security-apis.md has the rights of every API (X3)."""

from penstock.broker.handlers.rights import RIGHTS
from penstock.broker.handlers.table import HANDLERS
from tools.api_rights import PAGE, page


def test_every_served_api_declares_its_rights() -> None:
    missing = [key.name for key in HANDLERS if key not in RIGHTS]
    assert missing == [], "add them to src/penstock/broker/handlers/rights.py"


def test_the_committed_page_is_that_of_the_table() -> None:
    assert PAGE.read_text() == page(), "run `make generate`"
