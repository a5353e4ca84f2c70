"""``python -m walkwise`` is the command ``walkwise``."""

from walkwise.cli import app

app()
