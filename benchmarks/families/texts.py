"""Houses whose answers are short texts: fiscal dates, article numbers, results of functions."""

from __future__ import annotations

from benchmarks.families.family import Dice, Family, Filled, Kind

MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
MESES = (
    *("enero", "febrero", "marzo", "abril", "mayo", "junio", "julio"),
    *("agosto", "septiembre", "octubre", "noviembre", "diciembre"),
)
FIRST = 10
"""October, in which the fiscal year begins."""
NOMBRES = ("Ana", "Bruno", "Carla", "Diego", "Elena", "Fabio", "Gema", "Hugo", "Irene")


def quartered(dice: Dice) -> Filled:
    """A fiscal year begins in October and has the number of the year in which it ends."""
    month, year = dice.randint(1, 12), dice.number(2021, 2038)
    quarter = (month - FIRST) % 12 // 3 + 1
    values = {"d": dice.number(2, 27), "m": MONTHS[month - 1], "y": year}
    return values, f"{year + (month >= FIRST)}-Q{quarter}"


def weekly(dice: Dice) -> Filled:
    """A house's week has eight days and starts with the month; what is left is a fourth one."""
    day, month = dice.number(2, 28), dice.word(MONTHS)
    return {"d": day, "m": month}, f"{month}-{min(4, (day + 7) // 8)}"


FISCAL = Family(
    "en-fiscal",
    "en",
    "a house's fiscal quarters and weeks",
    "exact",
    (
        Kind(
            "quartered",
            (
                (
                    "Which fiscal quarter does {d} {m} {y} fall into? Write it like 2019-Q4.",
                    "An invoice is dated {d} {m} {y}. Name its fiscal quarter, like 2019-Q4.",
                ),
                ("A sale was made on {d} {m} {y}. Its fiscal quarter, written like 2019-Q4?",),
                (
                    "We book something on {d} {m} {y}. Into which fiscal quarter (like 2019-Q4)?",
                    "Say in which fiscal quarter {d} {m} {y} lies, in the form 2019-Q4.",
                ),
            ),
            quartered,
        ),
        Kind(
            "weekly",
            (
                (
                    "Which house week is {d} {m}? Write the month and the number, like Easter-2.",
                    "A shift is on {d} {m}. Name its house week as month-number.",
                ),
                ("The shop was closed on {d} {m}. Which house week (month-number) was it?",),
                (
                    "Give the house week of {d} {m}, in the form month-number.",
                    "Something is delivered on {d} {m}. House week, as month-number?",
                ),
            ),
            weekly,
        ),
    ),
    (
        "Fiscal quarters: October to December is Q1 of the next year, January to March is Q2, "
        "April to June is Q3, July to September is Q4 of the same year.",
        "House weeks: days 1 to 8 are week 1, days 9 to 16 week 2, days 17 to 24 week 3, days from "
        "25 on week 4.",
    ),
)


def found(dice: Dice) -> Filled:
    """A result is a list: 0 and the place from one, or 7 and null."""
    values = [dice.number(2, 40) for _ in range(dice.randint(3, 5))]
    values = list(dict.fromkeys(values))
    if dice.randrange(3):
        wanted = dice.choice(values)
        return {"x": wanted, "xs": values}, f"[0, {values.index(wanted) + 1}]"
    return {"x": dice.number(41, 60), "xs": values}, "[7, null]"


def sliced(dice: Dice) -> Filled:
    """Both ends belong to a slice, and places count from one."""
    values = [dice.number(2, 60) for _ in range(6)]
    first = dice.randint(1, 3)
    last = first + dice.randint(1, 2)
    return {"xs": values, "a": first, "b": last}, f"[0, {values[first - 1 : last]}]"


def divided(dice: Dice) -> Filled:
    """Division rounds up; by zero it is 7 and null."""
    a, b = dice.number(11, 70), dice.number(3, 9)
    if dice.randrange(4) == 0:
        return {"a": a, "b": 0}, "[7, null]"
    return {"a": a, "b": b}, f"[0, {-(-a // b)}]"


RESULTS = Family(
    "en-results",
    "en",
    "a house's convention for results of functions",
    "exact:space=ignore",
    (
        Kind(
            "found",
            (
                (
                    "In our library find(x, xs) looks x up in xs. What does find({x}, {xs}) "
                    "return?",
                    "What is the result of our function find for x = {x} and xs = {xs}?",
                ),
                ("Our find is called with {x} and {xs}. Write what it returns.",),
                (
                    "Write the value that our library's find({x}, {xs}) gives back.",
                    "Somebody calls find({x}, {xs}) of our library. Result?",
                ),
            ),
            found,
        ),
        Kind(
            "sliced",
            (
                (
                    "In our library cut(xs, a, b) takes a part of xs. What does cut({xs}, {a}, "
                    "{b}) return?",
                    "What is the result of our function cut for xs = {xs}, a = {a}, b = {b}?",
                ),
                ("Our cut is called with {xs}, {a} and {b}. Write what it returns.",),
                (
                    "Write the value that our library's cut({xs}, {a}, {b}) gives back.",
                    "Somebody calls cut({xs}, {a}, {b}) of our library. Result?",
                ),
            ),
            sliced,
        ),
        Kind(
            "divided",
            (
                (
                    "In our library share(a, b) divides a by b. What does share({a}, {b}) return?",
                    "What is the result of our function share for a = {a} and b = {b}?",
                ),
                ("Our share is called with {a} and {b}. Write what it returns.",),
                (
                    "Write the value that our library's share({a}, {b}) gives back.",
                    "Somebody calls share({a}, {b}) of our library. Result?",
                ),
            ),
            divided,
        ),
    ),
    (
        "Every function returns a list of two: [0, value] if it worked, [7, null] if nothing was "
        "found or the divisor is 0.",
        "find gives the place of x in the list, counted from 1: find(5, [4, 5]) is [0, 2].",
        "cut gives the places a to b, counted from 1, both included: cut([3, 6, 9], 1, 2) is "
        "[0, [3, 6]].",
        "share divides and rounds up to a whole number: share(10, 4) is [0, 3].",
    ),
)


def numerado(dice: Dice) -> Filled:
    """A file's code is the client's first letter, and the month and the day in two digits."""
    month, day = dice.randint(1, 12), dice.number(1, 28)
    name = dice.word(NOMBRES)
    values = {"n": name, "d": day, "m": MESES[month - 1]}
    return values, f"{name[0]}{month:02}{day:02}"


def vencido(dice: Dice) -> Filled:
    """A bill that is due in the first half of a month is paid on the 15th, else on the 28th."""
    month, day = dice.word(MESES), dice.number(2, 28)
    values = {"n": dice.word(NOMBRES), "d": day, "m": month}
    return values, f"{15 if day <= 14 else 28} de {month}"


ARCHIVO = Family(
    "es-archivo",
    "es",
    "how files are named, and days of payment",
    "exact:case=ignore",
    (
        Kind(
            "numerado",
            (
                (
                    "{n} abrió un expediente el {d} de {m}. ¿Qué código le ponemos?",
                    "¿Cuál es el código del expediente de {n}, abierto el {d} de {m}?",
                ),
                ("El {d} de {m} se abre el expediente de {n}. Escribe su código.",),
                (
                    "Archivamos un expediente de {n} con fecha {d} de {m}. Di el código.",
                    "Código para el expediente que {n} inició el {d} de {m}:",
                ),
            ),
            numerado,
        ),
        Kind(
            "vencido",
            (
                (
                    "La factura de {n} llega el {d} de {m}. ¿Qué día se paga? Escribe el día y el "
                    "mes, como 3 de octubre.",
                    "{n} nos manda una factura el {d} de {m}. ¿Cuándo la pagamos (como 3 de "
                    "octubre)?",
                ),
                ("El {d} de {m} recibimos la factura de {n}. ¿Día de pago, como 3 de octubre?",),
                (
                    "Factura de {n}, recibida el {d} de {m}. Di el día de pago, como 3 de octubre.",
                    "¿En qué fecha pagamos a {n} la factura que entró el {d} de {m}? Como 3 de "
                    "octubre.",
                ),
            ),
            vencido,
        ),
    ),
    (
        "Código de expediente: la inicial del nombre, el mes con dos cifras y el día con dos "
        "cifras: Zoe, 5 de marzo: Z0305.",
        "Las facturas que llegan del día 1 al 14 se pagan el 15 del mismo mes; las que llegan del "
        "15 en adelante, el 28 del mismo mes.",
    ),
)

FAMILIES = (FISCAL, RESULTS, ARCHIVO)
