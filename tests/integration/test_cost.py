"""``tailrace check --connect`` reports what a configuration costs the server."""

import yaml

from tests.orders import Orders


def test_unused_images_are_reported(orders: Orders) -> None:
    """It also reports the number of streams. Stored images that a scope uses are not reported."""
    run = orders.daemon(scope={"full_document": "updateLookup"})
    with orders.server.client() as client:
        for name in ("orders", "users"):
            images = {"enabled": True}
            client[orders.database].create_collection(name, changeStreamPreAndPostImages=images)
    run.configuration["scopes"].append(
        {
            "name": "users",
            "database": orders.database,
            "collection": "users",
            "full_document_before_change": "whenAvailable",
        }
    )
    run.configuration["routes"].append({"scope": "users", "handlers": ["file"]})
    (run.directory / "config.yaml").write_text(yaml.safe_dump(run.configuration))
    lines = run.command("check", "--connect").splitlines()
    told = [line.removeprefix("cost: ") for line in lines if line.startswith("cost: ")]
    assert told[0].startswith("2 change streams (2 on a collection): ")
    (images,) = told[1:]
    assert images.startswith(f"{orders.database}.orders stores images of each change")
    assert any(line.startswith("scope orders: full_document: lookup gives") for line in lines)
