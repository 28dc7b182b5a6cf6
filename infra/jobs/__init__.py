"""Jobs as launchers and schedulers know them: what is launched, where, in which environment, how it ended."""
