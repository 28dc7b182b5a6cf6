"""Whether a checkpoint is worse than earlier ones."""
