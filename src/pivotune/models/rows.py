"""Rows being sampled, and how their tokens are drawn.

Every row draws from a stream of its own: number i of a row decides its token i by the inverse of
the cumulative distribution. So a row's numbers do not depend on what else is in the batch.

Letters in names: B rows, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pivotune.core.errors import NumericsError
from pivotune.core.seeds import derive_seed

Ids = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Row:
    """One completion in the making. `limit` counts tokens; temperature 0 is greedy.

    `session` names the cache that may hold the beginning of the prompt and keeps its end.
    `ended(tokens)` says whether a text that ends the action has just been completed. `name`
    stands in errors.
    """

    prompt: Ids
    limit: int
    temperature: float
    uniforms: npt.NDArray[np.float64]
    session: str = ""
    ended: Callable[[Sequence[int]], bool] | None = None
    name: str = ""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: Literal["stop", "length"] | None = None

    def take(self, token: int, logprob: float, stop_ids: frozenset[int]) -> None:
        """Append a token and see whether the row is finished with it."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if token in stop_ids or (self.ended is not None and self.ended(self.tokens)):
            self.finish = "stop"
        elif len(self.tokens) >= self.limit:
            self.finish = "length"


class Engine(Protocol):
    """How rows are computed. `name` tells the user which way was taken."""

    @property
    def name(self) -> str: ...

    def generate(self, rows: Sequence[Row], stop_ids: frozenset[int]) -> None:
        """Fill every row until it is finished."""
        ...

    def action_logits(self, pairs: Sequence[tuple[Ids, Ids]]) -> Iterator[tuple[int, Tensor]]:
        """For each (prompt, action) its index and the float32 logits (action tokens, V) that
        predict the action, in any order."""
        ...

    def end_session(self, session: str) -> None: ...

    def forget(self) -> None:
        """Drop everything that was computed with earlier weights."""
        ...


def row_uniforms(seed: int, row: int, count: int) -> npt.NDArray[np.float64]:
    """The first `count` numbers in [0, 1) of the stream of row `row` of a request."""
    return np.random.Generator(np.random.Philox(key=derive_seed(seed, row))).random(count)


def draw_tokens(logits_BV: Tensor, rows: Sequence[Row], stop_ids: frozenset[int]) -> None:
    """Give every row its next token, with its log-probability at the row's temperature."""
    temperatures = [row.temperature or 1.0 for row in rows]
    logits_BV = logits_BV.float()
    if any(temperature != 1.0 for temperature in temperatures):
        logits_BV = logits_BV / torch.tensor(temperatures, device=logits_BV.device)[:, None]
    logprobs_BV = logits_BV.log_softmax(-1)
    chosen_B = _choose(logprobs_BV, rows)
    picked_B = logprobs_BV.gather(1, chosen_B[:, None]).squeeze(1)
    if not picked_B.isfinite().all():
        raise NumericsError(
            "the model's log-probabilities are not finite",
            where=_first_broken(picked_B, rows),
            fix="look at the weights: a step of training may have diverged",
        )
    for row, token, logprob in zip(rows, chosen_B.tolist(), picked_B.tolist(), strict=True):
        row.take(token, logprob, stop_ids)


def _first_broken(picked_B: Tensor, rows: Sequence[Row]) -> str:
    row = rows[int((~picked_B.isfinite()).nonzero()[0])]
    return f"{row.name or 'sampling'}, token {len(row.tokens)}"


def _choose(logprobs_BV: Tensor, rows: Sequence[Row]) -> Tensor:
    """(B,) by inverse of the cumulative distribution, or the best where a row is greedy."""
    greedy = [row.temperature == 0 for row in rows]
    if all(greedy):
        return logprobs_BV.argmax(-1)
    cumulative_BV = logprobs_BV.exp().cumsum(-1, dtype=torch.float64)
    uniforms = [float(row.uniforms[len(row.tokens)]) for row in rows]
    target_B = torch.tensor(uniforms, dtype=torch.float64, device=logprobs_BV.device)
    target_B = target_B * cumulative_BV[:, -1]
    drawn_B = torch.searchsorted(cumulative_BV, target_B[:, None], right=True).squeeze(1)
    drawn_B = drawn_B.clamp_(max=logprobs_BV.shape[1] - 1)
    if any(greedy):
        is_greedy = torch.tensor(greedy, device=logprobs_BV.device)
        return torch.where(is_greedy, logprobs_BV.argmax(-1), drawn_B)
    return drawn_B
