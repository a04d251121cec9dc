"""Many requests to one endpoint at once, and fewer of them while it cannot keep up."""

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from pivotune.core.endpoint import Answer, Endpoint, EndpointError
from pivotune.core.types import JsonObject

T = TypeVar("T")
R = TypeVar("R")


def map_at_once(
    work: Callable[[T], R],
    items: Sequence[T],
    most: int,
    stopped: threading.Event | None = None,
) -> list[R]:
    """Results in the order of the items, of which up to `most` are worked on at once.

    Raises what `work` raises first, after which no further item is begun and `stopped` is set.
    Nobody waits for what is under way then, nor when a person stops the run.
    """
    if most <= 1 or len(items) <= 1:
        return [work(item) for item in items]
    todo = SimpleQueue[int]()
    done = SimpleQueue[tuple[int, R | None, Exception | None]]()
    stop = stopped or threading.Event()
    for index in range(len(items)):
        todo.put(index)

    def serve() -> None:
        while not stop.is_set():
            try:
                index = todo.get_nowait()
            except Empty:
                return
            try:
                done.put((index, work(items[index]), None))
            except Exception as error:
                stop.set()
                done.put((index, None, error))

    for _ in range(min(most, len(items))):
        threading.Thread(target=serve, name="at once", daemon=True).start()
    results: dict[int, Any] = {}
    try:
        while len(results) < len(items):
            index, result, error = done.get()
            if error is not None:
                raise error
            results[index] = result
    finally:
        stop.set()
    return [results[index] for index in range(len(items))]


class Crowd:
    """Sends up to `endpoint.config.concurrency` requests at once.

    A request that had to be sent twice, or failed, halves how many may be in flight (one at
    least); every other answer lets slowly more through again. A request keeps its place while it
    waits to be sent again.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.most = max(1, endpoint.config.concurrency)
        self._limit = float(self.most)
        self._running = 0
        self._changed = threading.Condition()

    @property
    def limit(self) -> int:
        """How many requests may be in flight now."""
        return int(self._limit)

    def post(self, path: str, body: JsonObject) -> Answer:
        """The decoded answer, after a wait for a place; raises `EndpointError`."""
        return self._post(path, body, threading.Event())

    def post_all(self, path: str, bodies: Sequence[JsonObject]) -> list[Any]:
        """The decoded answers in order; raises the first `EndpointError`, after which nothing
        more is sent.
        """
        stopped = threading.Event()

        def work(body: JsonObject) -> Any:
            return self._post(path, body, stopped).body

        return map_at_once(work, bodies, self.most, stopped)

    def _post(self, path: str, body: JsonObject, stopped: threading.Event) -> Answer:
        with self._changed:
            self._changed.wait_for(lambda: self._running < self.limit)
            self._running += 1
        attempts = 2
        try:
            if stopped.is_set():
                raise EndpointError("not sent: an earlier request failed", 0)
            answer = self.endpoint.post(path, body)
            attempts = answer.attempts
            return answer
        except EndpointError as error:
            attempts = error.attempts
            raise
        finally:
            self._leave(attempts)

    def _leave(self, attempts: int) -> None:
        with self._changed:
            self._running -= 1
            grown = min(float(self.most), self._limit + 1 / self._limit)
            self._limit = grown if attempts == 1 else max(1.0, self._limit / 2)
            self._changed.notify_all()
