"""Text for people: names made safe, tables."""
