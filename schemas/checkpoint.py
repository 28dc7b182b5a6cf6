"""What is known of a checkpoint folder without loading it."""

from pathlib import Path
from typing import Literal

from schemas.base import Model
from schemas.training_position import TrainingPosition

CheckpointStatus = Literal["complete", "incomplete", "needs_conversion", "not_a_checkpoint"]


class CheckpointReport(Model):
    """The result of reading a folder's metadata: file names, JSON files and safetensors headers."""

    path: Path
    """The folder that was read."""
    status: CheckpointStatus
    """`complete` is the only status that is evaluated."""
    layout: str
    """Which trainer's layout was recognised, such as `huggingface`; empty when none was."""
    global_step: int | None
    """The training step that the folder's name or state gives."""
    epoch: int | None = None
    """The training epoch, from 0, that they give."""
    problems: tuple[str, ...]
    """Each reason against `complete`, with what to do."""
    architecture: str | None = None
    """First entry of `architectures` in config.json."""
    dtype: str | None = None
    """dtype of the weights as config.json or the shard headers name it, such as `bfloat16`."""
    weight_files: tuple[Path, ...] = ()
    """The shards in index order."""
    num_parameters: int | None = None
    """Sum over tensors of the product of their shapes."""
    context_length: int | None = None
    """Longest prompt plus completion that the model takes, in tokens (max_position_embeddings)."""
    eos_token_ids: tuple[int, ...] = ()
    """Union of generation_config.json, config.json and the tokenizer's EOS: any of them ends a completion."""
    has_chat_template: bool = False
    """Whether chat_template.jinja or tokenizer_config.json holds a template."""

    @property
    def position(self) -> TrainingPosition:
        """How far training had come."""
        return TrainingPosition(global_step=self.global_step, epoch=self.epoch)


class CheckpointIdentity(Model):
    """Digests that say which model made a sample; hex, 128 bit."""

    weight_digest: str
    """Over the bytes of every shard, independent of the folder's name."""
    tokenizer_digest: str
    """Over the tokenizer's files."""
    chat_template_digest: str
    """Over the chat template; of the empty text where there is none."""
