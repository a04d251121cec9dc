import threading

import pytest

from loopback import Loopback, Reply
from pivotune.core.crowd import Crowd
from pivotune.core.endpoint import Endpoint, EndpointConfig, EndpointError

PATIENCE_S = 300.0
"""Longer than anything here takes on a busy machine; only a failing test waits for it."""


def crowd(server, most):
    patience = {"backoff_s": 0.001, "timeout_s": 600.0, "deadline_s": 600.0}
    return Crowd(Endpoint(EndpointConfig(server.url, **patience, concurrency=most), "test"))


def numbered(count):
    return [{"i": i} for i in range(count)]


class Counted:
    """Counts how many requests the server holds at once; `seen` at each arrival."""

    def __init__(self):
        self.running, self.seen, self._lock = 0, [], threading.Lock()

    def __enter__(self):
        with self._lock:
            self.running += 1
            self.seen.append(self.running)

    def __exit__(self, *_):
        with self._lock:
            self.running -= 1


def test_answers_come_in_order_and_as_many_as_allowed_are_in_flight():
    """Every request waits until four are there, so five rounds of exactly four come about."""
    full, counted = threading.Barrier(4), Counted()

    def script(request):
        with counted:
            full.wait(PATIENCE_S)
            return {"i": request.body["i"]}

    with Loopback(script) as server:
        answers = crowd(server, 4).post_all("/x", numbered(20))
    assert [answer["i"] for answer in answers] == list(range(20))
    assert max(counted.seen) == 4


def test_an_overloaded_endpoint_gets_fewer_requests_and_then_more_again():
    """Eight refusals halve eight down to one in flight. Every good answer then adds the limit's
    inverse: 1, 2, 2.5, 2.9, and so on up to eight."""
    refused, counted = set(), Counted()

    def script(request):
        with counted:
            if request.body["i"] < 8 and request.body["i"] not in refused:
                refused.add(request.body["i"])
                return Reply(b"", 429)
            return {"ok": 1}

    with Loopback(script) as server:
        asked = crowd(server, 8)
        asked.post_all("/x", numbered(8))
        assert asked.limit == 1
        counted.seen.clear()
        asked.post_all("/x", [{"i": 8}] * 60)
        assert asked.limit == 8
        assert len(server.requests) == 8 + 8 + 60
    assert counted.seen[0] == 1
    assert max(counted.seen[:4]) <= 2


def test_after_a_refusal_nobody_waits_for_what_hangs_and_nothing_more_is_sent():
    let_go, answered = threading.Event(), []

    def script(request):
        if request.body["i"] == 1:
            return Reply(b"no", 400)
        let_go.wait(PATIENCE_S)
        answered.append(request.body["i"])
        return {"ok": 1}

    with Loopback(script) as server:
        with pytest.raises(EndpointError, match="HTTP 400"):
            crowd(server, 2).post_all("/x", numbered(200))
        assert not answered
        let_go.set()
        for thread in threading.enumerate():
            if thread.name == "at once":
                thread.join(PATIENCE_S)
        assert {request.body["i"] for request in server.requests} <= {0, 1}


def test_nothing_to_ask():
    with Loopback(lambda request: {}) as server:
        assert crowd(server, 4).post_all("/x", []) == []
