"""``from tailrace import …``: what users' handlers import."""

import subprocess
import sys
from pathlib import Path

import pytest

import tailrace
from tailrace import destination, envelope, errors, event, model

NAMES = (
    "Batch",
    "BatchHandlerSettings",
    "ChangeEvent",
    "Fenced",
    "Message",
    "PermanentError",
    "Refused",
    "ResumeToken",
    "ScopeContext",
    "TemporaryError",
    "Unavailable",
    "destination_type",
)

KIT = (
    "PRIVATE",
    "ROWS_BYTES",
    "AnyHandlerSettings",
    "Batch",
    "BatchHandlerSettings",
    "Commit",
    "CommitHandlerSettings",
    "Comparison",
    "ConfigurationError",
    "DocumentId",
    "FieldMapping",
    "FieldSettings",
    "Handler",
    "HandlerSettings",
    "HandlerType",
    "HeldKey",
    "HeldKeys",
    "HeldRows",
    "MessageHandlerSettings",
    "MessageMaker",
    "NameTemplate",
    "Namespace",
    "Opening",
    "OwnPosition",
    "PerBatch",
    "PerEvent",
    "ProbeContext",
    "Problem",
    "ReadDocuments",
    "Rename",
    "Row",
    "RunIdentity",
    "ScopeContext",
    "Secret",
    "SecretText",
    "SecretUri",
    "SnapshotBarrier",
    "Template",
    "converted",
    "ddl_mark",
    "destination_type",
    "followed_collections",
    "is_before",
    "namespace_of",
    "probe_directory",
    "raw_documents",
    "raw_list",
    "require_apart",
    "sync_directory",
    "write_all",
)


def test_the_public_names_are_these() -> None:
    """Removing one breaks users' handlers and destinations; adding one is a promise."""
    assert tuple(tailrace.__all__) == NAMES
    assert set(NAMES) <= set(dir(tailrace))
    assert tuple(destination.__all__) == KIT


@pytest.mark.parametrize("name", [name for name in KIT if callable(getattr(destination, name))])
def test_a_name_of_the_kit_is_described(name: str) -> None:
    assert getattr(destination, name).__doc__


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_what_the_service_itself_uses(name: str) -> None:
    modules = (errors, event, model, envelope, destination)
    internal = next(getattr(each, name) for each in reversed(modules) if hasattr(each, name))
    assert getattr(tailrace, name) is internal
    assert internal.__doc__


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'tailrace' has no attribute 'Watcher'"):
        tailrace.Watcher  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_package_imports_nothing_heavy() -> None:
    """The process records signals before it imports a driver or a codec."""
    script = (
        "import sys, tailrace; print(sorted({'bson', 'pymongo', 'pydantic'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"


@pytest.mark.parametrize("layout", ["service.py", "service/__init__.py"])
def test_a_handler_module_called_service_is_the_users_own(tmp_path: Path, layout: str) -> None:
    """No module of ours has a top-level name other than ``tailrace``."""
    module = tmp_path / layout
    module.parent.mkdir(exist_ok=True)
    module.write_text(
        "from tailrace import ChangeEvent\nasync def handle(event: ChangeEvent): ...\n"
    )
    config = tmp_path / "config.yaml"
    config.write_text(
        "mongodb: {uri: mongodb://localhost}\n"
        "scopes: [{name: orders, database: shop}]\n"
        "handlers: {mine: {type: python, target: 'service:handle'}}\n"
        "routes: [{scope: orders, handlers: [mine]}]\n"
        f"store: {{path: {tmp_path}/tailrace.db}}\n"
    )
    script = (
        "import sys; sys.path.insert(0, '.')\n"
        "from tailrace.cli import main; code = main(['check', '--config', 'config.yaml'])\n"
        "import service; print(service.__file__); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(module) in done.stdout
