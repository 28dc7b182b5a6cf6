"""The conversation that is sent: the data's own turns, a system prompt before them, the instruction after the last."""

from infra.datasets.rows import Turn
from schemas.dataset import ChatMessage, EvalItem
from schemas.valid_dataset import ValidDatasetConfig


def choose_suffix(config: ValidDatasetConfig, default_suffix: str) -> str:
    """Return the instruction that is added to a problem: the configured one, else the format's own."""
    return default_suffix if config.prompt_suffix is None else config.prompt_suffix


def problem_text(item: EvalItem) -> str:
    """Return what an item asks: its turns without the system prompt and the instruction."""
    turns = [message.content for message in item.messages if message.role != "system"]
    return "\n".join(turns).removesuffix(item.prompt_suffix)


def compose(turns: tuple[Turn, ...], *, config: ValidDatasetConfig, default_suffix: str) -> tuple[ChatMessage, ...]:
    """Return the turns with the configured system prompt (in place of the data's own, if it has one) and suffix."""
    last = turns[-1]
    complete = (*turns[:-1], Turn(last.role, last.content + choose_suffix(config, default_suffix)))
    if config.system_prompt is not None:
        rest = complete[1:] if complete[0].role == "system" else complete
        complete = (Turn("system", config.system_prompt), *rest)
    return tuple(ChatMessage(role=role, content=content) for role, content in complete)
