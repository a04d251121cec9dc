import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from pivotune.core.errors import DataError
from pivotune.core.types import Task, Trajectory
from pivotune.domains.catalog import DOMAINS
from pivotune.domains.household.environment import (
    EnvironmentConfig,
    HouseholdEnvironment,
    generated_task,
    task_game,
)
from pivotune.domains.household.expert import ExpertConfig
from pivotune.domains.household.generator import generate_game
from pivotune.domains.household.traces import record, write_rows
from pivotune.ingest.reader import read_trajectories

ACT, TYPED = EnvironmentConfig("act"), EnvironmentConfig("typed")


def traces(noise: float, shown: EnvironmentConfig, count: int = 20) -> list[Trajectory]:
    config = ExpertConfig(noise=noise, give_up=noise / 20)
    return [record(generated_task(s, "train"), config, shown, seed=s) for s in range(count)]


def test_a_trace_without_noise_is_won_and_says_what_it_is() -> None:
    for seed, trace in enumerate(traces(0.0, ACT)):
        actions = [m for m in trace.messages if m.role == "assistant"]
        assert trace.reward == 1.0
        assert trace.meta["ended"] == "won"
        assert trace.meta["steps"] == len(actions) >= trace.meta["optimal"]
        assert trace.meta["mistakes"] == [""] * len(actions)
        assert task_game(trace.task) == generate_game(seed, "train")
        roles = [m.role for m in trace.messages]
        assert roles == ["system", "user"] + ["assistant", "tool"] * len(actions)


def test_both_dialects_tell_the_same_game() -> None:
    for in_act, in_typed in zip(traces(0.4, ACT), traces(0.4, TYPED), strict=True):
        assert in_act.meta["mistakes"] == in_typed.meta["mistakes"]
        assert in_act.reward == in_typed.reward
        assert [tool.name for tool in in_act.tools] == ["act"]
        told = [
            [m.content for m in trace.messages if m.role == "tool"] for trace in (in_act, in_typed)
        ]
        assert told[0] == told[1]


def test_a_traces_task_is_played_with_the_tools_that_it_was_recorded_with() -> None:
    make = DOMAINS["household"].make_environment
    for shown in (ACT, TYPED):
        (trace,) = traces(0.0, shown, count=1)
        environment = make(trace.task)
        environment.reset(trace.task)
        assert environment.tools == trace.tools
        action = environment.oracle().action
        assert action is not None
        assert action.tool_calls[0].name in {tool.name for tool in trace.tools}
    assert traces(0.0, ACT, count=1)[0].task == generated_task(0, "train")


@pytest.mark.parametrize("dialect", ["Typed", "", None, 3, ["act"]])
def test_an_unknown_dialect_is_one_clear_error(dialect: object) -> None:
    task = generated_task(0, "train")
    wrong = replace(task, payload=task.payload | {"dialect": dialect})
    with pytest.raises(DataError, match="unknown dialect"):
        DOMAINS["household"].make_environment(wrong)


def test_noisy_traces_differ_in_quality_and_mark_their_mistakes() -> None:
    noisy = traces(0.5, ACT, count=40)
    won = [trace.reward for trace in noisy]
    assert 0.0 < sum(won) / len(won) < 1.0  # type: ignore[arg-type]
    assert {trace.meta["ended"] for trace in noisy} == {"won", "turns", "gave up"}
    marked = [bool(kind) for trace in noisy for kind in trace.meta["mistakes"]]
    assert 0.4 < sum(marked) / len(marked) < 0.8
    for trace in noisy:
        assert all("mistake" not in m.content for m in trace.messages)


def test_the_same_arguments_give_the_same_trace() -> None:
    assert traces(0.4, ACT, count=5) == traces(0.4, ACT, count=5)
    ids = {trace.id for noise in (0.0, 0.4) for trace in traces(noise, ACT, count=5)}
    assert len(ids) == 10


def test_rows_are_read_back_as_they_were(tmp_path: Path) -> None:
    written = traces(0.4, ACT, count=5) + traces(0.4, TYPED, count=5)
    path = tmp_path / "traces.jsonl"
    write_rows(path, written)
    read = [replace(trajectory, source=None) for trajectory in read_trajectories(path)]
    assert read == written


def test_rows_are_in_the_openai_form(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    trajectories = traces(0.3, TYPED, count=3)
    write_rows(path, trajectories)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["id"] for row in rows] == [trace.id for trace in trajectories]
    row = rows[0]
    assert row["reward"] in (0.0, 1.0)
    assert row["tools"][0]["type"] == "function"
    call = row["messages"][2]["tool_calls"][0]
    assert call["type"] == "function"
    assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert row["messages"][3]["role"] == "tool"
    assert row["messages"][3]["tool_call_id"] == call["id"]
    again = HouseholdEnvironment(TYPED)
    opening = again.reset(msgspec.convert(row["task"], Task))
    assert opening[1].content == row["messages"][1]["content"]
