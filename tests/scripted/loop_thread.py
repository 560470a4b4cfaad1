"""An event loop in a thread of its own, and calls into it from any other thread or loop."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs a loop until it is closed. Tasks that still run are cancelled then."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], T]) -> T:
        """Runs a quick function in the loop's thread and returns its result."""
        if threading.current_thread() is self._thread:
            return function()  # called from a hook

        async def run() -> T:
            return function()

        return self.submit(run()).result()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Starts a coroutine in the loop."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a hook cannot wait for the loop that it runs in")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """Cancels the remaining tasks, stops the loop, and joins the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(asyncio.sleep(0))  # transports close one step later
        finally:
            self._loop.close()
