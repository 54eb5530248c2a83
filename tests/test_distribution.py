"""turnlog is an application for its own environment: its three import names are nobody else's."""

from importlib.metadata import packages_distributions


def test_no_other_distribution_owns_the_import_names() -> None:
    owners = packages_distributions()

    for name in ("domain", "adapters", "app"):
        # An editable install owns no names at all.
        assert set(owners.get(name, [])) <= {"turnlog"}
