"""Few-shot prompts: solved examples before the question.

Which examples an item gets is a function of the item, the examples and the seed alone: it is the same for every order,
limit and number of replicas.
"""

import hashlib
from collections.abc import Sequence
from itertools import count
from typing import Final

from infra.datasets.loading import load_candidates
from infra.tokenizer import ChatTokenizer
from schemas.config import EvaluationConfig
from schemas.dataset import ChatMessage, EvalItem
from schemas.errors import ConfigError, DatasetError

_BOX: Final = "\\boxed"


class Examples:
    """Solved problems to put before each question."""

    def __init__(self, items: Sequence[EvalItem], *, num_shots: int, seed: int) -> None:
        """Take the problems; of those that ask the same, the first one.

        Args:
            items: the problems, with their golds.
            num_shots: examples before each question.
            seed: decides which.
        """
        self._by_question = {_question(item): item for item in reversed(items)}
        self._items = sorted(self._by_question.values(), key=_question)
        self._num_shots = num_shots
        self._seed = seed

    def __len__(self) -> int:
        """Return how many different problems there are."""
        return len(self._items)

    def choose(self, item: EvalItem) -> list[EvalItem]:
        """Return the examples of an item, none of which asks what it asks.

        Raises:
            ConfigError: there are fewer.
        """
        question = _question(item)
        num_others = len(self._items) - (question in self._by_question)
        if num_others < self._num_shots:
            raise ConfigError(
                f"prompt.few_shot.n is {self._num_shots}, and there are {num_others} examples other than item "
                f"{item.item_id} itself; lower it, or name a larger source by prompt.few_shot.path and .split"
            )
        chosen: dict[int, EvalItem] = {}
        numbers = count()
        while len(chosen) < self._num_shots:
            text = f"{self._seed}\n{next(numbers)}\n{question}"
            index = int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest())
            index %= len(self._items)
            if _question(self._items[index]) != question:
                chosen.setdefault(index, self._items[index])
        return list(chosen.values())

    def render(self, items: Sequence[EvalItem], tokenizer: ChatTokenizer, *, is_completion: bool) -> list[str]:
        """Return the prompt of each item: its examples, then its question.

        In a conversation an example is a turn of the user and one of the assistant, behind the system turn. In a
        completion it is its own prompt, a space and its answer, and a blank line follows.

        Raises:
            CheckpointError: as `ChatTokenizer.render_all`.
            ConfigError: there are too few examples.
        """
        chosen = [self.choose(item) for item in items]
        if not is_completion:
            return tokenizer.render_all([_conversation(item, shots) for item, shots in zip(items, chosen, strict=True)])
        questions = tokenizer.render_all([item.messages for item in items])
        shown = list({id(shot): shot for shots in chosen for shot in shots}.values())
        texts = tokenizer.render_all([shot.messages for shot in shown])
        solved = {id(shot): f"{text} {answer_of(shot)}\n\n" for shot, text in zip(shown, texts, strict=True)}
        return [
            "".join(solved[id(shot)] for shot in shots) + question
            for shots, question in zip(chosen, questions, strict=True)
        ]


def load_examples(config: EvaluationConfig) -> Examples | None:
    """Return the examples that `prompt.few_shot` names; None where it is not set.

    Raises:
        DatasetError: the source cannot be read.
        ConfigError: it has fewer examples than each question is to get.
    """
    wanted = config.prompt.few_shot
    if wanted is None:
        return None
    dataset = config.valid_dataset
    source = dataset.model_copy(update={"path": wanted.path or dataset.path, "split": wanted.split, "limit": None})
    try:
        items = load_candidates(source, seed=config.seed)
    except DatasetError as exc:
        raise DatasetError(f"the examples of prompt.few_shot: {exc}") from exc
    examples = Examples(items, num_shots=wanted.n, seed=wanted.seed)
    if len(examples) < wanted.n:
        raise ConfigError(
            f"prompt.few_shot.n is {wanted.n}, and {source.path} has {len(examples)} different examples; lower it, or "
            "name a larger source by prompt.few_shot.path and .split"
        )
    return examples


def answer_of(example: EvalItem) -> str:
    """Return what an example answers: its worked solution, else its gold; boxed where its prompt asks for a box."""
    answer = example.solution or example.gold
    if _BOX in example.prompt_suffix and _BOX not in answer:
        return f"{answer}\n{_BOX}{{{example.gold}}}" if example.solution else f"{_BOX}{{{example.gold}}}"
    return answer


def _question(item: EvalItem) -> str:
    return item.messages[-1].content


def _conversation(item: EvalItem, shots: Sequence[EvalItem]) -> list[ChatMessage]:
    system = [turn for turn in item.messages if turn.role == "system"]
    turns = [turn for turn in item.messages if turn.role != "system"]
    for_shots = [
        turn
        for shot in shots
        for turn in (
            *(own for own in shot.messages if own.role != "system"),
            ChatMessage(role="assistant", content=answer_of(shot)),
        )
    ]
    return [*system, *for_shots, *turns]
