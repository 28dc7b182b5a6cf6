"""The shapes that cross a room or a disk: configuration, tables, plans, states and errors. Imports nothing of ours."""
