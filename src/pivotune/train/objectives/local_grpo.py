"""Local GRPO, the update of PivotRL: a fresh group of actions at every pivot of a step.

    trunk    prompt ids of the pivot                    context
    branch   sampled ids of action i, i = 1..G          advantage A_i on every token

Pivots are visited in shuffled epochs. The verifier makes the reward functional or strict; it
sees the environment restored at the turn. A group whose rewards are all equal is left out.
Groups whose prompts extend one another (pivots of one trajectory) may share one trunk.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from pivotune.core.seeds import derive_seed
from pivotune.core.types import Completion, Cost, JsonObject, Turn
from pivotune.models.trees import (
    Segment,
    TokenTree,
    context_signal,
    policy_gradient_signal,
)
from pivotune.train.advantages import GroupAdvantages, group_advantages
from pivotune.train.draws import draw_batch, draw_others
from pivotune.train.groups import GroupConfig, check_groups, posterior_temperatures
from pivotune.train.objective import Collected, Materials, required
from pivotune.train.refresh import RefreshConfig, Refresher
from pivotune.train.trunks import merge_trunks
from pivotune.turns.rollout import Group, check_invalid_share, sample_groups


class LocalGrpoConfig(GroupConfig, frozen=True, forbid_unknown_fields=True):
    """Groups at pivots. 64 x 16 is published; 16 x 8 is ours, for small machines."""

    malformed: Literal["reward", "mask", "penalty"] = "reward"
    """Actions that do not parse: keep their reward (0), leave them out, or `penalty`."""
    penalty: float = -1.0
    """Fixed advantage of an action that does not parse where malformed is "penalty"."""
    share_trunks: bool = True
    """Put pivots whose prompts extend one another into one tree."""
    guard: int = 0
    """Turns a step that the profile found mostly accepted, sampled beside the pivots (ours): their
    groups are live only where the policy begins to fail, and then pull it back."""
    refresh: RefreshConfig | None = None
    """Choose pivots anew when they have been learnt."""


class LocalGrpo:
    """Samples and verifies groups at the policy's current weights."""

    Config = LocalGrpoConfig

    def __init__(self, materials: Materials, config: LocalGrpoConfig) -> None:
        self._sampler = required(materials.sampler, "a sampler", "local_grpo")
        self._verifier = required(materials.verifier, "a verifier", "local_grpo")
        self._turns = required(materials.turns, "pivots", "local_grpo")
        if config.guard:
            required(materials.solved, "turns that the base solves (guard)", "local_grpo")
        self._solved = materials.solved
        self._environments = materials.environments
        self._seed = materials.seed
        self._config = config
        check_groups(config, "actions")
        self._refresher: Refresher | None = None
        if config.refresh is not None:
            candidates = required(materials.candidates, "candidates (refresh)", "local_grpo")
            self._refresher = Refresher(config.refresh, self._turns, candidates, self._seed)
        self._temperatures = posterior_temperatures(config, materials)
        if self._temperatures is not None:
            ids = {turn.id for turn in (*self._turns, *materials.candidates)}
            self._temperatures.seed_from(p for p in materials.profiles if p.turn_id in ids)

    def state(self) -> JsonObject:
        parts = {"ptgs": self._temperatures, "refresh": self._refresher}
        return {name: part.state() for name, part in parts.items() if part is not None}

    def load_state(self, state: JsonObject) -> None:
        if self._temperatures is not None:
            self._temperatures.load_state(state["ptgs"])
        if self._refresher is not None:
            self._refresher.load_state(state["refresh"])
            self._turns = self._refresher.pool

    def collect(self, step: int) -> Collected:
        config = self._config
        phases = self._refresh(step)
        turns = draw_batch(self._turns, config.batch, seed=self._seed, name="local_grpo", step=step)
        groups = self._sample(list({turn.id: turn for turn in turns}.values()), step)
        advantages = [action_advantages(group, config) for group in groups]
        for number in range(config.refill):
            wanted = len(turns) - sum(each.live for each in advantages)
            others = draw_others(
                self._turns,
                wanted,
                taken={group.turn.id for group in groups},
                key=lambda turn: turn.id,
                seed=derive_seed(self._seed, "refill", step, number),
            )
            if not others:
                break
            more = self._sample(others, step)
            groups += more
            advantages += [action_advantages(group, config) for group in more]
        metrics = {**group_metrics(groups, advantages), "pool": float(len(self._turns))}
        if self._refresher is not None:
            self._refresher.note(metrics["live_share"], metrics["reward_mean"])
        if config.guard:
            guarded = self._sample_guard(step)
            metrics["guard_reward_mean"] = group_metrics(guarded, [])["reward_mean"]
            groups += guarded
            advantages += [action_advantages(group, config) for group in guarded]
        trees = [
            group_tree(group, found)
            for group, found in zip(groups, advantages, strict=True)
            if found.live
        ]
        cost = sum((group.cost for group in groups), Cost())
        merged = merge_trunks(trees) if config.share_trunks else trees
        return Collected(merged, metrics, cost, phases)

    def _sample_guard(self, step: int) -> list[Group]:
        count = self._config.guard
        turns = draw_batch(self._solved, count, seed=self._seed, name="guard", step=step)
        return self._sample(list({turn.id: turn for turn in turns}.values()), step)

    def _refresh(self, step: int) -> dict[str, Cost]:
        """Choose the pivots anew where it is time; what that cost."""
        if self._refresher is None or not self._refresher.due:
            return {}
        groups, cost = self._refresher.renew(
            lambda turns, n, seed: self._groups(turns, n, self._config.temperature, seed), step
        )
        self._count(groups)
        self._turns = self._refresher.pool
        return {"refresh": cost}

    def _groups(
        self, turns: Sequence[Turn], n: int, temperature: float | dict[str, float], seed: int
    ) -> list[Group]:
        return sample_groups(
            self._sampler,
            turns,
            self._verifier,
            self._environments,
            n=n,
            temperature=temperature,
            seed=seed,
            max_tokens=self._config.max_tokens,
        )

    def _sample(self, turns: Sequence[Turn], step: int) -> list[Group]:
        """A group at each turn; every one counts for its pivot's temperature."""
        config = self._config
        heat = self._draw_temperatures([turn.id for turn in turns], step)
        seed = derive_seed(self._seed, "local_grpo", step)
        groups = self._groups(turns, config.group, heat, seed)
        verdicts = [verdict for group in groups for verdict in group.verdicts]
        check_invalid_share(verdicts, config.invalid_limit, f"local_grpo, step {step}")
        self._count(groups)
        return groups

    def _draw_temperatures(self, keys: Sequence[str], step: int) -> float | dict[str, float]:
        if self._temperatures is None:
            return self._config.temperature
        return self._temperatures.draw(keys, step)

    def _count(self, groups: Sequence[Group]) -> None:
        """Every group counts for its pivot's temperature, also one that is not trained on."""
        if self._temperatures is not None:
            for group in groups:
                rewards = [verdict.reward for verdict in group.verdicts]
                self._temperatures.update(group.turn.id, rewards)


def action_advantages(group: Group, config: LocalGrpoConfig) -> GroupAdvantages:
    """Advantages of a group's actions, with those that do not parse treated as asked."""
    malformed = np.array([each.outcome.broken for each in group.completions], bool)
    rewards = [verdict.reward for verdict in group.verdicts]
    if config.malformed == "reward":
        return group_advantages(rewards, baseline=config.baseline, scale=config.scale)
    kept = [None if bad else reward for bad, reward in zip(malformed, rewards, strict=True)]
    found = group_advantages(kept, baseline=config.baseline, scale=config.scale)
    if config.malformed == "mask":
        return found
    values = np.where(malformed, config.penalty, found.values)
    trained = malformed | (found.valid & found.live)
    return GroupAdvantages(values, trained, bool(trained.any()))


def group_tree(group: Group, advantages: GroupAdvantages) -> TokenTree:
    """One trunk with the prompt and a branch for each valid action, as they were sampled."""
    prompt = np.array(group.completions[0].prompt_ids, np.int64)
    branches = [
        _branch(completion, float(advantage), row, len(prompt))
        for row, (completion, advantage, valid) in enumerate(
            zip(group.completions, advantages.values, advantages.valid, strict=True)
        )
        if valid
    ]
    return TokenTree(group.turn.id, (Segment(prompt, context_signal(len(prompt))), *branches))


def _branch(completion: Completion, advantage: float, row: int, attach: int) -> Segment:
    signal = policy_gradient_signal(
        advantage, completion.logprobs, temperature=completion.temperature, row=row
    )
    return Segment(np.array(completion.token_ids, np.int64), signal, parent=0, attach=attach)


def group_metrics(
    groups: Sequence[Group], advantages: Sequence[GroupAdvantages]
) -> dict[str, float]:
    """What is watched while training: rewards, their spread, live groups, lengths, failures."""
    rewards = [[v.reward for v in group.verdicts if v.reward is not None] for group in groups]
    values = np.array([reward for row in rewards for reward in row], np.float64)
    completions = [each for group in groups for each in group.completions]
    lengths = np.array([len(each.token_ids) for each in completions], np.float64)
    heat = np.array([group.completions[0].temperature for group in groups], np.float64)
    return {
        "reward_mean": float(values.mean()) if len(values) else 0.0,
        "reward_std": float(values.std()) if len(values) else 0.0,
        "group_std_mean": float(np.mean([float(np.std(row)) for row in rewards if row] or [0.0])),
        "groups": len(groups),
        "live_share": float(np.mean([each.live for each in advantages] or [False])),
        "invalid": float(sum(v.invalid for group in groups for v in group.verdicts)),
        "malformed_share": float(np.mean([each.outcome.broken for each in completions])),
        "action_tokens_mean": float(lengths.mean()),
        "action_tokens_max": float(lengths.max()),
        "clipped_share": float(np.mean([each.finish == "length" for each in completions])),
        "temperature_mean": float(heat.mean()),
        "temperature_min": float(heat.min()),
        "temperature_max": float(heat.max()),
        "prompt_tokens_mean": float(
            np.mean([len(group.completions[0].prompt_ids) for group in groups])
        ),
    }
