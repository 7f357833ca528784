"""Sources that have a present: cameras, network streams, folders being written."""
