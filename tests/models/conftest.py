"""The tiny Qwen models of the memory tests."""

from tests.memory.conftest import qwen

__all__ = ["qwen"]
