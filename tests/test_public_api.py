"""The public names: all there, all documented, and nothing else."""

import inspect

import pytest

import penstock as ps


@pytest.mark.parametrize("name", ps.__all__)
def test_every_public_name_resolves_and_is_documented(name):
    assert inspect.getdoc(getattr(ps, name))


def test_public_names_are_sorted_complete_and_listed_by_dir():
    assert sorted(ps.__all__) == ps.__all__
    assert set(ps.__all__) == set(ps._HOMES)
    assert set(ps.__all__) <= set(dir(ps))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        ps.nope  # noqa: B018
