"""``python -m potion``: the same as the ``potion`` command."""

from potion.cli import main

main()
