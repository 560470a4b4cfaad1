"""Class names are unique, so that a reader who meets one knows which class is meant."""

import re
from collections import defaultdict
from pathlib import Path

SERVICE = Path(__file__).parents[2] / "service"
CLASS = re.compile(r"^\s*class (\w+)", re.MULTILINE)


def test_no_class_name_occurs_twice() -> None:
    modules = defaultdict(list)
    for path in SERVICE.rglob("*.py"):
        for name in CLASS.findall(path.read_text()):
            modules[name].append(str(path.relative_to(SERVICE)))
    assert len(modules) > 500
    assert {name: found for name, found in modules.items() if len(found) > 1} == {}
