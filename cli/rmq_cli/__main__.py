"""`python -m rmq_cli`."""

from __future__ import annotations

from .main import main

main()
