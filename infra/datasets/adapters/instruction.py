"""The instruction that adapters of mathematical data add to a problem."""

from typing import Final

BOXED_SUFFIX: Final = "\nPlease reason step by step, and put your final answer within \\boxed{}."
"""The wording that Qwen2.5-Math, DeepSeek-R1 and most published scores on GSM8K, MATH-500 and AIME use."""
