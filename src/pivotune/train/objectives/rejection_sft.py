"""Rejection-sampling SFT: likelihood of the profile's own accepted samples.

The rival that costs nothing beyond the profile. A sample's token ids are trained as they were
recorded; only the prompt is rendered again, and must have the recorded length.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from pivotune.core.errors import DataError
from pivotune.core.types import Profile, Sample, Turn
from pivotune.models.chat import ChatFormat
from pivotune.models.trees import Segment, TokenTree, context_signal, cross_entropy_signal
from pivotune.train.draws import draw_batch
from pivotune.train.objective import Collected, Materials, Stateless, required
from pivotune.train.objectives.likelihood import tree_lengths


class RejectionSftConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which samples are accepted, and how many turns a step holds."""

    batch: int = 16
    """Turns a step."""
    accept_at: float = 0.5
    """Smallest reward of an accepted sample."""
    distinct: bool = False
    """Train equal token sequences of a turn once."""


def accepted_samples(profile: Profile, accept_at: float, distinct: bool) -> list[Sample]:
    """Finished samples with a valid reward of at least `accept_at`."""
    kept = [
        sample
        for sample in profile.samples
        if sample.finish == "stop"
        and sample.verdict.reward is not None
        and sample.verdict.reward >= accept_at
    ]
    return list({sample.token_ids: sample for sample in kept}.values()) if distinct else kept


def samples_tree(
    chat: ChatFormat, turn: Turn, profile: Profile, samples: Sequence[Sample]
) -> TokenTree:
    """The turn's prompt as trunk and a branch for each sample."""
    prompt = np.array(chat.render(turn.state, turn.tools), np.int64)
    if len(prompt) != profile.prompt_tokens:
        raise DataError(
            "the prompt does not have the length that it was profiled with",
            where=turn.id,
            got=f"{len(prompt)} tokens",
            expected=f"{profile.prompt_tokens}",
            fix="use the tokenizer and chat template of the profile, or profile again",
        )
    branches = [
        Segment(
            np.array(sample.token_ids, np.int64),
            cross_entropy_signal(np.ones(len(sample.token_ids), np.float32)),
            parent=0,
            attach=len(prompt),
        )
        for sample in samples
    ]
    return TokenTree(turn.id, (Segment(prompt, context_signal(len(prompt))), *branches))


class RejectionSft(Stateless):
    """Draws turns that have accepted samples in shuffled epochs."""

    Config = RejectionSftConfig

    def __init__(self, materials: Materials, config: RejectionSftConfig) -> None:
        self._chat = required(materials.chat, "a chat format", "rejection_sft")
        turns = {turn.id: turn for turn in materials.turns}
        profiles = required(materials.profiles, "profiles", "rejection_sft")
        pool = [
            (turns[profile.turn_id], profile, samples)
            for profile in profiles
            if profile.turn_id in turns
            and (samples := accepted_samples(profile, config.accept_at, config.distinct))
        ]
        self._pool = required(pool, "turns with an accepted sample", "rejection_sft")
        self._seed = materials.seed
        self._config = config
        self._made: dict[str, TokenTree] = {}

    def collect(self, step: int) -> Collected:
        drawn = draw_batch(
            self._pool, self._config.batch, seed=self._seed, name="rejection_sft", step=step
        )
        trees = [self._tree(*each) for each in drawn]
        samples = sum(len(samples) for _, _, samples in drawn) / len(drawn)
        return Collected(trees, {**tree_lengths(trees), "samples_per_turn": samples})

    def _tree(self, turn: Turn, profile: Profile, samples: Sequence[Sample]) -> TokenTree:
        if turn.id not in self._made:
            self._made[turn.id] = samples_tree(self._chat, turn, profile, samples)
        return self._made[turn.id]
