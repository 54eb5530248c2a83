"""`python -m app` is `turnlog`."""

from app.cli import main

main()
