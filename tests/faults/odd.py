"""A service whose handlers are in :mod:`tests.faults.odd_handlers`."""

from pathlib import Path
from typing import Any

from tests.daemon import until
from tests.orders import Orders


class Odd:
    """The service and the notes of its handlers. The handlers wait (``closed``) at first."""

    def __init__(self, orders: Orders, *targets: str, **sections: Any) -> None:
        options = sections.pop("handler", {})
        self.insert = orders.insert
        self.run = orders.daemon(
            targets={each: {"target": f"odd_handlers:{each}", **options} for each in targets},
            **sections,
        )
        source = Path(__file__).with_name("odd_handlers.py")
        (self.run.directory / source.name).write_bytes(source.read_bytes())
        self.noted = self.run.numbers
        self.close()

    def close(self) -> None:
        (self.run.directory / "closed").touch()

    def open(self) -> None:
        (self.run.directory / "closed").unlink()

    def until_noted(self, where: str, *numbers: int) -> None:
        until(lambda: set(numbers) <= set(self.noted(where)), f"{numbers} in {where}")

    def ends_well(self) -> None:
        assert self.run.stop() == 0, self.run.log
        assert "Traceback" not in self.run.log, self.run.log
