"""Many requests to one endpoint at once, and fewer of them while it cannot keep up."""

import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any

from pivotune.core.endpoint import Answer, Endpoint, EndpointError
from pivotune.core.types import JsonObject


class Crowd:
    """Sends up to `most` requests at once.

    A request that had to be sent twice, or failed, halves how many may be in flight (one at
    least); every other answer lets slowly more through again. A request keeps its place while it
    waits to be sent again.
    """

    def __init__(self, endpoint: Endpoint, most: int) -> None:
        self.endpoint = endpoint
        self._most = float(max(1, most))
        self._limit = self._most
        self._running = 0
        self._changed = threading.Condition()

    @property
    def limit(self) -> int:
        """How many requests may be in flight now."""
        return int(self._limit)

    def post_all(self, path: str, bodies: Sequence[JsonObject]) -> list[Any]:
        """The decoded answers in order; raises the first `EndpointError`, after which nothing
        more is sent. Nobody waits for requests in flight then, nor when a person stops the run.
        """
        todo = SimpleQueue[int]()
        done = SimpleQueue[tuple[int, Answer | Exception]]()
        stopped = threading.Event()
        for index in range(len(bodies)):
            todo.put(index)

        def work() -> None:
            while not stopped.is_set():
                try:
                    index = todo.get_nowait()
                except Empty:
                    return
                try:
                    done.put((index, self._post(path, bodies[index], stopped)))
                except Exception as error:
                    stopped.set()
                    done.put((index, error))

        for _ in range(min(int(self._most), len(bodies))):
            threading.Thread(target=work, name="endpoint", daemon=True).start()
        try:
            return self._gather(done, len(bodies))
        finally:
            stopped.set()

    def _gather(self, done: "SimpleQueue[tuple[int, Answer | Exception]]", count: int) -> list[Any]:
        answers: dict[int, Any] = {}
        while len(answers) < count:
            index, found = done.get()
            if isinstance(found, Exception):
                raise found
            answers[index] = found.body
        return [answers[index] for index in range(count)]

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
            grown = min(self._most, self._limit + 1 / self._limit)
            self._limit = grown if attempts == 1 else max(1.0, self._limit / 2)
            self._changed.notify_all()
