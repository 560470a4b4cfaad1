"""The options of a peer's file. Each is carried over, without effect here, or named as lost."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from tailrace.errors import ConfigurationError, Problem


def refuse(file: str, message: str) -> NoReturn:
    """Raises :class:`ConfigurationError` about a peer's file."""
    raise ConfigurationError(Problem(file, message))


@dataclass(frozen=True, slots=True)
class Lost:
    """Something that is not carried over, or not as it was: an option by its name, and why."""

    option: str
    why: str

    def __str__(self) -> str:
        return f"{self.option}: {self.why}"


@dataclass(slots=True)
class PeerOptions:
    """The options that are not used yet. ``prefix``: what stands before their names in the file."""

    values: dict[str, str]
    prefix: str = ""
    lost: list[Lost] = field(default_factory=list)

    def take(self, name: str, default: str = "") -> str:
        """Uses an option: its value without white space around it."""
        return self.values.pop(name, "").strip() or default

    def take_flag(self, name: str, default: bool) -> bool:
        """Uses an option that is true or false."""
        return self.take(name, str(default)).lower() == "true"

    def take_count(self, name: str) -> int | None:
        """Uses an option that is a number; ``None`` if it is missing, or not above 0."""
        text = self.take(name)
        if text and not re.fullmatch(r"-?[0-9]+", text):
            self.lose(name, f"{text!r} is no whole number")
            return None
        return int(text) if text and int(text) > 0 else None

    def take_list(self, name: str) -> list[str]:
        """Uses an option that is a list with commas. One behind a backslash, as in the regular
        expression ``a{1\\,2}``, separates nothing (Debezium's Strings.RegExSplitter)."""
        parts = re.split(r"(?<!\\),", self.take(name))
        return [part.strip().replace("\\,", ",") for part in parts if part.strip()]

    def take_under(self, prefix: str) -> "PeerOptions":
        """Uses all options whose names begin so, which are named by the rest."""
        names = [name for name in self.values if name.startswith(prefix)]
        values = {name.removeprefix(prefix): self.values.pop(name) for name in names}
        return PeerOptions(values, self.prefix + prefix, self.lost)

    def lose(self, name: str, why: str) -> None:
        """Notes that an option is not carried over."""
        self.lost.append(Lost(self.prefix + name, why))

    def lose_rest(
        self, reasons: Mapping[str, str | tuple[str, str]], without_effect: Iterable[str]
    ) -> None:
        """Notes each option that is left, except those without an effect in Tailrace.

        Both arguments name options by regular expressions. A reason may follow the value with which
        the option does nothing.
        """
        harmless = re.compile("|".join(without_effect))
        for name, value in self.values.items():
            if harmless.fullmatch(name):
                continue
            found = next((why for key, why in reasons.items() if re.fullmatch(key, name)), None)
            if found is None:
                self.lose(name, "unknown to 'tailrace migrate': see whether you need it")
                continue
            idle, why = found if isinstance(found, tuple) else ("", found)
            if value.strip().lower() != idle:
                self.lose(name, why)
        self.values.clear()
