"""Who was let in, for what lets in by calling back."""


class Entered:
    """The names of those who were let in, in order."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, name: str) -> None:
        self.names.append(name)
