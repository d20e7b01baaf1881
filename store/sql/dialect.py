"""What two databases write differently in one query."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Dialect(NamedTuple):
    """The words of a database. `integers` and `texts` are tables of one column, `value`, made of
    a parameter; `pairs` has the columns `after` and `upto`, and `numbers` has `key` and `value`.

    `among` takes a table, an alias and a column, and gives the rows whose column has one of the
    values of a parameter, in its order. `find` is the function that gives the place of a text in
    another, 0 for none. `member` takes a column of JSON and a name, and gives what is there: a
    text as it is, all else as JSON; `has` is whether anything is there, and `kind` of what kind
    (string or object). `text_key` is by what a call names its request.
    """

    integers: str
    texts: str
    pairs: str
    numbers: str
    among: Callable[[str, str, str], str]
    find: str
    member: Callable[[str, str], str]
    has: Callable[[str, str], str]
    kind: Callable[[str, str, str], str]
    text_key: str
    bytes_of_snapshot: str
