import threading
import time

import pytest

from loopback import Loopback, Reply
from pivotune.core.crowd import Crowd
from pivotune.core.endpoint import Endpoint, EndpointConfig, EndpointError


def crowd(server, most, **options):
    config = EndpointConfig(server.url, backoff_s=0.001, **options)
    return Crowd(Endpoint(config, "test"), most)


def test_answers_come_in_order_and_no_more_than_allowed_are_in_flight():
    running, most, lock = [0], [0], threading.Lock()

    def script(request):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.01 * (1 + request.body["i"] % 3))
        with lock:
            running[0] -= 1
        return {"i": request.body["i"]}

    with Loopback(script) as server:
        answers = crowd(server, 4).post_all("/x", [{"i": i} for i in range(20)])
    assert [answer["i"] for answer in answers] == list(range(20))
    assert 2 <= most[0] <= 4


def test_an_overloaded_endpoint_gets_fewer_requests_and_then_more_again():
    def script(request):
        return Reply(b"", 429) if request.number < 8 else {"ok": 1}

    with Loopback(script) as server:
        asked = crowd(server, 8)
        asked.post_all("/x", [{}] * 8)
        slow = asked.limit
        assert slow < 8
        asked.post_all("/x", [{}] * 60)
        assert slow < asked.limit <= 8
        assert len(server.requests) == 8 + 68


def test_the_first_refusal_ends_the_rest():
    def script(request):
        time.sleep(0.01)
        return Reply(b"no", 400) if request.body["i"] == 1 else {"ok": 1}

    with Loopback(script) as server:
        with pytest.raises(EndpointError, match="HTTP 400"):
            crowd(server, 2).post_all("/x", [{"i": i} for i in range(200)])
        assert len(server.requests) < 50


def test_nobody_waits_for_what_hangs_when_another_request_has_failed():
    def script(request):
        return Reply(b"no", 400) if request.body["i"] == 1 else Reply(b"{}", wait_s=30)

    with Loopback(script) as server:
        start = time.monotonic()
        with pytest.raises(EndpointError, match="HTTP 400"):
            crowd(server, 4).post_all("/x", [{"i": i} for i in range(8)])
        assert time.monotonic() - start < 5


def test_nothing_to_ask():
    with Loopback(lambda request: {}) as server:
        assert crowd(server, 4).post_all("/x", []) == []
