"""The page that users read is what the models say."""

from tailrace.config.reference import reference
from tests.checkout import ROOT


def test_the_committed_page_is_up_to_date() -> None:
    """Otherwise: ``python -m tailrace.config.reference > docs/configuration.md``."""
    assert (ROOT / "docs/configuration.md").read_text() == reference()
