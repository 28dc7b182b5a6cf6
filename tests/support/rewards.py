"""A reward function for whoever needs one that works."""


def score(prompt: str, completions: str, prompt_ids: list[int], completion_ids: list[int], **data: object) -> float:
    return 1.0
