"""What lies under `cluster.fileroot`: runs, validation sets, watched folders, remembered batch sizes."""
