"""``tailrace init``: the project that it writes works, and nothing is overwritten."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from tailrace.cli import main
from tests.checkout import IMPORTS
from tests.daemon import Make, until
from tests.orders import Orders

FILES = ["README.md", "compose.yaml", "config.yaml", "orders.py", "test_orders.py"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    assert main(["init", str(tmp_path / "project")]) == 0
    return tmp_path / "project"


def test_a_written_project_is_valid_and_its_test_passes(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sorted(path.name for path in project.iterdir()) == FILES
    environment = {**os.environ, "PYTHONPATH": IMPORTS}
    for command in (["tailrace", "check"], ["pytest", "-p", "no:cacheprovider"]):
        subprocess.run(
            [sys.executable, "-m", *command], cwd=project, env=environment, check=True, timeout=300
        )
    services = yaml.safe_load((project / "compose.yaml").read_text())["services"]
    assert "./:/etc/tailrace:ro" in services["tailrace"]["volumes"]


def test_a_written_handler_gets_the_documents_and_changes_of_a_server(
    project: Path, orders: Orders, daemon: Make
) -> None:
    orders.insert(1, 2)
    written = yaml.safe_load((project / "config.yaml").read_text())
    written["scopes"][0]["database"] = orders.database
    own = {"mongodb": {"uri": orders.uri}, "http": {"port": 0}}
    run = daemon(orders.uri, project.name, **{**written, **own}).start()
    with orders.server.client() as client:
        collection = client[orders.database].orders
        collection.update_one({"_id": 1}, {"$set": {"state": "paid"}})
        collection.delete_one({"_id": 2})

    def stored() -> list[str]:
        with closing(sqlite3.connect(project / "data/orders.db")) as database:
            return [document for (document,) in database.execute("SELECT document FROM orders")]

    until(lambda: stored() == ['{"_id": 1, "state": "paid"}'], "the current document")
    orders.drop()
    until(lambda: stored() == [], "the end of the collection")
    assert run.stop() == 0


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_there_is_not_overwritten(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text("mine")
    assert main(["init", str(tmp_path)]) == 2
    message = f"tailrace: {tmp_path / name}: is there already, so nothing was written\n"
    assert capsys.readouterr().err == message
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_a_directory_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["init", str(tmp_path / "file")]) == 2
    assert f"{tmp_path / 'file'}: cannot be written: " in capsys.readouterr().err
