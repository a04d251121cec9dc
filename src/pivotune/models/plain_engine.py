"""Sampling through transformers' own caches: right for any causal LM, and not fast.

Used for models that the cached engine does not support (sliding windows, other attention), and
as the independent path in tests.
"""

import inspect
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from pivotune.models.rows import Ids, Row, draw_tokens


class PlainEngine:
    """Batches of rows with prompts of one length, so that nothing is padded.

    `reason` says why a model is computed this way.
    """

    def __init__(self, model: nn.Module, token_budget: int, reason: str | None = None) -> None:
        self._reason = reason
        self._model: Any = model
        self._token_budget = token_budget
        parameters = inspect.signature(self._model.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"

    @property
    def name(self) -> str:
        return f"transformers cache ({self._reason})" if self._reason else "transformers cache"

    @torch.inference_mode()
    def generate(self, rows: Sequence[Row], stop_ids: frozenset[int]) -> None:
        for batch in self._batches(rows):
            self._generate_batch(batch, stop_ids)

    @torch.inference_mode()
    def action_logits(self, pairs: Sequence[tuple[Ids, Ids]]) -> Iterator[tuple[int, Tensor]]:
        for index, (prompt, action) in enumerate(pairs):
            yield index, self._score(prompt, action)

    def end_session(self, session: str) -> None:
        """Nothing is cached between calls."""

    def forget(self) -> None:
        """Nothing is cached between calls."""

    def _batches(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        ordered = sorted(rows, key=lambda row: (len(row.prompt), row.prompt))
        for length, group in groupby(ordered, key=lambda row: len(row.prompt)):
            batch: list[Row] = []
            for row in group:
                longest = max([row.limit, *(other.limit for other in batch)])
                if batch and (len(batch) + 1) * (length + longest) > self._token_budget:
                    yield batch
                    batch = []
                batch.append(row)
            yield batch

    def _generate_batch(self, rows: list[Row], stop_ids: frozenset[int]) -> None:
        """Rows with equally long prompts: distinct prompts once, then one decode batch."""
        distinct = list(dict.fromkeys(row.prompt for row in rows))
        cache = DynamicCache(config=self._model.config)
        logits_BV = self._step(torch.tensor(distinct), cache)
        index = torch.tensor([distinct.index(row.prompt) for row in rows])
        cache.batch_select_indices(index.to(logits_BV.device))
        draw_tokens(logits_BV[index.to(logits_BV.device)], rows, stop_ids)
        while True:
            live = [i for i, row in enumerate(rows) if row.finish is None]
            if not live:
                return
            if len(live) < len(rows):
                cache.batch_select_indices(torch.tensor(live, device=logits_BV.device))
                rows = [rows[i] for i in live]
            logits_BV = self._step(torch.tensor([[row.tokens[-1]] for row in rows]), cache)
            draw_tokens(logits_BV, rows, stop_ids)

    def _step(self, ids_BT: Tensor, cache: DynamicCache) -> Tensor:
        device = next(self._model.parameters()).device
        output = self._model(
            input_ids=ids_BT.to(device),
            use_cache=True,
            logits_to_keep=1,
            **{self._cache_name: cache},
        )
        logits_BV: Tensor = output.logits[:, -1]
        return logits_BV

    def _score(self, prompt: Ids, action: Ids) -> Tensor:
        device = next(self._model.parameters()).device
        ids = torch.tensor([prompt + action], device=device)
        output = self._model(input_ids=ids, use_cache=False, logits_to_keep=len(action) + 1)
        logits_TV: Tensor = output.logits[0, :-1]
        return logits_TV.float()
