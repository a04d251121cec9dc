"""Recoveries: what the hinted student says just after a pivotal mistake, up to K turns.

Corrections: what it says at the mistake itself, in its place.

    c(t+1)  --teacher: one action--> hint --sample--> y_1 --executed--> c'  --hint--> y_2 …

The first context is the recorded one, so K = 1 needs no environment; for more, the action is
executed in an environment that has replayed the recorded prefix with equal observations. A
chain ends where the replay differs, the teacher has no action, the response commits to none or
gives its hint away, or the game is over; each reason is counted.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from pivotune.core.protocols import Environment, Sampler, SampleRequest
from pivotune.core.seeds import derive_seed
from pivotune.core.types import (
    Completion,
    Cost,
    Episode,
    Message,
    ParseOutcome,
    Task,
    ToolSpec,
    Turn,
)
from pivotune.turns.hints import leaks, with_action_hint
from pivotune.turns.mistakes import Mark, Standing, Teacher
from pivotune.turns.rollout import MakeEnvironment, contexts


class RecoveryConfig(msgspec.Struct, frozen=True):
    """`turns` is K; at most `limit` recoveries (published: 64 a step)."""

    turns: int
    limit: int
    temperature: float
    max_tokens: int
    template: str


class Recovery(msgspec.Struct, frozen=True):
    """One hinted response and the un-hinted context that it is trained on.

    `completion` has the prompt and the log-probabilities of the hinted context.
    """

    name: str
    history: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    gold: Message
    completion: Completion


class Recovered(msgspec.Struct, frozen=True):
    """Recoveries in order of the rounds, chains that ended early by reason, and the cost."""

    items: tuple[Recovery, ...]
    ended: dict[str, int]
    cost: Cost


class _Chain:
    """A recovery while it goes on."""

    def __init__(self, name: str, episode: Episode, turn: int) -> None:
        self.name = name
        self.task: Task = episode.task
        self.tools = episode.tools
        self.turn = turn
        self.history = contexts(episode)[turn + 1]
        self.environment: Environment | None = None

    def restore(self, make: MakeEnvironment) -> bool:
        """Replay the recorded prefix; whether every observation was the recorded one."""
        environment = make(self.task)
        here = Turn(
            id=self.name,
            trajectory_id=self.name,
            task=self.task,
            index=self.turn + 1,
            state=self.history,
            tools=self.tools,
            expert=Message("assistant"),
        )
        try:
            environment.restore(here)
        except Exception:  # an environment that breaks is not the one that was played
            return False
        self.environment = environment
        return True

    def standing(self) -> Standing:
        return Standing(self.task, self.history, self.tools, self.environment)

    def advance(self, action: Message) -> bool:
        """Execute an action; whether the game goes on."""
        assert self.environment is not None
        result = self.environment.step(action)
        self.history += (action, *result.replies)
        return not result.done


def sample_recoveries(
    sampler: Sampler,
    teacher: Teacher,
    make_environment: MakeEnvironment | None,
    mistakes: Sequence[tuple[str, Episode, int]],
    config: RecoveryConfig,
    seed: int,
) -> Recovered:
    """Recoveries behind (name, episode, pivotal turn); which of many is drawn by the seed."""
    ended: Counter[str] = Counter()
    follows = [each for each in mistakes if each[2] + 1 < len(each[1].turns)]
    ended["the episode ends there"] += len(mistakes) - len(follows)
    order = np.random.default_rng(seed).permutation(len(follows))
    chains = [_Chain(*follows[i]) for i in order[: config.limit]]
    ended["over the limit"] += len(follows) - len(chains)
    cost = Cost()
    if make_environment is not None:
        going = [chain for chain in chains if chain.restore(make_environment)]
        cost += Cost(environment_steps=sum(chain.turn + 1 for chain in chains))
        ended["the replay differs"] += len(chains) - len(going)
        chains = going
    items: list[Recovery] = []
    for number in range(config.turns):
        chains = chains[: config.limit - len(items)]
        if not chains:
            break
        found, used = _play_round(
            sampler, teacher, chains, config, derive_seed(seed, "recovery", number), ended
        )
        cost += used
        items += [recovery for _, recovery in found]
        if number + 1 < config.turns:
            chains = [each for each, said in found if _goes_on(each, said.completion, ended)]
            cost += Cost(environment_steps=sum(each.environment is not None for each, _ in found))
    return Recovered(tuple(items), dict(+ended), cost)


def _goes_on(chain: _Chain, said: Completion, ended: Counter[str]) -> bool:
    if chain.environment is None:
        return False
    try:
        going = chain.advance(said.message)
    except Exception:
        ended["the environment failed"] += 1
        return False
    ended["the game is over"] += not going
    return going


def sample_corrections(
    sampler: Sampler,
    marked: Sequence[tuple[str, Episode, Mark]],
    config: RecoveryConfig,
    seed: int,
) -> Recovered:
    """What the hinted student says at the pivotal turns themselves, in place of its mistakes.

    `turns` and `limit` of the settings are not used: there is one for each mark at most.
    """
    ended: Counter[str] = Counter()
    asked = [
        _Asked(f"{name} correction", contexts(episode)[mark.turn], episode.tools, mark.gold)
        for name, episode, mark in marked
    ]
    said, cost = _say_hinted(sampler, asked, config, seed, ended)
    return Recovered(tuple(each for each in said if each is not None), dict(+ended), cost)


class _Asked(NamedTuple):
    """What the student is asked, and the action that the hint names."""

    name: str
    history: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    gold: Message


def _play_round(
    sampler: Sampler,
    teacher: Teacher,
    chains: Sequence[_Chain],
    config: RecoveryConfig,
    seed: int,
    ended: Counter[str],
) -> tuple[list[tuple[_Chain, Recovery]], Cost]:
    """One hinted response for every chain that gets one."""
    suggested = teacher.suggest([chain.standing() for chain in chains], seed=seed)
    ended.update(suggested.problems)
    told = [
        (chain, _Asked(f"{chain.name} recovery", chain.history, chain.tools, gold))
        for chain, gold in zip(chains, suggested.actions, strict=True)
        if gold is not None
    ]
    said, cost = _say_hinted(sampler, [asked for _, asked in told], config, seed, ended)
    kept = [
        (chain, recovery)
        for (chain, _), recovery in zip(told, said, strict=True)
        if recovery is not None
    ]
    return kept, suggested.cost + cost


def _say_hinted(
    sampler: Sampler,
    asked: Sequence[_Asked],
    config: RecoveryConfig,
    seed: int,
    ended: Counter[str],
) -> tuple[list[Recovery | None], Cost]:
    """One hinted response each; None where it does not fit, commits to nothing or gives away."""
    requests: dict[int, SampleRequest] = {}
    for number, each in enumerate(asked):
        request = SampleRequest(
            messages=with_action_hint(each.history, each.gold, config.template),
            tools=each.tools,
            n=1,
            temperature=config.temperature,
            seed=derive_seed(seed, each.name),
            max_tokens=config.max_tokens,
            expects_call=True if each.tools else None,
        )
        length = sampler.count(request.messages, request.tools)
        if length + config.max_tokens > sampler.context_limit:
            ended["too long with its hint"] += 1
        else:
            requests[number] = request
    said = [completion for (completion,) in sampler.sample(list(requests.values()))]
    kept: list[Recovery | None] = [None] * len(asked)
    for number, completion in zip(requests, said, strict=True):
        name, history, tools, gold = asked[number]
        if completion.outcome is not ParseOutcome.OK or completion.finish != "stop":
            ended["no action committed"] += 1
        elif leaks(completion, gold, config.template):
            ended["the hint is given away"] += 1
        else:
            kept[number] = Recovery(name, history, tools, gold, completion)
    cost = Cost(
        rollout_turns=len(said),
        prompt_tokens=sum(len(each.prompt_ids) for each in said),
        sampled_tokens=sum(len(each.token_ids) for each in said),
    )
    return kept, cost
