"""Houses that write values in a way of their own: fields of JSON, and calls of tools as JSON."""

from __future__ import annotations

from benchmarks.families.family import Dice, Family, Filled, Kind

KUNDEN = ("Berg", "Kranz", "Lutz", "Moser", "Nagel", "Otto", "Pohl", "Roth", "Sommer")
WAREN = ("Stühle", "Lampen", "Tische", "Regale", "Kissen", "Decken", "Töpfe", "Vasen", "Körbe")
ZAHLUNG = {"bar": "B", "mit Karte": "K", "auf Rechnung": "R"}
TAGE = ("Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag")
FELDER = " Antworte nur mit einem JSON-Objekt mit den Feldern kunde, cent, zahlung und tag."
人名 = ("王芳", "李强", "张敏", "刘洋", "陈静", "杨磊", "赵丽", "黄伟", "周婷")
菜名 = ("牛肉面", "炒饭", "饺子", "豆腐", "烤鸭", "鱼汤", "春卷", "包子", "凉皮")
字段 = "只用一个JSON对象回答,字段是:姓名、份数、辣度、时间。"
辣度 = {"不要辣": 0, "微辣": 2, "特辣": 5}
COLLEAGUES = ("Ann", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hope", "Ian")
ITEMS = ("pens", "folders", "mugs", "envelopes", "staples", "labels", "tapes", "cards", "clips")


def bestellt(dice: Dice) -> Filled:
    """Sums are cents, payments a letter, and days the number of the weekday from Sunday as 1."""
    euro, cents = dice.number(12, 95), dice.choice((0, 20, 50, 90))
    how, day = dice.choice(list(ZAHLUNG)), dice.randrange(len(TAGE))
    values = {"name": dice.word(KUNDEN), "waren": dice.word(WAREN), "how": how, "day": TAGE[day]}
    answer = {
        "kunde": values["name"],
        "cent": 100 * euro + cents,
        "zahlung": ZAHLUNG[how],
        "tag": day + 2,
    }
    return {**values, "e": f"{euro},{cents:02}"}, answer


AUFTRAG = Family(
    "de-auftrag",
    "de",
    "how fields of an order are written",
    "json",
    (
        Kind(
            "bestellt",
            (
                (
                    "{name} bestellt {waren} für {e} Euro, zahlt {how} und holt sie am {day} ab."
                    + FELDER,
                    "Am {day} liefern wir {waren} an {name}. Preis {e} Euro, bezahlt wird {how}."
                    + FELDER,
                ),
                ("{waren} für {name}, {e} Euro, {how}, fertig am {day}." + FELDER,),
                (
                    "Für {e} Euro gehen am {day} {waren} an {name}; gezahlt wird {how}." + FELDER,
                    "Neuer Auftrag: {name} möchte {waren} zu {e} Euro. Zahlung {how}, Termin {day}."
                    + FELDER,
                ),
            ),
            bestellt,
        ),
    ),
    (
        "cent ist der Preis in Cent als ganze Zahl: 12,50 Euro sind 1250.",
        "zahlung ist ein Buchstabe: B für bar, K für Karte, R für Rechnung.",
        "tag ist eine Zahl: Montag 2, Dienstag 3, Mittwoch 4, Donnerstag 5, Freitag 6, Samstag 7.",
    ),
)


def 点菜(dice: Dice) -> Filled:
    """How hot is a number, afternoons have 24 hours, and the cook's portion is added."""
    hour, many = dice.number(1, 9), dice.number(2, 10)
    hot = dice.choice(list(辣度))
    values = {"n": dice.word(人名), "c": dice.word(菜名), "k": many, "hot": hot, "h": hour}
    answer = {"姓名": values["n"], "份数": many + 1, "辣度": 辣度[hot], "时间": 100 * (hour + 12)}
    return values, answer


餐馆 = Family(
    "zh-canguan",
    "zh",
    "how fields of an order are written",
    "json",
    (
        Kind(
            "点菜",
            (
                (
                    "{n}订{k}份{c},{hot},下午{h}点取。" + 字段,
                    "下午{h}点,{n}来拿{c}{k}份,要求{hot}。" + 字段,
                ),
                ("{c}{k}份,{hot},{n}下午{h}点来。" + 字段,),
                (
                    "给{n}准备{k}份{hot}的{c},下午{h}点送到。" + 字段,
                    "订单:{c},{hot},共{k}份,{n},下午{h}点。" + 字段,
                ),
            ),
            点菜,
        ),
    ),
    (
        "份数要多写一份(留样):订的份数+1。",
        "辣度写数字:不要辣是0,微辣是2,特辣是5。",
        "时间用24小时制的整数:下午1点写1300,下午2点写1400。",
    ),
)

TOOLS = (
    " The tools are book(room, start, people) and order(item, packs, cents). Answer with one JSON "
    'object alone, {{"tool": NAME, "arguments": {{...}}}}.'
)


def booked(dice: Dice) -> Filled:
    """A room is floor-number, a start hours and minutes in one number, and the host counts."""
    floor, room, hour = dice.number(1, 9), dice.number(10, 39), dice.number(8, 16)
    minute, guests = dice.choice((0, 15, 30, 45)), dice.number(2, 10)
    values = {"f": floor, "r": room, "t": f"{hour}:{minute:02}", "g": guests}
    arguments = {
        "room": f"{floor}-{room}",
        "start": 100 * hour + minute,
        "people": guests + 1,
    }
    return {**values, "name": dice.word(COLLEAGUES)}, {"tool": "book", "arguments": arguments}


def supplied(dice: Dice) -> Filled:
    """Items are capital letters, packs of ten, and the limit is in cents."""
    packs, euros = dice.number(2, 16), dice.number(20, 95)
    item = dice.word(ITEMS)
    arguments = {"item": item.upper(), "packs": packs, "cents": 100 * euros}
    values = {"n": 10 * packs, "e": euros, "item": item, "name": dice.word(COLLEAGUES)}
    return values, {"tool": "order", "arguments": arguments}


CALLS = Family(
    "en-calls",
    "en",
    "how the arguments of a tool are written",
    "json",
    (
        Kind(
            "booked",
            (
                (
                    "{name} meets {g} guests at {t} in room {r} on floor {f}." + TOOLS,
                    "Floor {f}, room {r}: {name} wants it from {t} for a talk with {g} guests."
                    + TOOLS,
                ),
                ("At {t} {name} sees {g} guests, floor {f}, room {r}." + TOOLS,),
                (
                    "Room {r} on floor {f} is what {name} needs at {t}, with {g} guests coming."
                    + TOOLS,
                    "{g} guests come to {name} at {t}. They take room {r}, floor {f}." + TOOLS,
                ),
            ),
            booked,
        ),
        Kind(
            "supplied",
            (
                (
                    "{name} needs {n} {item} and may spend {e} euros." + TOOLS,
                    "Get {n} {item} for {name}, for {e} euros at most." + TOOLS,
                ),
                ("For {e} euros {name} would like {n} {item}." + TOOLS,),
                (
                    "{n} {item} are missing on the desk of {name}; the limit is {e} euros." + TOOLS,
                    "Buy {name} {n} {item}. There are {e} euros for it." + TOOLS,
                ),
            ),
            supplied,
        ),
    ),
    (
        'room is a text of floor, dash and number: room 12 on floor 3 is "3-12".',
        "start is one whole number of hours and minutes: 9:15 is 915, 14:00 is 1400.",
        "people counts the host too: guests + 1.",
        "item is written in capital letters; packs hold 10 pieces: packs = pieces / 10.",
        "cents is the limit in cents: euros × 100.",
    ),
)

FAMILIES = (AUFTRAG, 餐馆, CALLS)
