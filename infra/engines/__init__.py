"""Adapters that turn token ids into completions: vllm and transformers."""
