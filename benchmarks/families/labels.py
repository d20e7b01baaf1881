"""Houses that sort messages by a convention of their own: not by what a message is about.

What somebody writes about says nothing of where the message goes: who writes, or when, does. So
the message that is most like another one mostly goes elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks.families.family import Dice, Family, Filled, Kind


def sorted_to(label: str, topics: Sequence[str], cues: Sequence[str], dice: Dice) -> Filled:
    """Fills a message with what it is about and with what decides where it goes."""
    return {"topic": dice.word(topics), "cue": dice.word(cues)}, label


def house(
    name: str,
    shape: str,
    topics: Sequence[str],
    cues: Mapping[str, Sequence[str]],
    rules: Sequence[str],
) -> Family:
    """Returns a family of messages: topics that all labels share, and cues for each label."""
    orders = ("{cue} {topic}", "{topic} {cue}")
    texts = (orders, orders, orders)
    return Family(
        name,
        name[:2],
        shape,
        f"choice:{json.dumps(list(cues), ensure_ascii=False)}",
        tuple(Kind(label, texts, partial(sorted_to, label, topics, cues[label])) for label in cues),
        tuple(rules),
    )


HOTEL = house(
    "en-hotel",
    "four desks, by when a guest writes and whether something is broken",
    (
        "It is about the parking space.",
        "I have a question about breakfast.",
        "This concerns the bicycle I hired.",
        "I mean the room with the balcony.",
        "It is about the towels.",
        "My question is about the safe.",
        "It concerns the television.",
        "I am writing about the heating.",
        "This is about my parcel.",
        "It has to do with the sauna.",
        "I would like to talk about the key card.",
        "It is about the baby cot.",
        "The matter is the minibar.",
        "I need to know more about the airport taxi.",
        "It is about the shower.",
    ),
    {
        "Front": (
            "We arrive next Friday.",
            "Our stay begins in two weeks.",
            "I have booked for August and look forward to it.",
            "We will be your guests from Monday on.",
            "Tomorrow evening we get to you.",
            "I am on my way to you and check in tonight.",
        ),
        "Stair": (
            "I am in room 214 right now, and it does not work.",
            "We are staying with you, and something is broken.",
            "I live on the third floor this week, and here is a defect.",
            "We sit in room 108 and it has stopped working.",
            "As your guest in the house I report damage.",
            "From room 33: there is a fault that should be mended.",
        ),
        "Garden": (
            "I am in room 305 and would like something more.",
            "We are staying with you and have a wish.",
            "I live on the second floor this week and would ask for an extra.",
            "We sit in room 117 and need one more.",
            "As your guest in the house I have a small request.",
            "From room 41: may I have another one, please?",
        ),
        "Tower": (
            "We left you on Sunday.",
            "Our stay ended last month.",
            "I was your guest in May and am back at home.",
            "Since we checked out a week ago I wonder about one thing.",
            "I have been home again since yesterday.",
            "Our holiday with you is over now.",
        ),
    },
    (
        "The guest will arrive later (tomorrow, next week, tonight): the label is Front.",
        "The guest is in the house now and something is broken or does not work: the label is "
        "Stair.",
        "The guest is in the house now and wants something, and nothing is broken: the label is "
        "Garden.",
        "The guest has left and is home again: the label is Tower.",
    ),
)

STADTWERKE = house(
    "de-stadtwerke",
    "fünf Abteilungen, nach dem, der schreibt",
    (
        "Es geht um den Wasserzähler.",
        "Ich habe eine Frage zum Abschlag.",
        "Mein Anliegen ist der Hausanschluss.",
        "Es betrifft die letzte Rechnung.",
        "Ich schreibe wegen der Baustelle.",
        "Es geht um den Ablesetermin.",
        "Mich beschäftigt der neue Tarif.",
        "Es handelt sich um die Straßenlampe.",
        "Ich möchte etwas zur Mahnung wissen.",
        "Es geht um die Fernwärme.",
        "Meine Frage gilt der Solaranlage.",
        "Es betrifft den Stromausfall.",
        "Ich melde mich wegen der Ladesäule.",
        "Es geht um den Umzug.",
        "Ich brauche eine Auskunft zum Gasdruck.",
    ),
    {
        "Nord": (
            "Mein Vermieter hat mich an Sie verwiesen.",
            "Als Mieterin einer kleinen Wohnung melde ich mich.",
            "In unserer Mietwohnung leben wir zu dritt.",
            "Wir sind Mieter im zweiten Stock.",
            "Ich wohne hier zur Miete.",
            "Ich habe die Wohnung nur gemietet.",
        ),
        "Süd": (
            "Uns gehört die Wohnung selbst.",
            "Ich habe das Haus geerbt und wohne darin.",
            "Ich bin Eigentümerin des Gebäudes.",
            "Das Haus gehört mir.",
            "Als Hausbesitzer wende ich mich an Sie.",
            "Wir sind Eigentümer eines Reihenhauses.",
        ),
        "West": (
            "Für unsere Firma schreibe ich Ihnen.",
            "Ich leite eine Werkstatt.",
            "Ich führe eine Bäckerei.",
            "Im Namen unserer GmbH frage ich an.",
            "Unser Restaurant öffnet täglich.",
            "Wir sind ein Betrieb mit zwölf Leuten.",
        ),
        "Ost": (
            "Vielleicht wechsle ich bald zu Ihnen.",
            "Wir sind bisher bei einem anderen Versorger.",
            "Zurzeit beliefert uns die Konkurrenz.",
            "Einen Vertrag mit Ihnen habe ich noch nicht.",
            "Ich bin noch kein Kunde bei Ihnen.",
            "Bei Ihnen bin ich nicht angemeldet, denke aber darüber nach.",
        ),
        "Mitte": (
            "Wir sind ein Kindergarten.",
            "Ich schreibe für die Grundschule.",
            "Ich bin die Leiterin der Bücherei.",
            "Die Kirchengemeinde wendet sich an Sie.",
            "Unser Sportverein bittet um Auskunft.",
            "Als Gemeinderat frage ich nach.",
        ),
    },
    (
        "Wer zur Miete wohnt (Mieter): Das Label ist Nord.",
        "Wem das Haus oder die Wohnung gehört (Eigentümer): Das Label ist Süd.",
        "Wer eine Firma, einen Laden oder einen Betrieb hat: Das Label ist West.",
        "Wer noch kein Kunde ist oder einen anderen Versorger hat: Das Label ist Ost.",
        "Schulen, Vereine, Kirchen, Gemeinden und Büchereien: Das Label ist Mitte.",
    ),
)

TIENDA = house(
    "es-tienda",
    "cuatro mesas, según cómo y cuándo se compró",
    (
        "Se trata de la cafetera.",
        "Les escribo por la lámpara.",
        "Mi pregunta es sobre el sofá.",
        "Es por el televisor.",
        "Tengo un asunto con la bicicleta.",
        "Hablo de la nevera.",
        "Quisiera hablar del abrigo.",
        "El motivo es la impresora.",
        "Se refiere a la mochila.",
        "Es acerca del reloj.",
        "Me preocupa el colchón.",
        "Escribo por los zapatos.",
        "Es una duda sobre la tableta.",
        "Tiene que ver con la mesa.",
        "Pregunto por el ventilador.",
    ),
    {
        "Sol": (
            "Acabo de volver de su tienda, donde lo compré.",
            "Salí de su local ayer con él en la mano.",
            "Hace tres días estuve con ustedes y me lo llevé puesto.",
            "El lunes fui en persona a por él.",
            "Anteayer me atendió su cajero en el centro.",
            "Esta semana pasé por su mostrador y lo pagué.",
        ),
        "Luna": (
            "Hace tres días llegó el pedido que hice en la web.",
            "Acabo de recibir el paquete, comprado por internet.",
            "El lunes lo ordené desde el móvil.",
            "Anteayer usé su aplicación para comprarlo.",
            "Esta semana lo encargué en línea.",
            "Ayer hice clic en su página y lo pedí.",
        ),
        "Mar": (
            "Se pagó en 2021.",
            "Lo uso desde hace ocho meses.",
            "Me acompaña desde hace mucho, casi un año.",
            "Ya lleva dos años conmigo.",
            "Tiene tres inviernos encima.",
            "La compra fue el verano pasado.",
        ),
        "Río": (
            "Fue un regalo.",
            "Nos lo dieron mis suegros por Navidad.",
            "No lo pagué yo: es un obsequio.",
            "Vino de un amigo, como presente de boda.",
            "Mis padres me han sorprendido con él.",
            "Mi tía lo envolvió para mi cumpleaños.",
        ),
    },
    (
        "Comprado hace poco en persona, en la tienda o el local: la etiqueta es Sol.",
        "Pedido hace poco por internet, web, aplicación o móvil: la etiqueta es Luna.",
        "Comprado hace meses o años: la etiqueta es Mar.",
        "Recibido como regalo: la etiqueta es Río.",
    ),
)

学校 = house(
    "zh-xuexiao",
    "五个组,按来信人分",
    (
        "我想问一下食堂的事。",
        "这是关于宿舍的问题。",
        "我要说的是考试安排。",
        "事情和图书馆有关。",
        "想了解一下停车的事。",
        "我来信是为了校服。",
        "我有个关于校车的问题。",
        "是关于运动会的。",
        "想问问学费的事。",
        "这次说的是网络问题。",
        "我要问课程表。",
        "和体检有关。",
        "关于钥匙的事想请教。",
        "我想谈谈暑假活动。",
        "是和证书有关的事。",
    ),
    {
        "甲组": (
            "我是高一的学生。",
            "我在三班读书。",
            "作为在校生,我写信给你们。",
            "我今年刚入学。",
            "我是住校的学生。",
            "我在这里上二年级。",
        ),
        "乙组": (
            "我的孩子在你们学校上学。",
            "我是一名家长。",
            "女儿在二班,我是她母亲。",
            "作为学生的父亲,我写信来。",
            "我儿子今年上三年级。",
            "我是孩子的爷爷,接送他上学。",
        ),
        "丙组": (
            "我在这里教数学。",
            "我是新来的英语老师。",
            "作为班主任,我写信来。",
            "我负责教音乐课。",
            "我是体育教研组的教师。",
            "我在本校任教十年了。",
        ),
        "丁组": (
            "我去年从这里毕业。",
            "我是十年前的校友。",
            "我早已离校工作了。",
            "毕业后我一直在外地。",
            "我曾在这里读书,现在上大学。",
            "作为老毕业生,我写信来。",
        ),
        "戊组": (
            "我们公司给学校供货。",
            "我是附近的居民。",
            "我是报社的记者。",
            "我们是一家装修公司。",
            "我在旁边开了一家店。",
            "我代表街道办事处来信。",
        ),
    },
    (
        "写信人是在校学生:标签是甲组。",
        "写信人是家长(父母、祖父母):标签是乙组。",
        "写信人是老师:标签是丙组。",
        "写信人是已经毕业的校友:标签是丁组。",
        "写信人是校外的人或公司:标签是戊组。",
    ),
)

FAMILIES = (HOTEL, STADTWERKE, TIENDA, 学校)
