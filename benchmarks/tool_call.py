"""How many comparisons the `tool_call` verifier does in a second of one core's time.

    python benchmarks/tool_call.py [TRACES]

Without traces, calls of three tools of the project's own making; with them, every turn of the
traces in which the expert makes a call. Each is compared with itself and with one changed value,
under schemas that are compiled once. The target is 15,000 a second.
"""

import sys
import time
from collections.abc import Iterable

import msgspec

from pivotune.core.types import Completion, Message, Task, ToolCall, ToolSpec, Turn
from pivotune.ingest import read_trajectories, split_turns
from pivotune.verify import ToolCallVerifier, as_completion

COMPARISONS = 60_000
TOOLS = (
    ToolSpec(
        "book_flight",
        "",
        {
            "type": "object",
            "properties": {
                "user_id": {"type": "string"},
                "date": {"type": "string", "format": "date"},
                "cabin": {"enum": ["economy", "business"]},
                "bags": {"type": "integer", "default": 0},
                "passengers": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                        "required": ["name"],
                    },
                },
            },
            "required": ["user_id", "date"],
        },
    ),
    ToolSpec("search", "", {"type": "object", "properties": {"query": {"type": "string"}}}),
)


def own_turns() -> list[Turn]:
    booking = {
        "user_id": "mia_li_3668",
        "date": "2024-05-20",
        "cabin": "economy",
        "bags": 3,
        "passengers": [{"name": "Mia Li", "age": 34}, {"name": "Kai Li", "age": 5}],
    }
    calls = [ToolCall("book_flight", booking), ToolCall("search", {"query": "flights to Seattle"})]
    return [
        Turn(f"t#{i}", "t", Task("t", ""), i, (), TOOLS, Message("assistant", tool_calls=made))
        for i, made in enumerate(((calls[0],), (calls[1],), tuple(calls)))
    ]


def traced_turns(paths: Iterable[str]) -> list[Turn]:
    trajectories = read_trajectories(paths)
    turns = [turn for trajectory in trajectories for turn in split_turns(trajectory)]
    return [turn for turn in turns if turn.expert.tool_calls]


def changed(message: Message) -> Completion:
    """The same calls with one more character in the first text argument."""
    first, *rest = message.tool_calls
    arguments = dict(first.arguments or {})
    for key, value in arguments.items():
        if isinstance(value, str):
            arguments[key] = value + "x"
            break
    calls = (msgspec.structs.replace(first, arguments=arguments), *rest)
    return as_completion(msgspec.structs.replace(message, tool_calls=calls))


def main() -> None:
    turns = traced_turns(sys.argv[1:]) if sys.argv[1:] else own_turns()
    pairs = [(t, c) for t in turns for c in (as_completion(t.expert), changed(t.expert))]
    verifier = ToolCallVerifier()
    rounds = max(1, COMPARISONS // len(pairs))
    start = time.process_time()
    for _ in range(rounds):
        for turn, completion in pairs:
            verifier.verify(turn, completion, None)
    rate = rounds * len(pairs) / (time.process_time() - start)
    print(f"{rate:,.0f} comparisons a second over {len(turns)} turns (target 15,000)")


if __name__ == "__main__":
    main()
