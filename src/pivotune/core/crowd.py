"""Many requests to one endpoint at once, and fewer of them while it cannot keep up."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
        more is sent."""
        workers = max(1, min(int(self._most), len(bodies)))
        with ThreadPoolExecutor(workers, thread_name_prefix="endpoint") as pool:
            futures = [pool.submit(self._post, path, body) for body in bodies]
            try:
                return [future.result().body for future in futures]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _post(self, path: str, body: JsonObject) -> Answer:
        with self._changed:
            self._changed.wait_for(lambda: self._running < self.limit)
            self._running += 1
        attempts = 2
        try:
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
