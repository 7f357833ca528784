"""The time words of four languages, as data.

What a phrase means for a stream is decided in ``time_ranges.py``; ``time_grammar.py`` makes
patterns of these tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hermes_like.retrieval.languages import Language


@dataclass(frozen=True, slots=True)
class TimeTable:
    """Time words of one language, all folded. Patterns are regular expressions.

    In patterns, ``{dur}`` stands for a duration ("10 minutes"), ``{span}`` for one whose number
    may be missing ("hour"), ``{n}`` for its number where that stands apart ("les 10 dernières
    minutes"), ``{a}`` and ``{b}`` for moments ("14:05", "90 s").

    Attributes:
        numbers: Number words.
        units: Pattern of a unit to its seconds.
        counted: Second, minute and hour as in "minute 3".
        oclock: What follows the number of a full hour ("Uhr"); such an hour is never doubled.
        noon, midnight: Names of moments.
        ago, last, first, begin, end, between, since, before, after, at, later: Patterns of
            expressions.
        marker: What says that a time is stream time ("of the video").
        since_word: What may stand before a day ("since yesterday").
        days: Pattern of a day to its distance from today in days.
        weekdays: Names from Monday on.
        weekday: Pattern around a weekday; ``{day}`` is its name.
        previous: What makes a weekday the one of an earlier week than today.
        parts: Pattern of a part of the day to its name.
        months: Names and short names from January on.
        is_doubled: Whether "at 9" may mean the evening.
    """

    numbers: dict[str, float]
    units: dict[str, float]
    counted: tuple[str, str, str]
    oclock: str
    noon: str
    midnight: str
    ago: str
    last: str
    first: str
    begin: str
    end: str
    between: str
    since: str
    since_word: str
    before: str
    after: str
    at: str
    later: str
    marker: str
    days: dict[str, int]
    weekdays: tuple[str, ...]
    weekday: str
    previous: str
    parts: dict[str, str]
    months: tuple[str, ...]
    is_doubled: bool


def _numbers(words: str) -> dict[str, float]:
    """ "one 1 two 2" as a table; underscores stand for spaces."""
    items = words.split()
    pairs = zip(items[::2], items[1::2], strict=True)
    return {word.replace("_", " "): float(value) for word, value in pairs}


def _names(words: str) -> tuple[str, ...]:
    return tuple(words.split())


TABLES: Final[dict[Language, TimeTable]] = {
    "en": TimeTable(
        numbers=_numbers(
            "half_an .5 half_a .5 a_quarter_of_an .25 a_couple_of 2 a_few 3 a 1 an 1 one 1 two 2 "
            "three 3 four 4 five 5 six 6 seven 7 eight 8 nine 9 ten 10 eleven 11 twelve 12 "
            "fifteen 15 twenty 20 thirty 30 forty 40 forty-five 45 fifty 50 sixty 60 ninety 90"
        ),
        units={
            r"s|secs?|seconds?": 1,
            r"mins?|minutes?": 60,
            r"h|hrs?|hours?": 3600,
            r"days?": 86400,
            r"weeks?": 604800,
            r"months?": 2592000,
        },
        counted=("second", "minute", "hour"),
        oclock=r"o'?clock",
        noon="noon|midday",
        midnight="midnight",
        ago=r"(?:about |around |some )?{dur} (?:ago|earlier|before now)",
        last=r"(?:(?:in|during|within|over|for) )?(?:the |these )?(?:last|past|previous) {span}",
        first=r"(?:(?:in|during|within|over|for) )?the first {span}",
        begin=r"(?:at|in|from) the (?:very )?(?:beginning|start)(?! of (?!the (?:stream|video)))",
        end=r"(?:at|near) the (?:very )?end of the (?:stream|video|recording)",
        between=r"(?:between {a} and {b}|from {a} (?:to|until|till|through|-) {b})",
        since=r"since {a}",
        since_word="since",
        before=r"(?:before|until|till|up to) {a}",
        after=r"after {a}",
        at=r"(?:(?:at|around|about|by) (?:about |around |exactly )?|in (?=minute|second|hour))"
        r"(?:t ?= ?)?{a}|{a}(?= into )",
        later=r"in {dur}",
        marker=r"(?:of|in|into|on|from) (?:the )?(?:streams?|video|recording|footage|clip)"
        r"(?: (?:clock|time))?|(?:of )?stream time",
        days={
            r"(?:the )?day before yesterday": -2,
            "yesterday": -1,
            "today": 0,
            "tomorrow": 1,
        },
        weekdays=("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
        weekday=r"(?:on )?(?:last |this |previous )?{day}",
        previous=r"\b(?:last|previous)\b",
        parts={
            r"last night": "last night",
            r"(?:this|in the|during the) (?:early )?morning|(?<=day )morning": "morning",
            r"(?:this|in the|during the) afternoon|(?<=day )afternoon": "afternoon",
            r"(?:this|in the|during the) evening|tonight|(?<=day )evening": "evening",
            r"(?:at|during the|in the) night|(?<=day )night": "night",
        },
        months=_names(
            "january|jan february|feb march|mar april|apr may june|jun july|jul august|aug "
            "september|sept|sep october|oct november|nov december|dec"
        ),
        is_doubled=True,
    ),
    "de": TimeTable(
        numbers=_numbers(
            "einer_halben .5 halben .5 anderthalb 1.5 ein_paar 3 einigen 3 "
            "wenigen 3 ein 1 eine 1 einer 1 einem 1 einen 1 eins 1 zwei 2 drei 3 vier 4 funf 5 "
            "fuenf 5 sechs 6 sieben 7 acht 8 neun 9 zehn 10 elf 11 zwolf 12 zwoelf 12 funfzehn 15 "
            "zwanzig 20 dreißig 30 dreissig 30 vierzig 40 funfzig 50 sechzig 60 neunzig 90"
        ),
        units={
            r"s|sek|sekunden?": 1,
            r"min|minuten?": 60,
            r"viertelstunden?": 900,
            r"h|std|stunden?": 3600,
            r"tage?n?": 86400,
            r"wochen?": 604800,
            r"monate?n?": 2592000,
        },
        counted=("sekunde", "minute", "stunde"),
        oclock="uhr",
        noon="mittags?",
        midnight="mitternacht",
        ago=r"vor (?:etwa |ungefahr |ca\.? )?{dur}",
        last=r"(?:(?:in|wahrend|innerhalb|im) )?(?:de[nrms] |die |das )?"
        r"(?:letzte[nrms]?|vergangene[nrms]?) {span}",
        first=r"(?:(?:in|wahrend|innerhalb) )?(?:de[nrms]|die) erste[nrms]? {span}",
        begin=r"(?:(?:ganz )?am anfang|zu beginn)(?! de[rs] (?!streams?|videos?|aufnahme))",
        end=r"am ende de[rs] (?:streams|videos|aufnahme)",
        between=r"(?:zwischen {a} und {b}|von {a} bis {b})",
        since=r"seit {a}",
        since_word="seit",
        before=r"(?:vor|bis(?: um)?) {a}",
        after=r"(?:nach|ab) {a}",
        at=r"(?:(?:um|gegen|bei)(?: etwa| genau)? |in (?=minute|sekunde|stunde)){a}",
        later=r"in {dur}",
        marker=r"(?:des|im|in der|in dem|vom) (?:streams?|videos?|aufnahme)|streamzeit",
        days={
            "vorgestern": -2,
            "gestern": -1,
            "heute": 0,
            r"(?<!stern )(?<!heute )(?<!am )(?<!tag )(?<!jeden )(?<!diesen )morgen": 1,
        },
        weekdays=(
            "montag",
            "dienstag",
            "mittwoch",
            "donnerstag",
            "freitag",
            "samstag|sonnabend",
            "sonntag",
        ),
        weekday=r"(?:am )?(?:letzte[nr] |vorige[nr] |diese[nr] )?{day}",
        previous=r"\b(?:letzt|vorig)",
        parts={
            r"(?:in der )?(?:letzten|letzte|vergangenen) nacht": "last night",
            r"(?<=stern )(?:morgen|fruh)|(?<=heute )(?:morgen|fruh)|(?<=tag )(?:morgen|fruh)"
            r"|morgens|(?:am|diesen) morgen|(?:am )?vormittags?": "morning",
            r"(?:am )?nachmittags?": "afternoon",
            r"(?:am )?abends?": "evening",
            r"nachts|in der nacht|(?<=stern )nacht|(?<=heute )nacht": "night",
        },
        months=_names(
            "januar|jan februar|feb marz|maerz april|apr mai juni|jun juli|jul august|aug "
            "september|sept|sep oktober|okt november|nov dezember|dez"
        ),
        is_doubled=False,
    ),
    "es": TimeTable(
        numbers=_numbers(
            "media .5 un_cuarto_de .25 un_par_de 2 unos 3 unas 3 un 1 una 1 uno 1 dos 2 tres 3 "
            "cuatro 4 cinco 5 seis 6 siete 7 ocho 8 nueve 9 diez 10 once 11 doce 12 quince 15 "
            "veinte 20 treinta 30 cuarenta 40 cincuenta 50 sesenta 60 noventa 90"
        ),
        units={
            r"s|seg|segundos?": 1,
            r"min|minutos?": 60,
            r"h|horas?": 3600,
            r"dias?": 86400,
            r"semanas?": 604800,
            r"mes(?:es)?": 2592000,
        },
        counted=("segundo", "minuto", "hora"),
        oclock="h|hs|horas",
        noon="(?:el )?mediodia",
        midnight="(?:la )?medianoche",
        ago=r"(?<!desde )hace (?:casi )?{dur}",
        last=r"(?:(?:en|durante) )?(?:el |las? |los )?"
        r"(?:(?:{n} )?ultim[oa]s? {span}|{span} pasad[oa]s?)",
        first=r"(?:(?:en|durante) )?(?:el |las? |los )(?:{n} )?primer[oa]?s? {span}",
        begin=r"(?:al|en el) (?:principio|comienzo|inicio)(?! del (?!video|directo|stream))",
        end=r"al final del (?:video|directo|stream)",
        between=r"(?:entre (?:las? |los )?{a} y (?:las? |los )?{b}"
        r"|(?:de|desde) (?:las? |los )?{a} (?:a|hasta) (?:las? |los )?{b})",
        since=r"desde (?:hace |las? |los |el )?{a}",
        since_word="desde",
        before=r"(?:antes de|hasta) (?:las? |los |el )?{a}",
        after=r"(?:despues de|a partir de|tras) (?:las? |los |el )?{a}",
        at=r"(?:(?:a|en|sobre|hacia) (?:las? |los |el )|al? ){a}",
        later=r"(?:dentro de|en) {dur}",
        marker=r"(?:del|de la|en el|en la) (?:video|directo|stream|transmision|grabacion)",
        days={
            r"anteayer|antes de ayer|antier": -2,
            "ayer": -1,
            "hoy": 0,
            r"(?<!la )(?<!esta )(?<!ayer )manana": 1,
        },
        weekdays=("lunes", "martes", "miercoles", "jueves", "viernes", "sabado", "domingo"),
        weekday=r"(?:(?:el|este) )?(?:pasado )?{day}(?: pasado)?",
        previous=r"\bpasado\b",
        parts={
            r"anoche": "last night",
            r"(?:por|en|de|durante) la manana|esta manana|(?<=ayer )manana": "morning",
            r"(?:(?:por|en|de|durante) la|esta) tarde": "afternoon",
            r"(?:(?:por|en|de|durante) la|esta) noche": "evening",
            r"(?:por|en|de|durante) la madrugada": "night",
        },
        months=_names(
            "enero febrero marzo abril mayo junio julio agosto septiembre|setiembre octubre "
            "noviembre diciembre"
        ),
        is_doubled=True,
    ),
    "fr": TimeTable(
        numbers=_numbers(
            "une_demi .5 un_quart_d' .25 quelques 3 un 1 une 1 deux 2 trois 3 "
            "quatre 4 cinq 5 six 6 sept 7 huit 8 neuf 9 dix 10 onze 11 douze 12 quinze 15 "
            "vingt 20 trente 30 quarante 40 cinquante 50 soixante 60 quatre-vingt-dix 90"
        ),
        units={
            r"s|sec|secondes?": 1,
            r"min|minutes?": 60,
            r"h|heures?": 3600,
            r"jours?": 86400,
            r"semaines?": 604800,
            r"mois": 2592000,
        },
        counted=("seconde", "minute", "heure"),
        oclock="h|heures?",
        noon="midi",
        midnight="minuit",
        ago=r"il y a (?:environ )?{dur}",
        last=r"(?:(?:dans|pendant|durant|au cours de|ces) )?(?:les? |la |l')?"
        r"(?:(?:{n} )?derni[a-z]+ {span}|{span} (?:derni[a-z]+|passe[a-z]*))",
        first=r"(?:(?:dans|pendant|durant|au cours de) )?(?:les? |la )(?:{n} )?premi[a-z]+ {span}",
        begin=r"(?:au|des le) (?:tout )?debut(?! (?:du|de) (?!flux|la video|stream))",
        end=r"a la fin (?:du|de la) (?:flux|video|stream)",
        between=r"(?:entre {a} et {b}|(?:de|depuis) {a} (?:a|jusqu'a) {b})",
        since=r"depuis {a}",
        since_word="depuis",
        before=r"(?:avant|jusqu'a) {a}",
        after=r"(?:apres|a partir de) {a}",
        at=r"(?:a|vers|autour de) (?:environ |la )?{a}",
        later=r"dans {dur}",
        marker=r"(?:du|de la|dans le|dans la) (?:flux|video|stream|direct)",
        days={"avant-hier": -2, "hier": -1, "aujourd'hui": 0, "demain": 1},
        weekdays=("lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi", "dimanche"),
        weekday=r"(?:(?:le|ce) )?{day}(?: dernier)?",
        previous=r"\bdernier\b",
        parts={
            r"(?:la )?nuit derniere|(?<=hier )dans la nuit": "last night",
            r"ce matin|(?:le|du|dans la) matin(?:ee)?|(?<=hier )matin|(?<=di )matin": "morning",
            r"(?:cet |l'|de l'|dans l')apres-midi|(?<=hier )apres-midi|(?<=di )apres-midi": (
                "afternoon"
            ),
            r"ce soir|(?:le|du|en) soir(?:ee)?|(?<=hier )soir|(?<=di )soir": "evening",
            r"cette nuit|(?:la|dans la|pendant la) nuit": "night",
        },
        months=_names(
            "janvier fevrier mars avril mai juin juillet aout septembre octobre novembre decembre"
        ),
        is_doubled=False,
    ),
}
