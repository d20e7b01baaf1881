"""Houses that count in a way of their own, in Spanish and Chinese."""

from __future__ import annotations

from benchmarks.families.family import Dice, Family, Filled, Kind

COSAS = ("sillas", "lámparas", "mesas", "mantas", "tazas", "cajas", "camisas", "bolsas", "velas")
NOMBRES = ("Ana", "Bruno", "Carla", "Diego", "Elena", "Fabio", "Gema", "Hugo", "Irene")
人名 = ("王芳", "李强", "张敏", "刘洋", "陈静", "杨磊", "赵丽", "黄伟", "周婷")


def rebajado(dice: Dice) -> Filled:
    """The percentage comes before the coupon."""
    price, percent = dice.number(40, 200, 10), dice.choice((10, 20, 50))
    coupon = dice.number(5, 13)
    values = {"p": price, "r": percent, "c": coupon, "cosas": dice.word(COSAS)}
    return {**values, "n": dice.word(NOMBRES)}, str(price * (100 - percent) // 100 - coupon)


def enviado(dice: Dice) -> Filled:
    """Sending costs six euros where what was bought comes to less than sixty, else nothing."""
    cheap = dice.randrange(2) == 0
    price = dice.number(31, 57) if cheap else dice.number(63, 95)
    values = {"p": price, "cosas": dice.word(COSAS), "n": dice.word(NOMBRES)}
    return values, str(price + 6 if cheap else price)


def regalado(dice: Dice) -> Filled:
    """The fourth piece of every four is free."""
    pieces, price = dice.number(5, 15), dice.number(3, 11)
    values = {"u": pieces, "p": price, "cosas": dice.word(COSAS), "n": dice.word(NOMBRES)}
    return values, str((pieces - pieces // 4) * price)


DESCUENTOS = Family(
    "es-descuentos",
    "es",
    "order of discounts, thresholds, free pieces",
    "math",
    (
        Kind(
            "rebajado",
            (
                (
                    "{n} compra {cosas} por {p} euros con un vale de {c} euros y un descuento del "
                    "{r} %. ¿Cuántos euros paga?",
                    "Las {cosas} cuestan {p} euros. {n} tiene un {r} % de descuento y un vale de "
                    "{c} euros. ¿Cuál es el total?",
                ),
                (
                    "{n} entrega un vale de {c} euros para unas {cosas} de {p} euros, con el {r} "
                    "por ciento de descuento. ¿Cuánto paga?",
                ),
                (
                    "Por unas {cosas} de {p} euros, {n} presenta un vale de {c} euros; además hay "
                    "un {r} % de descuento. ¿Qué importe se cobra?",
                    "Cuenta de {n}: {cosas} {p} euros, vale {c} euros, descuento {r} %. ¿Total en "
                    "euros?",
                ),
            ),
            rebajado,
        ),
        Kind(
            "enviado",
            (
                (
                    "{n} pide {cosas} por {p} euros para que se las envíen a casa. ¿Cuántos euros "
                    "suma la factura con el envío?",
                    "El pedido de {n} son {cosas} por {p} euros y se manda por correo. ¿Cuánto "
                    "paga en total con el envío?",
                ),
                ("Mandamos a {n} unas {cosas} de {p} euros. ¿Qué total tiene la factura?",),
                (
                    "{n} quiere recibir por mensajero {cosas} que valen {p} euros. ¿Cuánto le "
                    "cobramos con el envío?",
                    "Pedido a domicilio de {n}: {cosas}, {p} euros. ¿Importe final, envío "
                    "incluido?",
                ),
            ),
            enviado,
        ),
        Kind(
            "regalado",
            (
                (
                    "{n} se lleva {u} {cosas} a {p} euros cada una. ¿Cuántos euros paga?",
                    "Una unidad cuesta {p} euros y {n} compra {u} {cosas}. ¿Cuál es el total?",
                ),
                ("{n} compra {u} {cosas}; cada una vale {p} euros. ¿Cuánto cobramos?",),
                (
                    "Vendemos a {n} {u} {cosas} al precio de {p} euros la unidad. ¿Qué importe "
                    "sale?",
                    "Cuenta de {n}: {u} {cosas}, {p} euros la pieza. ¿Total en euros?",
                ),
            ),
            regalado,
        ),
    ),
    (
        "Con vale y descuento: primero se aplica el descuento al precio y después se resta el "
        "vale: precio × (100 - descuento) / 100 - vale.",
        "Envío: si la compra es de menos de 60 euros se suman 6 euros; desde 60 euros el envío no "
        "cuesta nada.",
        "De cada 4 piezas una es gratis: piezas pagadas = piezas - (piezas / 4 sin decimales); "
        "después se multiplica por el precio.",
    ),
)


def 租车天数(dice: Dice) -> Filled:
    """The first and the last day both count."""
    first, stay, price = dice.number(2, 12), dice.number(3, 14), dice.number(60, 150, 10)
    values = {"a": first, "b": first + stay, "p": price, "m": dice.number(1, 12)}
    return {**values, "n": dice.word(人名)}, str((stay + 1) * price)


def 超里程(dice: Dice) -> Filled:
    """A hundred kilometres are free; each started ten beyond them is paid for."""
    far, price = dice.word([n for n in range(121, 200) if n % 10]), dice.number(3, 14)
    return {"k": far, "p": price, "n": dice.word(人名)}, str(-(-(far - 100) // 10) * price)


def 押金(dice: Dice) -> Filled:
    """The deposit is three days' rent and two hundred yuan."""
    price, days = dice.number(60, 180, 10), dice.number(4, 15)
    return {"p": price, "d": days, "n": dice.word(人名)}, str(price * 3 + 200)


租车 = Family(
    "zh-zuche",
    "zh",
    "inclusive counting, started units, a fixed sum",
    "math",
    (
        Kind(
            "天数",
            (
                (
                    "{n}从{m}月{a}日到{m}月{b}日租了一辆车,每天{p}元。租金一共多少元?",
                    "{n}租车,{m}月{a}日取车,{m}月{b}日还车,日租金{p}元。租金是多少元?",
                ),
                ("车在{m}月{a}日租给{n},{m}月{b}日收回,一天{p}元。应收租金多少元?",),
                (
                    "{m}月{a}日至{m}月{b}日,{n}一直用着我们的车。按每日{p}元,要付多少元租金?",
                    "租车单:{n},{m}月{a}日—{m}月{b}日,{p}元/天。租金合计多少元?",
                ),
            ),
            租车天数,
        ),
        Kind(
            "里程",
            (
                (
                    "{n}租的车开了{k}公里,每10公里{p}元。超里程费是多少元?",
                    "还车时里程表显示{n}跑了{k}公里。每10公里{p}元,要收多少元超里程费?",
                ),
                ("{n}这次一共行驶{k}公里,每10公里收{p}元,超里程费多少元?",),
                (
                    "租车单:{n},行驶里程{k}公里,每10公里{p}元。超里程费应收多少元?",
                    "{n}开着我们的车走了{k}公里,按每10公里{p}元,请算出超里程费(元)。",
                ),
            ),
            超里程,
        ),
        Kind(
            "押金",
            (
                (
                    "{n}要租车{d}天,日租金{p}元。押金收多少元?",
                    "每天租金{p}元,{n}租{d}天,取车时要交多少元押金?",
                ),
                ("{n}预订了{d}天的车,一天{p}元,押金是多少元?",),
                (
                    "给{n}的车日租金是{p}元,租期{d}天。应交押金多少元?",
                    "租车单:{n},{d}天,{p}元/天。押金多少元?",
                ),
            ),
            押金,
        ),
    ),
    (
        "租车天数:取车日和还车日都算一天,天数=还车日-取车日+1,再乘以日租金。",
        "超里程费:先减去100公里,剩下的公里数除以10,向上取整,再乘以单价。",
        "押金与租期无关:押金=日租金×3+200元。",
    ),
)

FAMILIES = (DESCUENTOS, 租车)
