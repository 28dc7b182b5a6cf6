"""`python -m tasks.inference.worker SPEC_JSON`: how launchers of this and earlier versions start a replica."""

from tasks.inference.worker.process import main

main()
