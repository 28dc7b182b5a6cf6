"""Find answers in completions and compare them with golds."""
