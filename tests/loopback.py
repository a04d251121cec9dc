"""A small server on 127.0.0.1 that answers as an OpenAI-compatible endpoint would, or fails to.

    with Loopback(script) as server:    # server.url, server.requests

`script(request)` is called for every request with the decoded body ({} for a GET) and the number
of requests before it; it returns the answer's text (a chat completion is made of it), a whole
JSON body, or a `Reply` that says status, headers, raw bytes or how long to wait. It stands for
every endpoint in the tests: judges, reward models, samplers.
"""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Request(NamedTuple):
    """One request as it came in."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    number: int


class Reply(NamedTuple):
    """An answer that is not simply JSON with status 200. `trickle_s` waits after every byte."""

    data: bytes = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    wait_s: float = 0.0
    trickle_s: float = 0.0


Script = Callable[[Request], "str | dict[str, Any] | Reply"]


def chat_completion(text: str, finish: str = "stop") -> dict[str, Any]:
    """The body of a chat completion with one choice."""
    message = {"role": "assistant", "content": text}
    return {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100},
    }


class _Server(ThreadingHTTPServer):
    """Takes all connections that a test opens at once: five, the default, are too few."""

    daemon_threads = True
    request_queue_size = 128


class Loopback:
    """Listens on a free port while the block runs; keeps every request."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Request] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> "Loopback":
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()

    def _receive(self, handler: BaseHTTPRequestHandler) -> Request:
        length = int(handler.headers.get("Content-Length", 0))
        body = json.loads(handler.rfile.read(length) or b"{}")
        with self._lock:
            number = len(self.requests)
            request = Request(handler.path, dict(handler.headers), body, number)
            self.requests.append(request)
        return request

    def _answer(self, request: Request) -> Reply:
        said = self.script(request)
        if isinstance(said, Reply):
            return said
        body = chat_completion(said) if isinstance(said, str) else said
        return Reply(json.dumps(body).encode())

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                reply = outer._answer(outer._receive(self))
                outer._stopped.wait(reply.wait_s)
                try:
                    self._send(reply)
                except OSError:
                    self.close_connection = True  # the client gave up waiting

            do_GET = do_POST  # noqa: N815  (the base class wants these names)

            def _send(self, reply: Reply) -> None:
                self.send_response(reply.status)
                for name, value in reply.headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.data)))
                self.end_headers()
                if not reply.trickle_s:
                    self.wfile.write(reply.data)
                    return
                for position in range(len(reply.data)):
                    self.wfile.write(reply.data[position : position + 1])
                    outer._stopped.wait(reply.trickle_s)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        return Handler
