"""Where a policy of the house says useless things: in its own games, and on an expert's states.

    python benchmarks/moments.py POLICY [POLICY ...]

A command is useless when it changes nothing: a look, an inventory, an examine, or one that is
refused. `games`: 100 games of seen rooms played by the policy, its commands by what the moment
asked for (`lab/noisy_expert.py`). `states`: the expert's states of 80 other games, 16 samples
each, as they are and with one `look` in between. The last line is JSON.
"""

import json
import sys
from collections import Counter, defaultdict
from typing import NamedTuple

from pivotune.models.threads import limit_threads

limit_threads()

from pivotune.core.protocols import SampleRequest  # noqa: E402
from pivotune.core.types import Message  # noqa: E402
from pivotune.domains.household.actions import put_template, to_message  # noqa: E402
from pivotune.domains.household.environment import (  # noqa: E402
    HouseholdEnvironment,
    generated_task,
)
from pivotune.domains.household.expert import (  # noqa: E402
    ExpertConfig,
    Memory,
    SearchingExpert,
)
from pivotune.domains.household.generator import TINY_GAMES  # noqa: E402
from pivotune.lab.mixture import SHOWN  # noqa: E402
from pivotune.lab.noisy_expert import moment  # noqa: E402
from pivotune.models.policy import load_policy  # noqa: E402
from pivotune.models.sampler import TorchSampler  # noqa: E402
from pivotune.turns.rollout import EpisodeLimits, Play, run_episodes  # noqa: E402

LIMITS = EpisodeLimits(max_turns=SHOWN.step_limit, max_tokens=32)
IDLE = ("look", "inventory", "examine")


class State(NamedTuple):
    """What a moment asks for, the house as it is there, and the conversation so far."""

    moment: str
    house: HouseholdEnvironment
    said: tuple[Message, ...]


def command_of(message: Message) -> str:
    """The command of an action, empty where there is none."""
    arguments = message.tool_calls[0].arguments if message.tool_calls else None
    return str(arguments.get("command", "")) if isinstance(arguments, dict) else ""


def is_useless(message: Message, answer: str) -> bool:
    """Whether an action changes nothing, by its command and the house's answer."""
    idle = command_of(message).split(" ")[0] in IDLE
    return not message.tool_calls or idle or answer.startswith(("Nothing", "Error"))


def judge_games(sampler: TorchSampler) -> dict[str, dict[str, float]]:
    """Shares of useless and repeated commands by moment, and where lost games end."""
    tasks = [generated_task(70_000 + i, "seen", TINY_GAMES) for i in range(100)]
    episodes = run_episodes(
        sampler,
        [Play(task) for task in tasks],
        lambda _: HouseholdEnvironment(SHOWN),
        temperature=1.0,
        seed=3,
        limits=LIMITS,
    )
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    lost: Counter[str] = Counter()
    for episode in episodes:
        house = HouseholdEnvironment(SHOWN)
        house.reset(episode.task)
        memory, before = Memory(house.opening), ""
        for turn in episode.turns:
            message = turn.completion.message
            command, answer = command_of(message), turn.replies[0].content if turn.replies else ""
            kind = "useless" if is_useless(message, answer) else "useful"
            kinds[moment(memory)]["again" if command == before else kind] += 1
            memory.note(command, answer)
            before = command
        if episode.reward != 1.0:
            lost[moment(memory)] += 1
    return {
        name: {
            **{kind: round(n / count.total(), 2) for kind, n in count.items()},
            "commands": count.total(),
            "games_lost": lost[name],
        }
        for name, count in kinds.items()
    } | {"all": {"won": sum(each.reward == 1.0 for each in episodes) / len(episodes)}}


def expert_states() -> tuple[list[State], list[State]]:
    """The expert's states in 80 games, as they are and behind one `look`."""
    clean, behind = [], []
    for number in range(80):
        house = HouseholdEnvironment(SHOWN)
        said = list(house.reset(generated_task(80_000 + number, "seen", TINY_GAMES)))
        put = put_template(house.game)
        expert = SearchingExpert(ExpertConfig(), number, put)
        expert.begin(house.opening)
        look = to_message("look", SHOWN.dialect, put)
        while not house.done and (choice := expert.choose()) is not None:
            now = moment(expert.memory)
            clean.append(State(now, house.clone(), tuple(said)))
            other = house.clone()
            behind.append(State(now, other, (*said, look, *other.step(look).replies)))
            action = to_message(choice.command, SHOWN.dialect, put)
            replies = house.step(action).replies
            expert.observe(choice.command, replies[0].content)
            said += [action, *replies]
    return clean, behind


def judge_states(sampler: TorchSampler, states: list[State]) -> dict[str, float]:
    """Share of useless samples by moment; shut places count with the search."""
    asked = [
        SampleRequest(each.said, each.house.tools, 16, 1.0, seed, 48, expects_call=True)
        for seed, each in enumerate(states)
    ]
    found: dict[str, list[bool]] = defaultdict(list)
    for state, samples in zip(states, sampler.sample(asked), strict=True):
        name = "search" if state.moment == "open" else state.moment
        for sample in samples:
            replies = state.house.clone().step(sample.message).replies
            found[name].append(is_useless(sample.message, replies[0].content if replies else ""))
    return {name: round(sum(each) / len(each), 3) for name, each in found.items()}


def main(paths: list[str]) -> None:
    clean, behind = expert_states()
    results = {}
    for path in paths:
        sampler = TorchSampler(load_policy(path))
        results[path] = {
            "games": judge_games(sampler),
            "states": judge_states(sampler, clean),
            "behind_a_look": judge_states(sampler, behind),
        }
        print(path, results[path], flush=True)
    print(json.dumps({"name": "moments", "ours": results, "unit": "share of commands"}))


if __name__ == "__main__":
    main(sys.argv[1:])
