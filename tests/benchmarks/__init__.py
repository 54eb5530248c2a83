"""How fast turnlog itself is: `make bench`. Numbers to look at, not to pass."""
