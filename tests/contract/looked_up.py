"""A collection with a history, read with documents: by the driver's own stream, and by ours."""

from typing import Any

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp

from tailrace.model import Scope, StartPoint
from tailrace.stream import ChangeStream, ChangeStreamOptions
from tailrace.stream.lookup import LookupStream
from tests.contract.collection import CollectionScene
from tests.contract.streams import connected


class LookedUp(CollectionScene):
    """The history begins at ``start``. Both ways return the BSON of each event."""

    start: Timestamp

    def begin(self) -> None:
        self.start = self.now

    def theirs(self, pipeline: list[Any]) -> list[bytes]:
        """All events of the driver's own stream, with the documents that the server looks up."""
        found = []
        undecoded: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
        with self.collection.with_options(undecoded).watch(
            pipeline,
            full_document="updateLookup",
            start_at_operation_time=self.start,
            max_await_time_ms=20,
        ) as stream:
            while (event := stream.try_next()) is not None:
                found.append(bytes(event.raw))
        return found

    async def ours(self, pipeline: list[Any]) -> list[bytes]:
        options = ChangeStreamOptions(tuple(pipeline), max_await_time_ms=20)
        start = StartPoint(at_operation_time=self.start)
        found: list[bytes] = []
        async with (
            connected(self.name, self.uri) as driver,
            ChangeStream(driver, Scope("c", self.database, "c"), options, start) as stream,
        ):
            looking = LookupStream(stream, driver)
            await looking.next_batch()  # the aggregate's own reply, which is empty
            while len(batch := await looking.next_batch()):
                found += batch.raw()
        return found
