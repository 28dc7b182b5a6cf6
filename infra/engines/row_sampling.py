"""Sampling for transformers' `generate` with one seed per row, exact log-probabilities and entropy.

A logits processor that draws by itself: the warpers of the library cut the distribution, one torch.Generator per row
draws from it (the Gumbel-max trick as exponential races: argmax p/q with q ~ Exp(1) is a draw from p), and the scores
that go back leave one candidate. So a sample depends on its own seed and logits, not on its neighbours.

Imports torch and transformers at module level: only the adapter imports it, in the engine environment.
"""

# torch has no types in the controller's environment, where this file is checked:
# pyright: reportMissingImports=false, reportUnknownParameterType=false, reportUntypedBaseClass=false
# pyright: reportUnknownLambdaType=false, reportArgumentType=false

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from tokenizers.decoders import DecodeStream
from transformers.generation.logits_process import (
    LogitsProcessor,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from infra.engines.base import Generation, GenerationRequest, finite
from schemas.sampling import SamplingSpec
from schemas.states import FinishReason


class TextStream:
    """The text of a growing completion, whole characters only, special tokens left out."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, prompt_token_ids: list[int]) -> None:
        """Start after the prompt: a leading space of the first token stays."""
        self.text = ""
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._stream = DecodeStream(ids=prompt_token_ids, skip_special_tokens=True) if tokenizer.is_fast else None

    def push(self, token_id: int) -> None:
        """Append one token; `text` grows once its last character is complete."""
        if self._stream is not None:
            self.text += self._stream.step(self._tokenizer.backend_tokenizer, token_id) or ""
            return
        self._ids.append(token_id)
        text = str(self._tokenizer.decode(self._ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
        self.text = text.rstrip("\ufffd")


@dataclass(slots=True, kw_only=True)
class Row:
    """One completion in the making."""

    request: GenerationRequest
    added_at: float
    generator: torch.Generator
    stream: TextStream
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    """Of each token; empty unless the request asks for them."""
    num_broken: int = 0
    """Tokens whose log-probability is not finite."""
    broken_at: int | None = None
    """The first of them."""
    sum_logprob: float = 0.0
    sum_entropy: float = 0.0
    is_done: bool = False
    searched: int = 0
    """Length of the text that holds no stop string."""

    def find_stop(self, stop: tuple[str, ...], text: str) -> int | None:
        """Return where the stop string begins that ends first in the new text, else None."""
        found: list[tuple[int, int]] = []
        for string in stop:
            start = text.find(string, max(0, self.searched - len(string) + 1))
            if start >= 0:
                found.append((start + len(string), start))
        self.searched = len(text)
        return min(found)[1] if found else None


class RowSampler(LogitsProcessor):
    """Draws the next token of every row and hands over the rows that it ends."""

    def __init__(
        self,
        *,
        rows: list[Row],
        sampling: SamplingSpec,
        max_model_len: int,
        deliver: Callable[[Generation], None],
    ) -> None:
        """`deliver` gets each row once, at the token that ends it, in the thread of `generate`."""
        self.rows = rows
        self._sampling = sampling
        self._max_model_len = max_model_len
        self._deliver = deliver
        self._warpers: list[LogitsProcessor] = _warpers(sampling)
        self._seen: _SeenTokens | None = None

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Return scores of shape (rows, vocabulary) that are -inf but for one drawn token per row."""
        logprobs = torch.log_softmax(scores.float(), dim=-1)
        entropies = torch.special.entr(logprobs.exp()).sum(dim=-1)
        chosen = self._draw(input_ids, scores)
        chosen_logprobs = logprobs.gather(1, chosen[:, None])[:, 0]
        tokens: list[int] = chosen.tolist()
        numbers: list[list[float]] = torch.stack([chosen_logprobs, entropies]).tolist()
        for row, token, logprob, entropy in zip(self.rows, tokens, *numbers, strict=True):
            if not row.is_done:
                row.sum_logprob += logprob
                if not math.isfinite(logprob):
                    row.num_broken += 1
                    row.broken_at = len(row.token_ids) if row.broken_at is None else row.broken_at
                if row.request.with_logprobs:
                    row.logprobs.append(logprob)
                row.sum_entropy += entropy
                self._append(row, token)
        return torch.full_like(scores, -torch.inf).scatter_(1, chosen[:, None], 0.0)

    def _draw(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.Tensor:
        logits = scores.float()
        num_made = max((len(row.token_ids) for row in self.rows), default=0)
        if num_made < self._sampling.min_new_tokens and self._sampling.eos_token_ids:
            logits = logits.clone()
            logits[:, list(self._sampling.eos_token_ids)] = -torch.inf
        if self._sampling.has_penalties:
            self._seen = self._seen or _SeenTokens([row.request.prompt_token_ids for row in self.rows], logits)
            self._seen.count([row.token_ids[-1:] for row in self.rows])
            logits = self._seen.penalise(logits, self._sampling)
        if self._sampling.temperature == 0:
            return logits.argmax(dim=-1)
        for warper in self._warpers:
            logits = warper(input_ids, logits)
        noise = torch.ones_like(logits)
        for index, row in enumerate(self.rows):
            if not row.is_done:
                noise[index].exponential_(generator=row.generator)
        return (logits.softmax(dim=-1) / noise).argmax(dim=-1)

    def _append(self, row: Row, token: int) -> None:
        """Add a token and end the row where EOS, a stop string or a length limit says so."""
        row.token_ids.append(token)
        if token in self._sampling.eos_token_ids:
            self._finish(row, FinishReason.STOP, row.stream.text)
            return
        row.stream.push(token)
        text = row.stream.text
        if len(row.token_ids) <= self._sampling.min_new_tokens:
            row.searched = len(text)
        stop_at = row.find_stop(self._sampling.stop, text) if self._sampling.stop else None
        num_tokens = len(row.token_ids)
        if stop_at is not None:
            self._finish(row, FinishReason.STOP, text[:stop_at])
        elif num_tokens >= self._sampling.max_new_tokens or (
            num_tokens + len(row.request.prompt_token_ids) >= self._max_model_len
        ):
            self._finish(row, FinishReason.LENGTH, text)

    def _finish(self, row: Row, reason: FinishReason, text: str) -> None:
        row.is_done = True
        self._deliver(
            Generation(
                request_id=row.request.request_id,
                text=text,
                token_ids=tuple(row.token_ids),
                finish_reason=reason,
                mean_logprob=finite(row.sum_logprob / len(row.token_ids)),
                entropy=finite(row.sum_entropy / len(row.token_ids)),
                latency_s=time.monotonic() - row.added_at,
                logprobs=tuple(map(finite, row.logprobs)) if row.request.with_logprobs else None,
                num_broken=row.num_broken,
                broken_at=row.broken_at,
            )
        )


class _SeenTokens:
    """The tokens of prompts and completions so far, as tensors of shape (rows, vocabulary)."""

    def __init__(self, prompts: list[list[int]], logits: torch.Tensor) -> None:
        """`logits` give shape and device."""
        self._in_prompt = torch.zeros_like(logits, dtype=torch.bool)
        self._counts = torch.zeros_like(logits)
        for index, prompt in enumerate(prompts):
            self._in_prompt[index, prompt] = True

    def count(self, new: list[list[int]]) -> None:
        """Count the newest token of each row."""
        for index, tokens in enumerate(new):
            for token in tokens:
                self._counts[index, token] += 1

    def penalise(self, logits: torch.Tensor, sampling: SamplingSpec) -> torch.Tensor:
        """Return logits after the penalties, in vLLM's order: repetition, then frequency and presence."""
        is_made = self._counts > 0
        factor = sampling.repetition_penalty
        weaker = torch.where(logits > 0, logits / factor, logits * factor)
        logits = torch.where(self._in_prompt | is_made, weaker, logits)
        return logits - sampling.frequency_penalty * self._counts - sampling.presence_penalty * is_made


def seeded_generator(seed: int, device: torch.device) -> torch.Generator:
    """Return a generator of `device` that starts from `seed`."""
    return torch.Generator(device).manual_seed(seed)


def _warpers(sampling: SamplingSpec) -> list[LogitsProcessor]:
    """Return the library's own temperature, min-p, top-k and top-p, in vLLM's order."""
    warpers: list[LogitsProcessor] = []
    if sampling.temperature not in (0.0, 1.0):
        warpers.append(TemperatureLogitsWarper(sampling.temperature))
    if sampling.min_p > 0:
        warpers.append(MinPLogitsWarper(sampling.min_p))
    if sampling.top_k > 0:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1.0:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    return warpers
