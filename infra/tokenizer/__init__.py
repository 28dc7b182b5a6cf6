"""Chat template and tokenizer of a checkpoint folder: messages in, the engine's token ids out, without transformers."""

from infra.tokenizer.chat import ChatTokenizer as ChatTokenizer
