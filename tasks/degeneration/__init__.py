"""Whether a model still answers as a working model does."""
