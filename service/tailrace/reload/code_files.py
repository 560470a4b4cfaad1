"""The files of the users' modules that handlers have loaded: a reload compares, and never reloads.

Python keeps a loaded module for the life of the process. To run one again would leave old classes
and functions in the other modules that have imported them.
"""

import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel

_INSTALLED = tuple({f"{path}/" for path in map(sysconfig.get_path, ("stdlib", "purelib"))})


def code_files(handlers: Mapping[str, BaseModel]) -> Mapping[str, Mapping[str, str]]:
    """By handler, digests of the files of its target's module and of those beside it, by path.

    Only loaded modules count. Of an installed package, only its own modules do. Blocks.
    """
    loaded = [*_loaded()]
    targets = {name: getattr(each, "target", None) for name, each in handlers.items()}
    return {
        name: dict(_digests(_of_target(target.partition(":")[0], loaded)))
        for name, target in targets.items()
        if isinstance(target, str)
    }


def _loaded() -> Iterator[tuple[str, str]]:
    """The name and the file of each loaded module that has one."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py"):
            yield name, str(Path(file).absolute())


def _of_target(module: str, loaded: Iterable[tuple[str, str]]) -> Iterator[str]:
    top = module.partition(".")[0]
    own = [file for name, file in loaded if name.partition(".")[0] == top]
    yield from own
    folders = {_folder(name, file) for name, file in loaded if name == module}
    for name, file in loaded:
        beside = any(file.startswith(f"{folder}/") for folder in folders)
        if beside and name != "__main__" and not file.startswith(_INSTALLED):
            yield file


def _folder(name: str, file: str) -> Path:
    """The folder in which the top module of this one is."""
    parts = name.count(".") + (Path(file).name == "__init__.py")
    return Path(file).parents[parts]


def _digests(files: Iterable[str]) -> Iterator[tuple[str, str]]:
    for file in sorted(set(files)):
        try:
            yield file, sha256(Path(file).read_bytes()).hexdigest()
        except OSError:
            yield file, ""
