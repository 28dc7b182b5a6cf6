"""Watch a folder of checkpoints: what is there, what is wanted of it, and one evaluation of each."""
