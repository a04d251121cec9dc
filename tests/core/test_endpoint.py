import time

import pytest

from loopback import Loopback, Reply
from pivotune.core.endpoint import Endpoint, EndpointConfig, EndpointError
from pivotune.core.errors import RecipeError

FAST = {"backoff_s": 0.001, "timeout_s": 10.0, "deadline_s": 30.0}


def endpoint(server, **options):
    return Endpoint(EndpointConfig(server.url, **(FAST | options)), "test")


def test_json_in_json_out():
    with Loopback(lambda request: {"said": request.body["ask"]}) as server:
        answer = endpoint(server).post("/echo", {"ask": "서울"})
    assert answer == ({"said": "서울"}, 1)
    assert server.requests[0].path == "/v1/echo"
    assert "Authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    "bad",
    [
        Reply(b"try later", 503),
        Reply(b"", 500),
        Reply(b"slow down", 429),
        Reply(b"<html>gateway</html>"),
        Reply(b'{"cut": '),
        Reply(b"[" * 100_000 + b"]" * 100_000),
    ],
)
def test_what_may_pass_is_tried_again(bad):
    with Loopback(lambda request: bad if request.number < 2 else {"ok": 1}) as server:
        assert endpoint(server).post("x", {}) == ({"ok": 1}, 3)
        server.requests.clear()
        with pytest.raises(EndpointError, match="attempts: 2") as raised:
            endpoint(server, retries=1).post("x", {})
    assert raised.value.attempts == len(server.requests) == 2


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 422])
def test_what_will_not_pass_is_asked_once(status):
    with (
        Loopback(lambda request: Reply(b'{"error": "no such model"}', status)) as server,
        pytest.raises(EndpointError, match=rf"HTTP {status} .*no such model"),
    ):
        endpoint(server).post("x", {})
    assert len(server.requests) == 1


def test_a_wait_that_is_asked_for_is_kept():
    def script(request):
        wait_s = request.body["wait_s"]
        return Reply(b"", 429, (("Retry-After", wait_s),)) if request.number == 0 else {}

    with Loopback(script) as server:
        start = time.monotonic()
        endpoint(server).post("x", {"wait_s": "1"})
        assert time.monotonic() - start >= 1.0
        server.requests.clear()
        with pytest.raises(EndpointError, match=r"HTTP 429.*no further attempt fits into 30 s"):
            endpoint(server).post("x", {"wait_s": "31"})
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "slow", [Reply(b"{}", wait_s=600), Reply(b'{"a": "' + b"x" * 6000 + b'"}', trickle_s=0.1)]
)
def test_hanging_and_trickling_end_at_the_deadline(slow):
    """Either would be a good answer after ten minutes; only the deadline ends the attempts."""
    patience = {"timeout_s": 0.5, "deadline_s": 2.0, "retries": 1000}
    with (
        Loopback(lambda request: slow) as server,
        pytest.raises(EndpointError, match=r"within 0\.5 s; no further attempt fits into 2 s"),
    ):
        endpoint(server, **patience).post("x", {})


def test_nobody_listens():
    with Loopback(lambda request: {}) as server:
        url = server.url
    with pytest.raises(EndpointError, match="ConnectError"):
        Endpoint(EndpointConfig(url, backoff_s=0.001, retries=1), "test").post("x", {})


def test_an_answer_without_end_is_cut_off(monkeypatch):
    monkeypatch.setattr("pivotune.core.endpoint.MAX_ANSWER_BYTES", 1000)
    with (
        Loopback(lambda request: Reply(b" " * 2000)) as server,
        pytest.raises(EndpointError, match="more than 1,000 bytes"),
    ):
        endpoint(server).post("x", {})


def test_the_key_is_sent_and_never_told(monkeypatch):
    monkeypatch.setenv("TEST_KEY", "s3cret-value")
    echo = Loopback(lambda r: Reply(f"bad key {r.headers['Authorization']}".encode(), 401))
    with echo as server:
        asked = endpoint(server, key_env="TEST_KEY")
        with pytest.raises(EndpointError) as raised:
            asked.post("x", {})
    assert server.requests[0].headers["Authorization"] == "Bearer s3cret-value"
    assert "s3cret" not in str(raised.value)
    assert "[key]" in str(raised.value)
    assert "s3cret" not in repr(asked.config)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"url": ""}, "not an address"),
        ({"url": "localhost:8000"}, "not an address"),
        ({"url": "file:///etc/passwd"}, "not an address"),
        ({"url": "http://[::1"}, "not an address"),
        ({"url": "http://host:port/v1"}, "not an address"),
        ({"url": "http://host:99999/v1"}, "not an address"),
        ({"url": "http://a..b/v1"}, "not an address"),
        ({"url": f"http://{'a' * 80}/v1"}, "not an address"),
        ({"url": "http://h\0st/v1"}, "not an address"),
        ({"url": "http://me:pw@host/v1"}, "holds a name or password"),
        ({"url": "http://host/v1", "key_env": "PIVOTUNE_NO_SUCH_KEY"}, "holds no key"),
    ],
)
def test_settings_that_cannot_be_meant(settings, said):
    with pytest.raises(RecipeError, match=said):
        Endpoint(EndpointConfig(**settings), "verifier judge")
