"""Changes that are lost are skipped, but not again and again."""

import pytest

from tailrace.engine.position.history_lost import MOST_SKIPS, LostHistory
from tailrace.errors import ScopeHalted
from tailrace.model.start import NOW
from tests.unit.engine.position.test_start_position import begins, noted


def test_only_a_stream_that_was_open_has_skipped_changes() -> None:
    """Until then the server may refuse streams for other reasons, as often as it likes."""
    history, known = LostHistory(), noted(2)
    position = begins(known)
    history.refused(position.start, "the history is lost")
    for _ in range(MOST_SKIPS):
        for _ in range(5):
            assert history.gap(NOW, "orders", position, known) is not None
        history.skipped()
    with pytest.raises(ScopeHalted, match="its history was lost 3 times without one change"):
        history.gap(NOW, "orders", position, known)
