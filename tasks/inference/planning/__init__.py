"""What a run promises: its plan, who makes what of it, and where; pure but for what it reads."""
