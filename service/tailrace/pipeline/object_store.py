"""S3 as Spark is told of it, and what an object store must do before tables may stand in it."""

from collections.abc import Mapping
from contextlib import suppress

from tailrace.errors import PipelineRefused, describe, how_to_install
from tailrace.lake.s3 import S3Access
from tailrace.lake.storage import Storage, overwrites
from tailrace.pipeline.location import Location

PROBE = "tailrace.conditional-write"
"""A file beside the tables, which can be created only once."""

_PROVIDERS = "software.amazon.awssdk.auth.credentials"
_FROM_VARIABLE = {
    "AWS_WEB_IDENTITY_TOKEN_FILE": f"{_PROVIDERS}.WebIdentityTokenFileCredentialsProvider",
    "AWS_PROFILE": f"{_PROVIDERS}.ProfileCredentialsProvider",
}
"""Credentials that Hadoop does not look for by itself, as the other clients do. By default it takes
keys from the environment, then the machine's role."""


def spark_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Hadoop's settings for S3, from the variables that every other client reads."""
    access = S3Access.of(environment)
    settings = {
        "endpoint": access.endpoint,
        # Hadoop would ask AWS for the region of a bucket that is somewhere else.
        "endpoint.region": access.region or ("us-east-1" if access.endpoint else ""),
        "path.style.access": str(access.path_style).lower(),
        "connection.ssl.enabled": str(not access.plain_http).lower(),
        "change.detection.mode": "none",  # files are never overwritten
    }
    if not environment.get("AWS_ACCESS_KEY_ID"):
        chosen = (name for variable, name in _FROM_VARIABLE.items() if environment.get(variable))
        settings["aws.credentials.provider"] = next(chosen, "")
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items() if value}


def require_conditional_writes(tables: Location) -> None:
    """Raises :class:`PipelineRefused` if the store cannot be written, or overwrites files.

    A commit is a file that only one writer can create. A store that ignores this condition would
    let two pipelines commit at once, and lose the changes of one.
    """
    try:
        from tailrace.lake.bucket import Bucket
    except ModuleNotFoundError as error:
        raise PipelineRefused(
            f"{tables}: needs {error.name}: {how_to_install('pipeline')}"
        ) from None
    try:
        bucket: Storage = Bucket(tables.uri)
        with suppress(FileExistsError):
            bucket.put(PROBE, b"")
        fences = not overwrites(bucket, PROBE, b"")
    except (OSError, ValueError) as error:
        raise PipelineRefused(f"{tables}: cannot be written: {describe(error)}") from error
    if not fences:
        raise PipelineRefused(
            f"{tables}: the store ignores 'If-None-Match: *', and so overwrites what is there: two "
            "pipelines could commit at once. Use a store that honours conditional writes"
        )
