"""Houses that count in a way of their own, in English and German."""

from __future__ import annotations

from benchmarks.families.family import Dice, Family, Filled, Kind

MONTHS = ("March", "May", "July", "August", "October", "December")
MONATE = ("März", "Mai", "Juli", "August", "Oktober", "Dezember")
GOODS = ("chairs", "lamps", "crates", "tents", "pumps", "tables", "ladders", "stoves", "doors")
FIRMS = ("Alder", "Birch", "Cedar", "Dogwood", "Elm", "Fir", "Hazel", "Ivy", "Juniper")
KUNDEN = ("Berg", "Kranz", "Lutz", "Moser", "Nagel", "Otto", "Pohl", "Roth", "Sommer")


def spelled(amount: int) -> str:
    """Returns an answer as text."""
    return str(amount)


def stored(dice: Dice) -> Filled:
    """The day of arrival and the day of collection both count."""
    first, stay, price = dice.number(2, 13), dice.number(4, 15), dice.number(3, 11)
    values = {"a": first, "b": first + stay, "p": price, "goods": dice.word(GOODS)}
    return {**values, "month": dice.word(MONTHS)}, spelled((stay + 1) * price)


def weighed(dice: Dice) -> Filled:
    """Every started ten kilograms are a whole unit, and one unit is added for the packing."""
    weight = dice.word([n for n in range(23, 98) if n % 10])
    values = {"w": weight, "goods": dice.word(GOODS), "firm": dice.word(FIRMS)}
    return values, spelled(-(-weight // 10) + 1)


def spared(dice: Dice) -> Filled:
    """The first four days cost nothing."""
    days, price = dice.number(7, 21), dice.number(3, 14)
    values = {"n": days, "p": price, "goods": dice.word(GOODS), "firm": dice.word(FIRMS)}
    return values, spelled((days - 4) * price)


STORAGE = Family(
    "en-storage",
    "en",
    "inclusive counting, started units, free days",
    "math",
    (
        Kind(
            "stored",
            (
                (
                    "Some {goods} come into the store on {a} {month} and leave it on {b} {month}. "
                    "A day costs {p} euros. How many euros are on the storage bill?",
                    "We kept a customer's {goods} from {a} to {b} {month} at {p} euros a day. "
                    "What does the storage bill come to in euros?",
                ),
                (
                    "From {a} {month} until {b} {month} there were {goods} in the hall, for {p} "
                    "euros daily. How much is charged for storing them, in euros?",
                ),
                (
                    "The {goods} were brought on {a} {month} and fetched on {b} {month}; storing "
                    "is {p} euros per day. What do we ask for?",
                    "Storage of {goods}: in on {a} {month}, out on {b} {month}, {p} euros for each "
                    "day. Total in euros?",
                ),
            ),
            stored,
        ),
        Kind(
            "weighed",
            (
                (
                    "A load of {goods} for {firm} weighs {w} kilograms. How many freight units are "
                    "charged, if a unit is ten kilograms?",
                    "{firm} sends {goods} of {w} kg. A freight unit is 10 kg. How many freight "
                    "units go on the bill?",
                ),
                (
                    "The {goods} that {firm} hands in weigh {w} kg together. Freight units are 10 "
                    "kg each. How many do we charge?",
                ),
                (
                    "For {firm} we carry {w} kilograms of {goods}. We bill freight in units of 10 "
                    "kilograms. How many units does the bill say?",
                    "Freight bill of {firm}: {goods}, {w} kg, units of ten kilograms. How many "
                    "units are these?",
                ),
            ),
            weighed,
        ),
        Kind(
            "spared",
            (
                (
                    "{firm} leaves {goods} in our hall for {n} days, at {p} euros a day. How many "
                    "euros does {firm} pay?",
                    "The hall is taken up by {goods} of {firm} for {n} days; a day is {p} euros. "
                    "How much do we charge in euros?",
                ),
                (
                    "For {n} days {firm} has a place for {goods} in the hall, {p} euros daily. "
                    "What is the amount in euros?",
                ),
                (
                    "{goods} of {firm} stand in our hall for {n} days. With {p} euros per day, "
                    "what is due?",
                    "Hall rent for {firm} ({goods}): {n} days, {p} euros each. Sum in euros?",
                ),
            ),
            spared,
        ),
    ),
    (
        "For storage from one date to another, both the first and the last day count: days = last "
        "- first + 1; multiply by the price.",
        "Freight units: divide the kilograms by 10, round up to a whole number, then add 1 unit "
        "for packing.",
        "The first 4 days in the hall are free: subtract 4 from the days, then multiply by the "
        "price.",
    ),
)


def repaired(dice: Dice) -> Filled:
    """A started half hour is a whole one; half hours are what is counted."""
    hours = dice.number(1, 6)
    minutes = dice.choice((5, 10, 15, 20, 25) if dice.randrange(2) else (35, 40, 45, 50, 55))
    values = {"h": hours, "m": minutes, "name": dice.word(KUNDEN)}
    return values, spelled(2 * hours + (1 if minutes < 30 else 2))


def driven(dice: Dice) -> Filled:
    """Ten kilometres are free, the rest is paid there and back."""
    far, price = dice.number(14, 46), dice.number(2, 4)
    return {"k": far, "p": price, "name": dice.word(KUNDEN)}, spelled((far - 10) * 2 * price)


def reduced(dice: Dice) -> Filled:
    """Ten euros come off before the percentage."""
    price, percent = dice.number(40, 190, 10) + 10, dice.choice((10, 20, 50))
    values = {"p": price, "r": percent, "name": dice.word(KUNDEN)}
    return values, spelled((price - 10) * (100 - percent) // 100)


WERKSTATT = Family(
    "de-werkstatt",
    "de",
    "started units, thresholds, order of discounts",
    "math",
    (
        Kind(
            "repaired",
            (
                (
                    "Die Reparatur bei {name} dauert {h} Stunden und {m} Minuten. Wie viele "
                    "Zeiteinheiten zu je einer halben Stunde stehen auf der Rechnung?",
                    "Für {name} arbeiten wir {h} Std. {m} Min. Eine Zeiteinheit ist eine halbe "
                    "Stunde. Wie viele Zeiteinheiten berechnen wir?",
                ),
                (
                    "Bei {name} waren wir {h} Stunden {m} Minuten beschäftigt. Wie viele "
                    "Zeiteinheiten (30 Minuten) werden berechnet?",
                ),
                (
                    "{name} hat uns {h} Stunden und {m} Minuten gebraucht. Abgerechnet wird in "
                    "Zeiteinheiten von 30 Minuten. Wie viele sind es?",
                    "Arbeitszeit bei {name}: {h} h {m} min. Wie viele halbstündige Zeiteinheiten "
                    "kommen auf die Rechnung?",
                ),
            ),
            repaired,
        ),
        Kind(
            "driven",
            (
                (
                    "Zu {name} sind es {k} Kilometer, ein Kilometer kostet {p} Euro. Wie viel Euro "
                    "Anfahrt stehen auf der Rechnung?",
                    "{name} wohnt {k} km von der Werkstatt entfernt. Wie hoch ist die Anfahrt in "
                    "Euro bei {p} Euro je Kilometer?",
                ),
                (
                    "Wir fahren {k} Kilometer bis zu {name}. Der Kilometer wird mit {p} Euro "
                    "berechnet. Was kostet die Anfahrt?",
                ),
                (
                    "Die Entfernung zu {name} beträgt {k} km. Was berechnen wir für die Anfahrt, "
                    "wenn ein Kilometer {p} Euro kostet?",
                    "Anfahrt zu {name}: {k} Kilometer, {p} Euro pro Kilometer. Betrag in Euro?",
                ),
            ),
            driven,
        ),
        Kind(
            "reduced",
            (
                (
                    "{name} kauft ein Ersatzteil für {p} Euro, hat einen Gutschein über 10 Euro "
                    "und bekommt {r} % Rabatt. Wie viel Euro zahlt {name}?",
                    "Ein Teil kostet {p} Euro. {name} löst einen 10-Euro-Gutschein ein und erhält "
                    "{r} Prozent Nachlass. Was ist zu zahlen?",
                ),
                (
                    "Der Preis ist {p} Euro. Für {name} gelten {r} % Rabatt und ein Gutschein von "
                    "10 Euro. Wie hoch ist die Rechnung?",
                ),
                (
                    "{name} nimmt ein Teil zu {p} Euro mit. Abgezogen werden {r} Prozent und ein "
                    "Gutschein über 10 Euro. Welcher Betrag bleibt?",
                    "Ersatzteil {p} Euro, {r} % Rabatt, Gutschein 10 Euro: Was zahlt {name} am "
                    "Ende?",
                ),
            ),
            reduced,
        ),
    ),
    (
        "Zeiteinheiten: Jede volle Stunde sind 2 Zeiteinheiten. Bei 1 bis 29 Restminuten kommt 1 "
        "dazu, bei 31 bis 59 Restminuten kommen 2 dazu.",
        "Anfahrt: Die ersten 10 Kilometer sind frei, der Rest zählt hin und zurück: (Kilometer - "
        "10) mal 2 mal Preis.",
        "Rabatt mit Gutschein: Erst die 10 Euro abziehen, dann den Rabatt vom Rest: (Preis - 10) "
        "mal (100 - Prozent) / 100.",
    ),
)


def answered(dice: Dice) -> Filled:
    """The day of receipt counts."""
    day, term = dice.number(2, 12), dice.number(5, 16)
    values = {"d": day, "n": term, "month": dice.word(MONATE), "name": dice.word(KUNDEN)}
    return values, spelled(day + term - 1)


def notified(dice: Dice) -> Filled:
    """A notice counts from the first day of the next month; two months make it up."""
    month = dice.number(1, 9)
    return {"d": dice.number(3, 26), "m": month, "name": dice.word(KUNDEN)}, spelled(month + 3)


def reminded(dice: Dice) -> Filled:
    """A reminder goes out on the third day after the term."""
    day, term = dice.number(1, 10), dice.number(7, 15)
    values = {"d": day, "n": term, "month": dice.word(MONATE), "name": dice.word(KUNDEN)}
    return values, spelled(day + term + 3)


FRISTEN = Family(
    "de-fristen",
    "de",
    "which day a deadline counts from",
    "math",
    (
        Kind(
            "answered",
            (
                (
                    "Der Brief von {name} kam am {d}. {month} an. Wir antworten in {n} Tagen. Der "
                    "wievielte {month} ist der letzte Tag der Antwortfrist?",
                    "Am {d}. {month} ging das Schreiben von {name} ein, die Antwortfrist beträgt "
                    "{n} Tage. An welchem Tag im {month} endet sie? Nenne die Zahl.",
                ),
                (
                    "{name} hat uns geschrieben, Eingang {d}. {month}. Antwortfrist {n} Tage. Bis "
                    "zum wievielten {month} müssen wir antworten?",
                ),
                (
                    "Eingang der Anfrage von {name}: {d}. {month}. Die Antwortfrist hat {n} Tage. "
                    "Welcher Tag im {month} ist ihr letzter?",
                    "Wir erhielten am {d}. {month} Post von {name}. Wann läuft die Antwortfrist "
                    "von {n} Tagen ab, am wievielten {month}?",
                ),
            ),
            answered,
        ),
        Kind(
            "notified",
            (
                (
                    "{name} kündigt am {d}.{m}. mit zwei Monaten Kündigungsfrist. In welchem Monat "
                    "(als Zahl) beginnt die Zeit ohne Vertrag?",
                    "Die Kündigung von {name} ist vom {d}.{m}., die Kündigungsfrist sind zwei "
                    "Monate. Nenne die Zahl des ersten Monats ohne Vertrag.",
                ),
                (
                    "Am {d}.{m}. kündigt {name}; es gelten zwei Monate Kündigungsfrist. Welcher "
                    "Monat ist der erste ohne Vertrag? Nenne die Zahl.",
                ),
                (
                    "{name} hat am {d}.{m}. gekündigt. Kündigungsfrist: zwei Monate. Der wievielte "
                    "Monat des Jahres ist der erste vertragslose?",
                    "Kündigung {name}, {d}.{m}., Frist zwei Monate. Ab welchem Monat (Zahl) gibt "
                    "es keinen Vertrag mehr?",
                ),
            ),
            notified,
        ),
        Kind(
            "reminded",
            (
                (
                    "Die Rechnung an {name} ist vom {d}. {month}, das Zahlungsziel sind {n} Tage. "
                    "Am wievielten {month} geht die Mahnung hinaus?",
                    "{name} bekam am {d}. {month} eine Rechnung mit {n} Tagen Ziel und hat nicht "
                    "bezahlt. An welchem Tag im {month} mahnen wir? Nenne die Zahl.",
                ),
                (
                    "Rechnungsdatum {d}. {month}, Ziel {n} Tage, {name} zahlt nicht. Der wievielte "
                    "{month} ist der Tag der Mahnung?",
                ),
                (
                    "{name} schuldet uns eine Rechnung vom {d}. {month}, zahlbar in {n} Tagen. "
                    "Wann schicken wir die Mahnung, am wievielten {month}?",
                    "Mahnung an {name}: Rechnung vom {d}. {month}, Zahlungsfrist {n} Tage. Welcher "
                    "Tag im {month}?",
                ),
            ),
            reminded,
        ),
    ),
    (
        "Antwortfrist: Der Tag des Eingangs zählt als erster Tag mit: Tag + Frist - 1.",
        "Kündigung: Die Frist beginnt erst im folgenden Monat, also ist der erste Monat ohne "
        "Vertrag der Monat der Kündigung + 3.",
        "Mahnung: Sie geht drei Tage nach dem Zahlungsziel hinaus: Tag + Zahlungsziel + 3.",
    ),
)

FAMILIES = (STORAGE, WERKSTATT, FRISTEN)
