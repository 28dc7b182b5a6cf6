"""What runs inside a trainer: announcing checkpoints and counting steps; the standard library only."""
