"""Samples as a worker journals them."""

from schemas.inference import SampleRecord
from schemas.states import FinishReason


def record(number: int, completion: str = "an answer\nwith lines \u2028 and \x85 and \U0001f642") -> SampleRecord:
    return SampleRecord(
        item_id=f"item-{number}",
        repeat=number % 3,
        prompt_hash="0" * 32,
        completion=completion,
        finish_reason=FinishReason.STOP if number % 2 else None,
        num_prompt_tokens=10,
        num_completion_tokens=number,
        mean_logprob=-0.1 * number if number % 2 else None,
        seed=2**63 - 1 - number,
        latency_s=0.1,
        batch_size=4,
        replica=0,
        attempt=1,
        finished_at=1.7e9 + number / 7,
        error=None if number % 2 else "refused",
    )
