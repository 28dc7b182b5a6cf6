"""The controller's side of replicas: start, watch, restart, share their work, say how far they are."""
