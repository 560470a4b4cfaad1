"""The parser of the command line: examples and exit codes in every help text, and suggestions."""

import argparse
import re
import textwrap
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NoReturn

from tailrace.cli.arguments import meant

_WIDTH = 80
_CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)", re.DOTALL)

_MISSING = "the following arguments are required"

_COMPLETED = {
    "FILE": {
        "bash": "_shtab_compgen_files",
        "zsh": "_files",
        "fish": "(__fish_complete_path (commandline -ct))",
    },
    "DIR": {
        "bash": "_shtab_compgen_dirs",
        "zsh": "_files -/",
        "fish": "(__fish_complete_directories)",
    },
}
"""By the name of a value, shtab's functions that complete it. shtab itself is imported only for
``tailrace completion``."""

EXAMPLES = r"""
tailrace init orders
tailrace migrate --from debezium connector.json --output config.yaml
tailrace migrate --from debezium application.properties --offsets offsets.dat --dry-run
tailrace migrate --from mongo-kafka connector.json --offsets offsets.json
tailrace migrate --from redpanda connect.yaml --output config.yaml
tailrace run
tailrace run --config /etc/tailrace/config.yaml
tailrace check
tailrace check --connect
tailrace check --json
tailrace check --schema > config.schema.json
tailrace compat --uri "mongodb+srv://user:password@cluster.example.net/"
tailrace compat --uri - --json --output report.json
tailrace handlers
tailrace handlers --json
tailrace health
tailrace health --ready
tailrace status
tailrace status --json
tailrace reload
tailrace reload --dry-run
tailrace reload --json
tailrace verify orders
tailrace verify orders --collection orders --sample 0.01 --documents-per-second 500 --json
tailrace verify orders --key '{"$oid": "65a0b0c0d0e0f0a0b0c0d0e0"}' --values
tailrace verify orders --repair --dry-run
tailrace verify orders --repair
tailrace verify orders --status
tailrace verify orders --cancel
tailrace snapshot start orders
tailrace snapshot start orders --collection shop.orders --filter '{"status": "open"}'
tailrace snapshot status orders --watch
tailrace snapshot status orders --json
tailrace snapshot start orders --json
tailrace snapshot pause orders
tailrace snapshot resume orders
tailrace snapshot cancel orders
tailrace demo
tailrace demo --events 20000 --to postgresql
tailrace pipeline --lake data/lake --tables data/tables --once
tailrace columns suggest --tables data/tables
tailrace columns suggest --tables data/tables --json
tailrace columns republish --tables data/tables --collection shop.orders
tailrace tables status --lake data/lake --tables data/tables
tailrace tables status --tables data/tables --json
tailrace scopes
tailrace scopes list --json
tailrace scopes restart orders
tailrace scopes pause orders
tailrace scopes resume orders
tailrace scopes seek orders --at 2026-01-01T00:00:00Z --dry-run
tailrace scopes seek orders --undo
tailrace scopes seek orders --undo --json
tailrace scopes replay orders --from 2026-01-01T00:00:00Z --handler audit --dry-run
tailrace scopes replay orders --from 2026-01-01T00:00:00Z --key '"A-17"' --to-file changes.jsonl
tailrace scopes positions orders
tailrace scopes positions orders --json
tailrace scopes release orders --dry-run
tailrace why --scope orders --key 7
tailrace why --scope orders --key '{"$oid": "65a000000000000000000001"}'
tailrace why --scope shop --collection orders --key '"A-17"' --json
tailrace checkpoints list
tailrace checkpoints list --json
tailrace checkpoints show orders
tailrace checkpoints reset orders --dry-run
tailrace dead-letters list
tailrace dead-letters list --scope orders --json
tailrace dead-letters show 65a00000f3c1
tailrace dead-letters show 65a00000f3c1 --json
tailrace dead-letters export | jq .error
tailrace dead-letters replay --handler audit --dry-run
tailrace dead-letters replay --handler audit --json
tailrace dead-letters discard 65a00000f3c1 --dry-run
tailrace completion bash > ~/.local/share/bash-completion/completions/tailrace
tailrace completion zsh > ~/.zfunc/_tailrace
tailrace completion fish > ~/.config/fish/completions/tailrace.fish
""".strip().splitlines()
"""Command lines that work as they stand, for the help of their commands and verbs."""


_FIRST = (
    "tailrace init orders",
    "tailrace run --config orders/config.yaml",
    "tailrace status",
    "tailrace snapshot start --help",
)
"""Examples for the help of all commands."""


class Parser(argparse.ArgumentParser):
    """Adds examples and exit codes to the help, and says what was probably meant.

    The docstring of a command's module ends with its exit codes. ``fill`` adds the arguments, when
    they are needed: what it imports may take long.
    """

    def __init__(
        self,
        *args: Any,
        fill: Callable[[argparse.ArgumentParser], None] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._fill = fill

    def filled(self, *, whole: bool = False) -> "Parser":
        """With its arguments; the ``whole`` of it, with those of all its commands, too."""
        self._add_arguments()
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for choice in action._choices_actions:
                    if whole or not choice.help:
                        verb = action.choices[choice.dest].filled(whole=whole)
                        choice.help = choice.help or verb.description
        return self

    def _add_arguments(self) -> None:
        fill, self._fill = self._fill, None
        if fill is not None:
            fill(self)

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Adds an argument, whose ``complete`` says how shtab completes it."""
        action = super().add_argument(*names, **options)
        if action.metavar in _COMPLETED:
            vars(action)["complete"] = _COMPLETED[str(action.metavar)]
        return action

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuses what is unknown here, where its near names are, and not in the first parser."""
        self._given: Sequence[str] = args or ()
        self._add_arguments()
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            message = f"unrecognized arguments: {' '.join(unknown)}"
            self._refuse(message, self._meant_option(unknown[0]))
        return found, unknown

    def format_help(self) -> str:
        """The help, with the examples of this command or verb."""
        _, *words = self.prog.split()
        self.filled()
        text = super().format_help()
        named = [each for each in EXAMPLES if f"{each} ".startswith(f"{self.prog} ")]
        if not words:
            named = list(_FIRST)
        if named:
            text += "\nexamples:\n" + "".join(f"  {each}\n" for each in named)
        commands = import_module("tailrace.cli.commands")
        named_command = commands.command(words[0]) if words else commands
        codes = " ".join((named_command.__doc__ or "").partition("Exit codes:")[2].split())
        if codes:
            lines = textwrap.wrap(codes, _WIDTH, initial_indent="  ", subsequent_indent="  ")
            text += "\nexit codes:\n" + "\n".join(lines) + "\n"
        return text

    def error(self, message: str) -> NoReturn:
        """Prints what is wrong, and what was meant or the usage; exits with 2."""
        near = ""
        if choice := _CHOICE.search(message):
            near = meant(choice[1], [each.strip(" '") for each in choice[2].split(",")])
        elif message.startswith(_MISSING):  # a mistyped option may be why
            for word in self._given:
                if word.startswith("--") and (near := self._meant_option(word)):
                    message = f"unrecognized arguments: {word}"
                    break
        self._refuse(message, near)

    def _refuse(self, message: str, near: str) -> NoReturn:
        """Ends with what was meant in one line; with the usage if nothing is near."""
        if near:
            self.exit(2, f"{self.prog}: error: {message}{near}\n")
        super().error(message)

    def _meant_option(self, word: str) -> str:
        name = word.partition("=")[0]
        known = self._option_string_actions
        return "" if name in known else meant(name, known)
