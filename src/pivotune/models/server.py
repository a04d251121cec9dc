"""A sampler that asks an OpenAI-compatible endpoint: vLLM, SGLang, llama.cpp, a hosted one.

Two ways of asking. With a tokenizer of the served model at hand, prompts are rendered here and
sent as token ids (`/completions`): the prompt is the one that training uses, whatever template
the server has, and the action's text goes through our own parser. Without one
(`server.chat = true`) the messages are sent and the endpoint renders and parses
(`/chat/completions`).

Log-probabilities are kept where the endpoint gives them and the temperature is 1 (or 0): what
endpoints report is that of temperature 1. Token ids are kept where it gives them. A first tiny
request finds out which parameters the endpoint takes; `findings` says so in words. Loads no
torch.
"""

import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeGuard

import msgspec

from pivotune.core.crowd import Crowd
from pivotune.core.endpoint import Endpoint, EndpointConfig, EndpointError
from pivotune.core.errors import ModelError, SamplerError
from pivotune.core.json_text import JsonProblemError, parse_json
from pivotune.core.protocols import SamplerAbilities, SampleRequest, ScoreRequest, TokenScores
from pivotune.core.seeds import derive_seed
from pivotune.core.types import (
    Completion,
    JsonObject,
    Message,
    ParseOutcome,
    ToolCall,
    ToolSpec,
    content_hash,
)
from pivotune.models.chat import ChatFormat
from pivotune.models.parse import (
    ParsedAction,
    cut_at_stop,
    format_action,
    judge_action,
    parse_action,
)

ASSUMED_CONTEXT = 32_768
BYTES_PER_TOKEN = 3
"""Where no tokenizer is at hand a prompt is taken to have this few bytes a token: cautious."""

LOGPROB_TEMPERATURES = (0.0, 1.0)
_LEAST = -1e6  # no sampled token has a smaller log-probability; servers write -9999 for "none"


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the endpoint is and how it is asked.

    `url` ends where `/chat/completions` begins. `model`: its name there; empty: the only one
    that is served. `chat`: the endpoint renders the messages (no tokenizer here). `context_limit`
    0: what the endpoint says. `key_env` names the environment variable that holds a key.
    `timeout_s` bounds one attempt; `concurrency` requests are in flight at most.
    """

    url: str = ""
    model: str = ""
    chat: bool = False
    context_limit: int = 0
    key_env: str = ""
    concurrency: int = 16
    timeout_s: float = 300.0


class _Asked(NamedTuple):
    """One HTTP request: `wanted` answers wanted for the request at `place`."""

    place: int
    wanted: int
    body: JsonObject


class _Way(NamedTuple):
    """What the endpoint was found to take."""

    extensions: bool
    logprobs: bool
    seed: bool
    many: bool


_WAYS = (
    _Way(extensions=True, logprobs=True, seed=True, many=True),
    _Way(extensions=False, logprobs=True, seed=True, many=True),
    _Way(extensions=False, logprobs=False, seed=True, many=True),
    _Way(extensions=False, logprobs=False, seed=False, many=True),
    _Way(extensions=False, logprobs=False, seed=False, many=False),
)
"""From the most telling way to the one that everything takes."""


class ServerSampler:
    """Samples from what an endpoint serves. `chat` is None where the endpoint renders."""

    def __init__(
        self, config: ServerConfig, chat: ChatFormat | None, *, backoff_s: float = 1.0
    ) -> None:
        self.config = config
        self.chat = chat
        patience = EndpointConfig(
            url=config.url,
            key_env=config.key_env,
            timeout_s=config.timeout_s,
            deadline_s=4 * config.timeout_s,
            retries=8,
            backoff_s=backoff_s,
            concurrency=config.concurrency,
        )
        self._endpoint = Endpoint(patience, "server")
        self._crowd = Crowd(self._endpoint)
        self._path = "/chat/completions" if chat is None else "/completions"
        card = _find_model(self._endpoint, config.model)
        self.model: str = card["id"]
        self._said_context = _context_of(card)
        self._way, first = self._find_way()
        self._gives_ids = first is not None and bool(_ids(first))

    @property
    def name(self) -> str:
        return "server"

    @property
    def policy_hash(self) -> str:
        """Of the name that is served: an endpoint does not show its weights."""
        return content_hash("server", self.model, self.chat is None)

    @property
    def abilities(self) -> SamplerAbilities:
        return SamplerAbilities(scores=False, loads_weights=False, token_ids=self._gives_ids)

    @property
    def context_limit(self) -> int:
        return self.config.context_limit or self._said_context or ASSUMED_CONTEXT

    @property
    def findings(self) -> tuple[str, ...]:
        """What the endpoint does and does not do, a line each."""
        rendered = "by the endpoint" if self.chat is None else "here, sent as token ids"
        lines = [f"endpoint: model {self.model}; prompts rendered {rendered}"]
        missing = [
            what
            for what, there in (
                ("token ids", self._gives_ids),
                ("log-probabilities", self._way.logprobs),
                ("seeds", self._way.seed),
                ("several answers a request", self._way.many),
            )
            if not there
        ]
        if missing:
            lines.append(f"endpoint: gives no {', no '.join(missing)}")
        if not self._way.extensions:
            lines.append("endpoint: its own top-k and top-p cannot be turned off from here")
        if not (self.config.context_limit or self._said_context):
            lines.append(
                f"endpoint: does not say its context; {ASSUMED_CONTEXT} tokens assumed "
                "(server.context_limit)"
            )
        return tuple(lines)

    def sample(self, requests: Sequence[SampleRequest]) -> list[tuple[Completion, ...]]:
        prompts = [self._prompt(request) for request in requests]
        waiting = [
            asked
            for index, request in enumerate(requests)
            for asked in self._ask(index, request, prompts[index])
        ]
        found: list[list[Completion]] = [[] for _ in requests]
        for attempt in range(1, 4):
            answers = self._post_all([asked.body for asked in waiting])
            for asked, answer in zip(waiting, answers, strict=True):
                request = requests[asked.place]
                read = [
                    self._complete(request, prompts[asked.place], choice, answer)
                    for choice in _choices(answer)[: asked.wanted]
                ]
                # Greedy answers are all one, and some endpoints refuse to give it twice.
                found[asked.place] += read * request.n if request.temperature == 0 else read
            waiting = [
                asked
                for index, request in enumerate(requests)
                if (missing := request.n - len(found[index])) > 0
                for asked in self._ask(index, request, prompts[index], missing, attempt)
            ]
            if not waiting:
                return [tuple(each) for each in found]
        place = waiting[0].place
        short = f"{len(found[place])} of {requests[place].n}; the last answer: {answers[-1]}"
        raise SamplerError(
            "the endpoint answers with fewer actions than it is asked for",
            where=self.config.url,
            got=short[:300],
            expected="OpenAI's form of answer, with a list of choices",
            fix="run the same command again when that has passed: finished work is kept",
        )

    def _post_all(self, bodies: Sequence[JsonObject]) -> list[Any]:
        try:
            return self._crowd.post_all(self._path, bodies)
        except EndpointError as error:
            raise _failed(self.config.url, error) from error

    def score(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        raise SamplerError(
            "an endpoint cannot score given tokens", fix="use the local sampler (sampler=torch)"
        )

    def count(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> int:
        """Exact with a tokenizer at hand, else from the number of bytes."""
        if self.chat is not None:
            return len(self.chat.render(messages, tools))
        body = [_message_dict(message) for message in messages], [_tool(tool) for tool in tools]
        return len(json.dumps(body, ensure_ascii=False).encode()) // BYTES_PER_TOKEN

    def end_session(self, session: str) -> None:
        """The endpoint keeps its own cache."""

    def _prompt(self, request: SampleRequest) -> tuple[int, ...]:
        """Ids of the prompt; nothing where the endpoint renders."""
        prompt: tuple[int, ...] = ()
        if self.chat is None:
            length = self.count(request.messages, request.tools)
        else:
            prompt = tuple(self.chat.render(request.messages, request.tools))
            length = len(prompt)
        if length >= self.context_limit:
            raise SamplerError(
                "the prompt leaves no room for an action",
                where=request.name or "a prompt",
                got=f"{length} tokens",
                expected=f"fewer than the context limit of {self.context_limit}",
                fix="leave the turn out, or declare a window of the history",
            )
        return prompt

    def _ask(
        self,
        index: int,
        request: SampleRequest,
        prompt: tuple[int, ...],
        count: int = 0,
        attempt: int = 0,
    ) -> list[_Asked]:
        """The HTTP requests for `count` actions (0: all), each with a seed of its own."""
        count = 1 if request.temperature == 0 else count or request.n
        sizes = [count] if self._way.many else [1] * count
        room = self.context_limit - len(prompt)
        asked = []
        for number, size in enumerate(sizes):
            body = self._body(request, prompt, self._way, min(request.max_tokens, room), size)
            if self._way.seed:
                seed = derive_seed(request.seed, "endpoint", attempt, number)
                body["seed"] = seed % (1 << 31)
            asked.append(_Asked(index, size, body))
        return asked

    def _body(
        self,
        request: SampleRequest,
        prompt: tuple[int, ...],
        way: _Way,
        max_tokens: int,
        n: int,
    ) -> JsonObject:
        body: JsonObject = {
            "model": self.model,
            "temperature": request.temperature,
            "top_p": 1,
            "max_tokens": max_tokens,
        }
        if n > 1:
            body["n"] = n
        if request.stop:
            body["stop"] = list(request.stop)
        if way.extensions:
            # Servers take the model's own defaults for what is not said.
            body |= {"top_k": -1, "min_p": 0, "repetition_penalty": 1.0, "return_token_ids": True}
            body["return_tokens_as_token_ids"] = True
        if self.chat is not None:
            body["prompt"] = list(prompt)
            if way.logprobs:
                body["logprobs"] = 1
            if way.extensions:
                body |= {"skip_special_tokens": False, "stop_token_ids": list(self.chat.stop_ids)}
            return body
        body["messages"] = [_message_dict(message) for message in request.messages]
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
        if way.logprobs:
            body["logprobs"] = True
        return body

    def _find_way(self) -> tuple[_Way, JsonObject | None]:
        """The most telling way of asking that the endpoint takes, and its first choice."""
        hello = SampleRequest((Message("user", "Hello"),), (), 2, 1.0, 0, 1)
        prompt = self._prompt(hello)
        for way in _WAYS:
            body = self._body(hello, prompt, way, 1, 2 if way.many else 1)
            if way.seed:
                body["seed"] = 0
            try:
                choices = _choices(self._endpoint.post(self._path, body).body)
            except EndpointError as error:
                if error.status not in (400, 422) or way is _WAYS[-1]:
                    raise _failed(self.config.url, error) from error
                continue
            if not choices and way is not _WAYS[-1]:
                continue
            first = choices[0] if choices else None
            given = bool(first and _logprobs(first))
            many = way.many and len(choices) > 1
            return way._replace(logprobs=way.logprobs and given, many=many), first
        raise AssertionError("the last way raises or answers")

    def _complete(
        self,
        request: SampleRequest,
        prompt: tuple[int, ...],
        choice: JsonObject,
        answer: JsonObject,
    ) -> Completion:
        ids = _ids(choice)
        logprobs = _logprobs(choice) if request.temperature in LOGPROB_TEMPERATURES else ()
        if ids and len(logprobs) != len(ids):
            logprobs = ()
        reason = choice.get("finish_reason")
        finish: Literal["stop", "length"] = "length" if reason == "length" else "stop"
        if self.chat is None:
            text, parsed = _read_message(choice.get("message"), finish, request)
            prompt = _prompt_ids(choice, answer)
        else:
            text = cut_at_stop(self.chat.decode(ids) if ids else _text(choice), request.stop)
            parsed = parse_action(text, finish=finish, expects_call=request.expects_call)
        if reason not in ("stop", "length", "tool_calls", "function_call", None):
            why = f"the endpoint ended the action: {reason}"
            parsed = parsed._replace(outcome=ParseOutcome.TRUNCATED, problem=why)
        usage = answer.get("usage") if isinstance(answer.get("usage"), dict) else {}
        return Completion(
            prompt_ids=prompt,
            token_ids=ids,
            logprobs=logprobs,
            message=parsed.message,
            outcome=parsed.outcome,
            finish=finish,
            temperature=request.temperature,
            policy_hash=self.policy_hash,
            text=text,
            problem=parsed.problem,
            prompt_tokens=0 if prompt else _number(usage, "prompt_tokens"),
            sampled_tokens=0
            if ids
            else _number(usage, "completion_tokens") // max(1, len(_choices(answer))),
        )


def _find_model(endpoint: Endpoint, wanted: str) -> JsonObject:
    """The endpoint's card of a model: the named one, or the only one that there is.

    An endpoint without a list of models is taken at the recipe's word.
    """
    try:
        said = endpoint.get("/models").body
    except EndpointError as error:
        if wanted and error.status in (404, 405, 501):
            return {"id": wanted}
        raise _failed(endpoint.config.url, error) from error
    cards = said.get("data") if isinstance(said, dict) else None
    listed = cards if isinstance(cards, list) else []
    known = [card for card in listed if isinstance(card, dict) and _is_name(card.get("id"))]
    fitting = [card for card in known if not wanted or card["id"] == wanted]
    if len(fitting) == 1 or (wanted and fitting):
        return fitting[0]
    if wanted and not known:
        return {"id": wanted}
    names = ", ".join(str(card["id"]) for card in known)
    raise ModelError(
        "the endpoint does not serve this model" if wanted else "which model is meant?",
        where=endpoint.config.url,
        got=wanted or f"{len(known)} models are served",
        expected=f"one of {names}" if names else "a model that is served",
        fix="set server.model",
    )


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _failed(url: str, error: EndpointError) -> SamplerError:
    fix = "see that the server runs, or ask less of it at once (server.concurrency); "
    fix += "then run the same command again: finished work is kept"
    if error.status in (401, 403):
        fix = "put the key into an environment variable and name that in server.key_env"
    elif error.status == 404:
        fix = "server.url ends where /chat/completions begins, mostly in /v1"
    elif error.status:
        fix = "see what the endpoint says of the request"
    return SamplerError("the endpoint failed", where=url, got=str(error), fix=fix)


def _context_of(card: JsonObject) -> int:
    """vLLM and SGLang say `max_model_len`, llama.cpp `meta.n_ctx`; 0 where nothing is said."""
    meta = card.get("meta")
    return _number(card, "max_model_len") or _number(
        meta if isinstance(meta, dict) else {}, "n_ctx"
    )


def _number(values: Any, key: str) -> int:
    value = values.get(key) if isinstance(values, dict) else None
    return value if isinstance(value, int) and value > 0 else 0


def _choices(answer: Any) -> list[JsonObject]:
    """In order; none in an answer of another form, such as an error with status 200."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list) or not all(isinstance(each, dict) for each in choices):
        return []
    return sorted(choices, key=lambda choice: _number(choice, "index"))


def _token_entries(choice: JsonObject) -> list[JsonObject]:
    """Name, log-probability and, from llama.cpp, id of each token, from either form of answer."""
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, dict):
        return []
    content = logprobs.get("content")
    if isinstance(content, list):
        return [each for each in content if isinstance(each, dict)]
    tokens, values = logprobs.get("tokens"), logprobs.get("token_logprobs")
    if not isinstance(tokens, list) or not isinstance(values, list):
        return []
    return [{"token": t, "logprob": v} for t, v in zip(tokens, values, strict=False)]


def _logprobs(choice: JsonObject) -> tuple[float, ...]:
    values = [entry.get("logprob") for entry in _token_entries(choice)]
    numbers = [float(v) for v in values if isinstance(v, (int, float)) and _LEAST <= v <= 1e-3]
    return tuple(min(number, 0.0) for number in numbers) if len(numbers) == len(values) else ()


def _ids(choice: JsonObject) -> tuple[int, ...]:
    """The sampled token ids, wherever the endpoint puts them."""
    ids = choice.get("token_ids")
    if isinstance(ids, list) and all(map(_is_id, ids)):
        return tuple(ids)
    found: list[int] = []
    for entry in _token_entries(choice):
        name = str(entry.get("token"))
        number = entry.get("id")
        if name.startswith("token_id:") and name[9:].isdecimal() and len(name) < 20:
            number = int(name[9:])
        if not _is_id(number):
            return ()
        found.append(number)
    return tuple(found)


def _is_id(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 1 << 31


def _prompt_ids(choice: JsonObject, answer: JsonObject) -> tuple[int, ...]:
    ids = choice.get("prompt_token_ids") or answer.get("prompt_token_ids")
    return tuple(ids) if isinstance(ids, list) and all(map(_is_id, ids)) else ()


def _text(choice: JsonObject) -> str:
    text = choice.get("text")
    return text if isinstance(text, str) else ""


def _read_message(
    value: Any, finish: Literal["stop", "length"], request: SampleRequest
) -> tuple[str, ParsedAction]:
    """Text and action of a chat answer; calls that the endpoint left in the text are parsed."""
    body = value if isinstance(value, dict) else {}
    content = body.get("content") if isinstance(body.get("content"), str) else ""
    thinking = body.get("reasoning_content") or body.get("reasoning") or ""
    raw = body.get("tool_calls")
    calls = tuple(map(_read_call, raw)) if isinstance(raw, list) else ()
    if not calls:
        text = content or ""
        parsed = parse_action(text, finish=finish, expects_call=request.expects_call)
        message = parsed.message
        if isinstance(thinking, str) and thinking and not message.thinking:
            message = msgspec.structs.replace(message, thinking=thinking.strip())
        return text, parsed._replace(message=message)
    message = Message("assistant", (content or "").strip(), calls, str(thinking).strip())
    return format_action(message), judge_action(
        message, finish=finish, expects_call=request.expects_call
    )


def _read_call(value: Any) -> ToolCall:
    function = value.get("function") if isinstance(value, dict) else None
    body = function if isinstance(function, dict) else {}
    given = body.get("arguments")
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    try:
        arguments = parse_json(text or "{}")
    except JsonProblemError:
        arguments = None
    known = arguments if isinstance(arguments, dict) else None
    identifier = value.get("id") if isinstance(value, dict) else ""
    return ToolCall(str(body.get("name") or ""), known, text, str(identifier or ""))


def _message_dict(message: Message) -> JsonObject:
    """A message in OpenAI's form."""
    body: JsonObject = {"role": message.role, "content": message.content}
    if message.tool_calls:
        body["content"] = message.content or None
        body["tool_calls"] = [
            {
                "id": call.id or f"call{index:05d}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments_text or "{}"},
            }
            for index, call in enumerate(message.tool_calls)
        ]
    if message.role == "tool":
        body["tool_call_id"] = message.tool_call_id or "call00000"
    return body


def _tool(tool: ToolSpec) -> JsonObject:
    parameters = tool.parameters or {"type": "object", "properties": {}}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}
