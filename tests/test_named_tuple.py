"""A named tuple does what one of `typing` does."""

from __future__ import annotations

import copy
import pickle
import typing
from typing import get_type_hints

import pytest

from tfgrpo.store.named_tuple import NamedTuple


class Point(NamedTuple):
    """Where something is."""

    x: int
    y: int | None = None
    name: str = "here"

    @property
    def far(self) -> bool:
        """Whether it is far away."""
        return self.x > 9


class Standard(typing.NamedTuple):
    x: int
    y: int | None = None
    name: str = "here"


class Near(Point):
    pass


def test_it_is_made_and_looked_at_as_one_of_typing() -> None:
    point, standard = Point(1, name="there"), Standard(1, name="there")
    assert point == standard == (1, None, "there")
    assert repr(point) == repr(standard).replace("Standard", "Point")
    assert (point.x, point.y, point.name, point.far) == (1, None, "there", False)
    assert point._asdict() == standard._asdict()
    assert point._replace(x=10).far
    assert Point._make([1, 2, "n"]) == Point(x=1, y=2, name="n")
    assert (Point._fields, Point._field_defaults) == (Standard._fields, Standard._field_defaults)
    assert get_type_hints(Point) == get_type_hints(Standard)
    assert Point.__doc__ == "Where something is."
    match point:
        case Point(x, None):
            assert x == 1
        case _:
            pytest.fail("does not match")


def test_what_cannot_be_is_refused_as_typing_does() -> None:
    for wrong in (lambda: Point(), lambda: Point(1, z=2), lambda: Point(1, 2, "n", 4)):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(TypeError):
        Point._make([1])
    with pytest.raises(ValueError, match="z"):
        Point(1)._replace(z=1)
    with pytest.raises(AttributeError):
        Point(1).x = 2  # type: ignore[misc]
    with pytest.raises(TypeError, match="default"):

        class Wrong(NamedTuple):
            x: int = 1
            y: int  # type: ignore[misc]


def test_copies_pickles_and_subclasses_are_whole() -> None:
    near = Near(1, 2)
    assert type(near) is Near
    assert type(near._replace(x=3)) is Near
    for point in (Point(1, 2), Point(3)):
        assert (
            pickle.loads(pickle.dumps(point)) == copy.copy(point) == copy.deepcopy(point) == point
        )
        assert type(copy.copy(point)) is Point
