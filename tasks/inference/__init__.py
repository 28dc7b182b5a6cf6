"""Plan, run and merge generation; the worker that owns one replica."""
