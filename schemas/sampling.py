"""How completions are drawn: what a user sets (`gconfig`, `eval_gconfig`) and what an engine gets."""

from collections.abc import Collection
from typing import Annotated, Any, Final

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from schemas.base import ADDED_LATER, Model, Section, omit_added_defaults

TAKE_ALL: Final = -1
"""top_k that keeps every candidate, as vLLM and SGLang spell it."""

_TokenId = Annotated[int, Field(ge=0)]


class GenerationConfig(Section):
    """How completions are drawn, as `gconfig` sets it."""

    n_samples: int = Field(default=1, ge=1, le=10_000)
    """Completions per problem. 1 is the cheapest; standard errors within a problem and pass@k need more."""
    temperature: float = Field(default=1.0, ge=0, le=100)
    """Softmax temperature; 0 is greedy. 1 evaluates the distribution that RL training samples from."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus mass in (0, 1]. 1 keeps every token, as training does."""
    top_k: int = Field(default=TAKE_ALL, ge=TAKE_ALL, json_schema_extra={"allowed": "-1, or ≥ 1"})
    """Candidates per token; -1 keeps every token, as training does."""
    max_new_tokens: int = Field(default=1024, ge=1, le=10_000_000)
    """Longest completion in tokens. The default holds a worked solution of a school problem; reasoning models need
    more, and a truncated completion scores nothing."""
    min_new_tokens: int = Field(default=0, ge=0)
    """Shortest completion in tokens; at most max_new_tokens. 0 lets the model stop when it wants to."""
    greedy: bool = False
    """Take the likeliest token each time: the temperature is 0, whatever `temperature` says."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion, not part of its text. Empty: only the end-of-sequence tokens end it."""
    min_p: Annotated[float, ADDED_LATER] = Field(default=0.0, ge=0, le=1)
    """Least probability of a candidate, as a share of the likeliest one's, after temperature. 0 keeps every token."""
    repetition_penalty: Annotated[float, ADDED_LATER] = Field(default=1.0, gt=0)
    """Factor by which logits of tokens in the prompt or the completion so far lose: positive ones are divided by it,
    negative ones multiplied (Keskar et al. 2019, CTRL). 1 changes nothing."""
    presence_penalty: Annotated[float, ADDED_LATER] = Field(default=0.0, ge=-2, le=2)
    """Amount taken from the logit of each token that the completion holds already, in OpenAI's definition."""
    frequency_penalty: Annotated[float, ADDED_LATER] = Field(default=0.0, ge=-2, le=2)
    """Amount taken from a token's logit for each time that the completion holds it, in OpenAI's definition."""
    stop_token_ids: Annotated[tuple[_TokenId, ...], ADDED_LATER] = ()
    """Tokens that end a completion like the end-of-sequence tokens, which stay; not part of its text."""

    @field_validator("stop", mode="before")
    @classmethod
    def _accept_one_stop_string(cls, value: object) -> object:
        return _stop_strings(value)

    @field_validator(
        "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "stop_token_ids", mode="before"
    )
    @classmethod
    def _accept_null_for_unset(cls, value: object, info: ValidationInfo) -> object:
        """Return the default for null, by which training configs say that they do not use a parameter."""
        return cls.model_fields[info.field_name or ""].get_default() if value is None else value

    @field_validator("stop")
    @classmethod
    def _refuse_empty_stop_strings(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return _without_empty(value)

    @field_validator("top_k")
    @classmethod
    def _refuse_zero_candidates(cls, value: int) -> int:
        return _some_candidates(value)

    @model_validator(mode="after")
    def _check_lengths(self) -> "GenerationConfig":
        if self.min_new_tokens > self.max_new_tokens:
            raise ValueError(
                f"min_new_tokens is {self.min_new_tokens}, allowed: at most max_new_tokens, {self.max_new_tokens}; "
                "lower the one or raise the other"
            )
        return self

    @property
    def is_greedy(self) -> bool:
        """Whether each completion of a problem is the same text."""
        return self.greedy or self.temperature == 0

    def to_spec(self, eos_token_ids: Collection[int]) -> "SamplingSpec":
        """Return what an engine gets; `eos_token_ids`: the tokens that end a completion of the model's own accord."""
        shared = {name: getattr(self, name) for name in SamplingSpec.model_fields if name != "eos_token_ids"}
        ends = tuple(dict.fromkeys((*eos_token_ids, *self.stop_token_ids)))
        return SamplingSpec(**shared, eos_token_ids=ends)


class GenerationOverrides(Section):
    """What evaluation draws in another way than training, as `eval_gconfig` sets it; None keeps `gconfig`'s value."""

    n_samples: int | None = Field(default=None, ge=1, le=10_000)
    """Completions per problem. None: as in `gconfig`, but 1 where this section makes the evaluation greedy."""
    temperature: float | None = Field(default=None, ge=0, le=100)
    """Softmax temperature; 0 is greedy."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus mass in (0, 1]."""
    top_k: int | None = Field(default=None, ge=TAKE_ALL, json_schema_extra={"allowed": "-1, or ≥ 1"})
    """Candidates per token; -1 keeps every token."""
    max_new_tokens: int | None = Field(default=None, ge=1, le=10_000_000)
    """Longest completion in tokens."""
    min_new_tokens: int | None = Field(default=None, ge=0)
    """Shortest completion in tokens."""
    greedy: bool | None = None
    """Take the likeliest token each time."""
    stop: tuple[str, ...] | None = None
    """Strings that end a completion; an empty list takes those of `gconfig` away."""
    min_p: Annotated[float | None, ADDED_LATER] = Field(default=None, ge=0, le=1)
    """Least probability of a candidate, as a share of the likeliest one's."""
    repetition_penalty: Annotated[float | None, ADDED_LATER] = Field(default=None, gt=0)
    """Factor against tokens in the prompt or the completion so far; 1 changes nothing."""
    presence_penalty: Annotated[float | None, ADDED_LATER] = Field(default=None, ge=-2, le=2)
    """Amount taken from the logit of each token that the completion holds already."""
    frequency_penalty: Annotated[float | None, ADDED_LATER] = Field(default=None, ge=-2, le=2)
    """Amount taken from a token's logit for each time that the completion holds it."""
    stop_token_ids: Annotated[tuple[_TokenId, ...] | None, ADDED_LATER] = None
    """Tokens that end a completion; an empty list takes those of `gconfig` away."""

    @field_validator("stop", mode="before")
    @classmethod
    def _accept_one_stop_string(cls, value: object) -> object:
        return None if value is None else _stop_strings(value)

    @field_validator("stop")
    @classmethod
    def _refuse_empty_stop_strings(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if value is None else _without_empty(value)

    @field_validator("top_k")
    @classmethod
    def _refuse_zero_candidates(cls, value: int | None) -> int | None:
        return None if value is None else _some_candidates(value)

    def over(self, base: GenerationConfig) -> GenerationConfig:
        """Return `base` with each value that is set here.

        Where this section turns greedy on and does not set `n_samples`, one completion is made: more would be copies.

        Raises:
            pydantic.ValidationError: the two together are not acceptable.
        """
        changes: dict[str, Any] = self.model_dump(exclude_none=True)
        turns_greedy = self.greedy is True or (self.temperature == 0 and self.greedy is None)
        if turns_greedy and self.n_samples is None:
            changes["n_samples"] = 1
        if self.temperature is not None and self.temperature > 0 and self.greedy is None:
            changes["greedy"] = False  # a temperature set for evaluation means sampling, although training is greedy
        return GenerationConfig.model_validate(base.model_dump() | changes)


def _stop_strings(value: object) -> object:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else value


def _without_empty(value: tuple[str, ...]) -> tuple[str, ...]:
    if "" in value:
        raise ValueError("an empty stop string would end every completion at once; remove it")
    return value


def _some_candidates(value: int) -> int:
    if value == 0:
        raise ValueError("0 candidates leave nothing to choose from")
    return value


class SamplingSpec(Model):
    """How a completion is drawn; the part of `gconfig` that an engine needs."""

    temperature: float
    """Softmax temperature; 0 is greedy."""
    top_p: float
    """Nucleus mass in (0, 1]."""
    top_k: int
    """Number of candidates; -1 takes all."""
    max_new_tokens: int
    """Longest completion in tokens."""
    min_new_tokens: int = 0
    """Shortest completion in tokens."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion; not part of its text."""
    eos_token_ids: tuple[int, ...]
    """Tokens that end a completion, `stop_token_ids` among them."""
    min_p: Annotated[float, ADDED_LATER] = 0.0
    """Least probability of a candidate, as a share of the likeliest one's."""
    repetition_penalty: Annotated[float, ADDED_LATER] = 1.0
    """Factor against tokens in the prompt or the completion so far."""
    presence_penalty: Annotated[float, ADDED_LATER] = 0.0
    """Amount taken from the logit of each token in the completion so far."""
    frequency_penalty: Annotated[float, ADDED_LATER] = 0.0
    """Amount taken from a token's logit for each time it is in the completion so far."""

    @property
    def has_penalties(self) -> bool:
        """Whether tokens that were seen before are less likely, or more, for that."""
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)

    @model_serializer(mode="wrap")
    def _omit_added_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return omit_added_defaults(self, handler(self))
