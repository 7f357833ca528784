"""The memory on the device: cache, positions, compaction. Not pluggable; see ``policies/``."""
