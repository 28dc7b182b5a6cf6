"""The files that controller and worker exchange: specification, heartbeats, journal."""
