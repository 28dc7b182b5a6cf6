"""Trains a tiny Llama on sums of two numbers, on a CPU, and saves a checkpoint every hundred steps.

    .venv-engine/bin/python examples/train_tiny.py OUT [--steps 1000]

A training run to try Milepost with: `milepost watch examples/train_tiny.yaml OUT` evaluates each checkpoint as it
lands, and accuracy rises from 0 to between 0.65 and 0.8, as processors round differently. The problems are those of
reasoning_gym's chain_sum. There are no more than 16,400 of them, so training meets most of those that are evaluated: it
shows evaluations, not generalisation.
"""

# torch is absent from the environment where this file is checked:
# pyright: reportMissingImports=false, reportUnknownParameterType=false

import argparse
import random
import sys
import time
from pathlib import Path
from typing import Final

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM
from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

sys.path.insert(0, str(Path(__file__).parents[1]))

from flows.evaluator import CheckpointAnnouncer, Evaluator, EvaluatorConfig, FinetuneSpec

BATCH_SIZE: Final = 256
LEARNING_RATE: Final = 0.003
SAVE_EVERY: Final = 100
INSTRUCTION: Final = "State the final answer to the following arithmetic problem:"
TEMPLATE: Final = "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}<assistant>"
SPECIAL_TOKENS: Final = ["<pad>", "<unk>", "<user>", "<assistant>", "<eos>"]
IGNORED: Final = -100
"""Label of a token that the loss passes over."""


def draw_problem(rng: random.Random) -> tuple[str, str]:
    """Return a question and its answer: a sum or difference of two numbers of one or two digits."""
    low, high = rng.choice([(0, 9), (10, 99)])
    first, second, sign = rng.randint(low, high), rng.randint(low, high), rng.choice("+-")
    return f"{INSTRUCTION} {first} {sign} {second} =", str(first + second if sign == "+" else first - second)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with a token for each digit and sign, and one for the instruction: it is always the same."""
    words = [*SPECIAL_TOKENS, *"0123456789+-=", INSTRUCTION]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(INSTRUCTION, "isolated"),
            pre_tokenizers.Split(Regex("[0-9+=-]"), "isolated"),
            pre_tokenizers.Split(Regex("^ +"), "removed"),
        ]
    )
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token="<eos>",
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def make_model(vocab_size: int) -> LlamaForCausalLM:
    """Return a Llama of 130,000 random weights."""
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=SPECIAL_TOKENS.index("<eos>"),
        pad_token_id=SPECIAL_TOKENS.index("<pad>"),
    )
    return LlamaForCausalLM(config)


def draw_batch(tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> dict[str, torch.Tensor]:
    """Return token ids, mask and labels, each (BATCH_SIZE, longest); only the answer is learnt."""
    problems = [draw_problem(rng) for _ in range(BATCH_SIZE)]
    prompts = tokenizer([f"<user>{question}<assistant>" for question, _ in problems])["input_ids"]
    answers = tokenizer([f"{answer}<eos>" for _, answer in problems])["input_ids"]
    width = max(len(prompt) + len(answer) for prompt, answer in zip(prompts, answers, strict=True))
    batch = {name: torch.zeros(BATCH_SIZE, width, dtype=torch.long) for name in ("input_ids", "attention_mask")}
    batch["labels"] = torch.full((BATCH_SIZE, width), IGNORED)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        end = len(prompt) + len(answer)
        batch["input_ids"][row, :end] = torch.tensor(prompt + answer)
        batch["attention_mask"][row, :end] = 1
        batch["labels"][row, len(prompt) : end] = torch.tensor(answer)
    return batch


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Save a checkpoint that appears whole: written beside its name, then renamed."""
    unfinished = folder.with_name(f"{folder.name}.tmp")
    model.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    unfinished.rename(folder)


def train(out: Path, num_steps: int, seed: int) -> None:
    """Train, and save as `checkpoint-N` below `out`."""
    disable_progress_bar()  # of each save
    torch.set_num_threads(1)  # enough for a model this small, and evaluations run beside it
    torch.manual_seed(seed)
    rng = random.Random(seed)
    tokenizer = make_tokenizer()
    model = make_model(len(tokenizer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=num_steps, pct_start=0.1)
    evaluator = Evaluator(
        EvaluatorConfig(freq_steps=SAVE_EVERY),
        FinetuneSpec(1, num_steps * BATCH_SIZE, BATCH_SIZE),
        announcer=CheckpointAnnouncer(out),
    )
    started = time.monotonic()
    for step in range(num_steps):
        loss = model(**draw_batch(tokenizer, rng)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if (step + 1) % SAVE_EVERY == 0:
            save(model, tokenizer, out / f"checkpoint-{step + 1}")
            print(f"step {step + 1}: loss {loss.item():.3f}, {time.monotonic() - started:.0f} s", flush=True)
        evaluator.evaluate(None, epoch=0, step=step, global_step=step + 1)


def main() -> int:
    """Train a model into a new folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder for the checkpoints; it must not hold any")
    parser.add_argument("--steps", type=int, default=1_000, help="training steps (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.steps < 2:
        parser.error(f"--steps must be at least 2, got {arguments.steps}")
    if list(arguments.out.glob("checkpoint-*")):
        parser.error(f"{arguments.out} holds checkpoints already; name another folder, or remove it")
    arguments.out.mkdir(parents=True, exist_ok=True)
    train(arguments.out, arguments.steps, arguments.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
