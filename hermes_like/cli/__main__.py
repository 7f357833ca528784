"""``python -m hermes_like.cli``: the same as the installed command."""

from hermes_like.cli import main

main()
