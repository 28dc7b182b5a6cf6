"""Draw a new version of the validation set: stratified, without duplicates, without what training has seen."""
