"""How fast JSON Lines of chats are imported, against decoding them and nothing else.

    python benchmarks/ingest.py [TRACES.jsonl]
    python benchmarks/ingest.py --memory [MEGABYTES]...

Without a file, chats of the project's own making. Seconds are processor time. `--memory`: the
most memory that importing a file of each size takes, by default 100 MB and 2 GB; each in a
process of its own, which writes the trajectories out as the import stage does.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pivotune.ingest import read_trajectories

ROWS = 2000
TOOL = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Find pages.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
    },
}


def own_chat(number: int) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You find pages and answer. " * 60},
        {"role": "user", "content": f"What is known about subject {number}?"},
    ]
    for step in range(6):
        arguments = json.dumps({"query": f"subject {number} part {step}"})
        function = {"name": "search", "arguments": arguments}
        call = {"id": f"c{step}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        page = f"Page {step} of subject {number}. " * 40
        messages.append({"role": "tool", "tool_call_id": f"c{step}", "content": page})
    messages.append({"role": "assistant", "content": "This is what is known."})
    return {"id": str(number), "messages": messages, "tools": [TOOL], "reward": 1.0}


def decode(path: Path, decoder: Callable[[bytes], Any]) -> None:
    with path.open("rb") as file:
        for line in file:
            decoder(line)


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


IMPORT = """
import resource, sys
from pathlib import Path
from pivotune.core.store import write_records
from pivotune.ingest import read_trajectories
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
write_records(Path(sys.argv[2]), iter(read_trajectories(sys.argv[1])))
used = resource.getrusage(resource.RUSAGE_SELF)
print(before / 1024, used.ru_maxrss / 1024, used.ru_utime + used.ru_stime)
"""


def measure_memory(megabytes: int, folder: Path) -> None:
    """Write chats of this size in all, import them elsewhere, and print what that took."""
    path, rows = folder / "chats.jsonl", 0
    with path.open("w") as file:
        while file.tell() < megabytes * 1_000_000:
            file.writelines(json.dumps(own_chat(rows + i)) + "\n" for i in range(100))
            rows += 100
    command = [sys.executable, "-c", IMPORT, str(path), str(folder / "trajectories.jsonl")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    before, peak, used = map(float, printed.split())
    print(
        f"{megabytes:,} MB, {rows:,} rows: {peak:,.0f} MiB at most, of which {before:,.0f} before "
        f"the first row; {used:,.0f} s of processor time"
    )


def measure_rates() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[1]) if sys.argv[1:] else Path(folder) / "chats.jsonl"
        if not sys.argv[1:]:
            path.write_text("".join(json.dumps(own_chat(i)) + "\n" for i in range(ROWS)))
        size = path.stat().st_size / 1e6
        rates = {
            "import": size / seconds(lambda: sum(1 for _ in read_trajectories(path))),
            "json.loads alone": size / seconds(lambda: decode(path, json.loads)),
            "msgspec alone": size / seconds(lambda: decode(path, msgspec.json.decode)),
        }
    for name, rate in rates.items():
        print(f"{name}: {rate:,.0f} MB/s, {rates['import'] / rate:.2f} of it is the import's rate")


def main() -> None:
    if sys.argv[1:2] != ["--memory"]:
        measure_rates()
        return
    for size in [int(each) for each in sys.argv[2:]] or [100, 2000]:
        with tempfile.TemporaryDirectory() as folder:
            measure_memory(size, Path(folder))


if __name__ == "__main__":
    main()
