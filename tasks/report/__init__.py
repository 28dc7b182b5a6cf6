"""What a finished run shows and stores."""
