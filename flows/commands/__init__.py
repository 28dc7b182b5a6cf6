"""The commands of `milepost`, one module per group, and what they share."""
