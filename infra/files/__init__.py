"""Single files: written whole or not at all, read only where they are regular."""
