"""The process that owns one replica: `python -m tasks.inference.worker SPEC_JSON`."""
