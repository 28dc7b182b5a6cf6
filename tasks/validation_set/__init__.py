"""Load the validation set and render its prompts."""
