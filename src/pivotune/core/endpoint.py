"""An endpoint that answers JSON with JSON: deadline, retries with jitter, bounded answers.

The key comes from the environment variable that the settings name. It is sent in the header and
goes nowhere else: not into settings, versions, caches, or the text of an error, even where the
endpoint repeats it.
"""

import os
import random
import time
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import msgspec

from pivotune.core.errors import RecipeError
from pivotune.core.types import JsonObject

MAX_ANSWER_BYTES = 16 * 1024 * 1024
MAX_WAIT_S = 30.0
_TRANSIENT = frozenset({408, 409, 425, 429})


class EndpointConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where to ask and how patiently.

    `url` ends before the path of a request (`http://localhost:8000/v1`). `key_env` names the
    environment variable that holds the key; empty sends none. `timeout_s` bounds one attempt,
    `deadline_s` all `retries` + 1 of them, waits included. `concurrency` requests are in flight
    at most, where several are wanted (ours: 8).
    """

    url: str = ""
    key_env: str = ""
    timeout_s: float = 30.0
    deadline_s: float = 120.0
    retries: int = 5
    backoff_s: float = 0.5
    concurrency: int = 8


class EndpointError(Exception):
    """No usable answer, and why; `attempts` requests were sent.

    `status` is that of an answer that another attempt would not change; else 0.
    """

    def __init__(self, problem: str, attempts: int, status: int = 0) -> None:
        super().__init__(f"{problem} (attempts: {attempts})")
        self.attempts = attempts
        self.status = status


class Answer(NamedTuple):
    """A decoded answer, and how many requests it took."""

    body: Any
    attempts: int


class _TransientError(Exception):
    """A failure that another attempt may mend; `wait_s` is what the endpoint asked for."""

    def __init__(self, problem: str, wait_s: float = 0.0) -> None:
        super().__init__(problem)
        self.wait_s = wait_s


class Endpoint:
    """A connection that is kept open. Raises `RecipeError` for settings that cannot be meant."""

    def __init__(self, config: EndpointConfig, what: str) -> None:
        """`what` names the settings in errors, such as `verifier judge`."""
        self.config = config
        _check_url(config.url, what)
        self._key = _read_key(config.key_env, what)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        # Certificates take a third of a second to load; redirects, to another scheme, are refused.
        secure = urlsplit(config.url).scheme != "http"
        self._client = httpx.Client(headers=headers, follow_redirects=False, verify=secure)

    def post(self, path: str, body: JsonObject) -> Answer:
        """The decoded answer to a JSON body; raises `EndpointError`."""
        return self._request("POST", path, msgspec.json.encode(body))

    def get(self, path: str) -> Answer:
        """The decoded JSON at a path; raises `EndpointError`."""
        return self._request("GET", path, b"")

    def _request(self, method: str, path: str, content: bytes) -> Answer:
        end = time.monotonic() + self.config.deadline_s
        problem, attempts, asked_s = "no attempt was made", 0, 0.0
        while attempts <= self.config.retries:
            wait_s = self._wait_s(attempts, asked_s)
            if time.monotonic() + wait_s >= end:
                problem += f"; no further attempt fits into {self.config.deadline_s:g} s"
                break
            time.sleep(wait_s)
            attempts += 1
            try:
                return Answer(self._ask(method, path, content, end, attempts), attempts)
            except _TransientError as error:
                problem, asked_s = str(error), error.wait_s
        raise EndpointError(self._redact(problem), attempts)

    def close(self) -> None:
        self._client.close()

    def _wait_s(self, attempts: int, asked_s: float) -> float:
        """Doubling, with jitter, so that many clients do not come back at once."""
        if attempts == 0:
            return 0.0
        doubled = self.config.backoff_s * float(1 << (attempts - 1))
        return max(asked_s, random.uniform(0.5, 1.0) * min(doubled, MAX_WAIT_S))

    def _ask(self, method: str, path: str, content: bytes, end: float, attempt: int) -> Any:
        end = min(end, time.monotonic() + self.config.timeout_s)
        url = f"{self.config.url.rstrip('/')}/{path.lstrip('/')}"
        try:
            with self._client.stream(
                method,
                url,
                content=content or None,
                headers={"Content-Type": "application/json"},
                timeout=max(0.001, end - time.monotonic()),
            ) as response:
                data = self._read(response, end, attempt)
                status, wait_s = response.status_code, _retry_after(response)
        except httpx.TimeoutException:
            raise _TransientError(f"no answer within {self.config.timeout_s:g} s") from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise _TransientError(f"{type(error).__name__}: {error}") from None
        if status in _TRANSIENT or status >= 500:
            raise _TransientError(f"HTTP {status}: {_brief(data)}", wait_s)
        if not 200 <= status < 300:
            problem = self._redact(f"HTTP {status} from {url}: {_brief(data)}")
            raise EndpointError(problem, attempt, status)
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            raise _TransientError(f"the answer is not JSON: {_brief(data)}") from None

    def _read(self, response: httpx.Response, end: float, attempt: int) -> bytes:
        """Chunk by chunk: an endpoint that trickles must not outlast the deadline."""
        data = bytearray()
        for chunk in response.iter_bytes():
            data += chunk
            if len(data) > MAX_ANSWER_BYTES:
                raise EndpointError(f"an answer of more than {MAX_ANSWER_BYTES:,} bytes", attempt)
            if time.monotonic() > end:
                raise _TransientError(f"no whole answer within {self.config.timeout_s:g} s")
        return bytes(data)

    def _redact(self, text: str) -> str:
        return text.replace(self._key, "[key]") if self._key else text


def _check_url(url: str, what: str) -> None:
    try:
        parts = urlsplit(url)
        named = (parts.hostname or "").encode("idna")  # ValueError: no name that is looked up
        good = parts.scheme in ("http", "https") and bool(named) and parts.port != 0
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        good = False
    if not good:
        expected = "the endpoint's address, such as http://localhost:8000/v1"
        raise RecipeError("url: not an address", where=what, got=url, expected=expected)
    if "@" in parts.netloc:
        fix = "put the key into an environment variable and name it in key_env"
        raise RecipeError("url: it holds a name or password", where=what, fix=fix)


def _read_key(variable: str, what: str) -> str:
    if not variable:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise RecipeError(
            f"key_env: the environment variable {variable} holds no key",
            where=what,
            fix=f"export {variable}=…, or leave key_env out where none is needed",
        )
    return key


def _retry_after(response: httpx.Response) -> float:
    """Seconds that the endpoint asks to wait; dates are not read."""
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isdecimal() and len(value) < 6 else 0.0


def _brief(data: bytes) -> str:
    text = " ".join(data[:400].decode(errors="replace").split())
    return text if len(text) <= 200 else f"{text[:200]}…"
