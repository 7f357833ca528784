"""Demonstrations of the library. Nothing in ``hermes_like`` depends on them."""
