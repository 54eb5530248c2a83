"""`python -m app` is `turnlog`."""

from turnlog.app.cli import main

main()
