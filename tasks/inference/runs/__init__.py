"""A run's record: opened or taken up again, its attempts, and the samples that it ends with."""
