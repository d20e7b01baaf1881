"""`NamedTuple` as in `typing`, made in a tenth of the time.

`typing.NamedTuple` compiles every annotation and a constructor for every class as its module is
loaded, which came to a tenth of what `tfgrpo log` takes. Here annotations stay as they are
written, and the constructor is compiled when the first tuple of the class is made. A type checker
sees `typing.NamedTuple` itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from collections import _tuplegetter as getter  # what the fields of a named tuple are

    class Row(tuple):
        """What all named tuples do; the methods of `collections.namedtuple`."""

        __slots__ = ()

        def __new__(cls, /, *args, **kwargs):
            """Compiles the constructor of the class, and makes the tuple with it."""
            home = next(base for base in cls.__mro__ if "_fields" in base.__dict__)
            names = ", ".join(home._fields)
            code = f"lambda _cls, {names}: _new(_cls, ({names}{',' if names else ''}))"
            new = eval(code, {"_new": tuple.__new__, "__name__": f"namedtuple_{home.__name__}"})
            new.__name__ = "__new__"
            new.__qualname__ = f"{home.__qualname__}.__new__"
            new.__defaults__ = tuple(home._field_defaults.values())
            new.__annotations__ = home.__annotations__
            home.__new__ = new
            return new(cls, *args, **kwargs)

        @classmethod
        def _make(cls, iterable):
            row = tuple.__new__(cls, iterable)
            if len(row) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(row)}")
            return row

        def _replace(self, /, **kwargs):
            row = self._make(map(kwargs.pop, self._fields, self))
            if kwargs:
                raise ValueError(f"Got unexpected field names: {list(kwargs)!r}")
            return row

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            pairs = zip(self._fields, self, strict=True)
            return (
                f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in pairs)})"
            )

        def __getnewargs__(self):
            return tuple(self)

    class Maker(type):
        """Makes of a class statement a subclass of `Row`."""

        def __new__(cls, name, bases, body):
            """Returns the class, which has `Row` as its base."""
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = tuple(body.get("__annotations__", ()))
            defaults = {field: body.pop(field) for field in fields if field in body}
            if tuple(defaults) != fields[len(fields) - len(defaults) :]:
                raise TypeError(f"{name}: a field without a default follows on one that has one")
            body.update((field, getter(at, "")) for at, field in enumerate(fields))
            body.update(
                __slots__=(), _fields=fields, _field_defaults=defaults, __match_args__=fields
            )
            return type(name, (Row, *bases[1:]), body)

    class NamedTuple(metaclass=Maker):
        """Stands for `typing.NamedTuple`."""
