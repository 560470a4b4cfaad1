"""Problems that are found after the file was read get its lines, too."""

from pathlib import Path

import pytest

from tailrace.config.loading import located
from tailrace.errors import ConfigurationError, Problem

TEXT = """\
mongodb: {uri: mongodb://localhost/}
handlers:
  mine:
    type: python
    target: shop:Orders
    outages:
      - shop.Down
    options:
      table: orders
  audit.1: {type: log}
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("handlers.mine.target", 5),
        ("handlers.mine.outages[0]", 7),
        ("handlers.mine.options.table", 9),
        ("handlers.mine.options.dsn", 8),
        ("handlers.mine", 3),
        ("handlers['audit.1'].level", 10),
        ("handlers.audit.1.level", 10),
        ("handler 'x'", 0),
        ("", 0),
    ],
)
def test_a_problem_has_the_line_of_its_key_or_of_the_section_that_lacks_it(
    path: str, line: int, tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(TEXT)
    error = located(ConfigurationError(Problem(path, "is wrong")), file)
    assert [(each.path, each.line) for each in error.problems] == [(path, line)]
    assert error.source == (str(file) if line else "")


def test_a_file_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    error = ConfigurationError(Problem("handlers.mine.target", "is wrong"))
    assert located(error, tmp_path / "config.yaml") is error
