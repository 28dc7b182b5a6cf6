"""How trainers lay out what they save, one file per trainer; registry.py lists them."""
