"""Words that tell the present from the past, and questions that need the whole past.

Each language is judged by its own words only: German "was" and "war" are English words too. The
module knows no times; a time expression is cut out before it is asked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

from hermes_like.retrieval.languages import Language

ScanKind = Literal["count", "when", "list", "exists"]
Edge = Literal["start", "end"]


@dataclass(frozen=True, slots=True)
class CueTable:
    """Patterns of one language, over folded text.

    Attributes:
        now: Words for the present moment.
        present: Verbs and words that usually speak of what is seen now.
        past: Words that speak of the past; they win over the present.
        accented: The same where accents decide ("pasó"), over lower-case text with accents.
        scans: Patterns of questions that need the whole past, in the order of asking.
        start, end: Words for the first and the last of all.
    """

    now: str
    present: str
    past: str
    accented: str
    scans: tuple[tuple[ScanKind, str], ...]
    start: str
    end: str


#: Never matches.
_NOTHING: Final = r"(?!)"

_TABLES: Final[dict[Language, CueTable]] = {
    "en": CueTable(
        now=r"\b(?:now|currently|current|presently|at (?:the|this) (?:very )?(?:moment|instant)"
        r"|at present|(?:in )?this (?:moment|instant)|live)\b",
        present=r"\b(?:is|are|am|isn't|aren't|does|doesn't|visible|(?:what|who|where|there|it)'s"
        r"|(?:do|can) (?:you|i|we) see)\b|\A\W*describe\b",
        past=r"\b(?:was|were|wasn't|weren't|did|didn't|had|been|came|went|saw|seen|appeared"
        r"|disappeared|happened|followed|preceded|showed|carried|entered|arrived|passed|left the"
        r"|took|fell|ran|drove|stood|before|after|earlier|previous(?:ly)?|ago|ever|first|last"
        r"|since|so far|(?:until|till|up to|by) now)\b|\A\W*(?:has|have)\b"
        r"|\b(?:has|have|'ve)\s(?:\w+\s)?(?:gone|come|left|changed|moved|stopped|started|done)\b",
        accented=_NOTHING,
        scans=(
            (
                "when",
                r"\A\W*(?:(?:and|so|since|until|exactly|on) )*when\b"
                r"|\b(?:at )?what times?\b(?! is it)|\b(?:since|until) when\b"
                r"|\bhow long (?:ago|was|were|did|has|have|had)\b|\bon (?:what|which) days?\b",
            ),
            (
                "count",
                r"\bhow (?:many|often|frequently)\b|\A\W*(?:please )?count\b"
                r"|\b(?:total )?number of times\b|\btotal number of\b",
            ),
            (
                "list",
                r"\A\W*(?:please )?(?:list|enumerate|name (?:all|every)|find (?:all|every)"
                r"|show (?:me )?(?:all|every))\b|\b(?:every|each) time\b|\ball (?:the )?times\b"
                r"|\ball (?:the )?(?:occurrences|moments)\b",
            ),
            (
                "exists",
                r"\A\W*(?:was|were|wasn't|weren't|has|have|had|did|didn't) (?:"
                r"(?:there|any\w*|some\w*|an?|one|nobody|no one)\b"
                r"|(?:you|i|we) (?:(?:ever|also|already) )?(?:see|seen|notice\w*|spot\w*)\b"
                r"(?! (?:what|who|where|how|which|when|why)\b))|\bever\b",
            ),
        ),
        start=r"\bfirst\b",
        end=r"\b(?:last|latest|most recent(?:ly)?)\b",
    ),
    "de": CueTable(
        now=r"\b(?:jetzt|gerade|momentan|derzeit|aktuell\w*|gegenwartig\w*|zur ?zeit|live"
        r"|(?:im|in diesem) (?:moment|augenblick))\b",
        present=r"\b(?:ist|sind|bist|siehst|sieht|seht|sehen|sichtbar|gibt es|steht|stehen|liegt"
        r"|liegen|tragt|tragen|halt|hat|haben|macht|passiert|geschieht)\b|\A\W*beschreib",
        past=r"\b(?:war|waren|wurden?|hatten?|gab|kam|kamen|ging|gingen|erschien|erschienen|tauchten?"
        r"|passierte|geschah|zeigten?|trug|trugen|sah|sahen|stand|standen|lag|lagen|fuhr|fuhren"
        r"|lief|liefen|machte|folgte|gesehen|gewesen|vorher|vorhin|zuvor|davor|danach|fruher"
        r"|zuerst|zuletzt|als (?:erstes|letztes)|bisher|bislang|bis jetzt|nach de[mnr]|jemals"
        r"|schon (?:ein)?mal|letzte[rsmn]?|erste[rsmn]?)\b"
        r"|\b(?:ist|sind)\b[^?]{1,60}\b(?:passiert|geschehen|\w{0,8}gekommen|\w{0,8}gegangen"
        r"|\w{0,8}gefahren|\w{0,8}gelaufen|erschienen|aufgetaucht|verschwunden|gefallen|worden)\b"
        r"|\b(?:hat|hast|haben|habt)\b[^?]{1,60}"
        r"\b(?!gelb|gegen|gerad|gesicht|gewicht|gestreift)"
        r"(?:\w{0,6}ge\w{2,}(?:t|en)|\w{3,}iert|verlassen|betreten)\b",
        accented=_NOTHING,
        scans=(
            (
                "when",
                r"\bwann\b|\bum wie ?viel uhr\b|\bwie lange\b|\bzu welche[rn] (?:uhr)?zeit",
            ),
            (
                "count",
                r"\bwie ?viele?\b(?! uhr)|\bwie (?:oft|haufig)\b|\A\W*(?:bitte )?zahle?\b"
                r"|\banzahl de[rs]\b",
            ),
            (
                "list",
                r"\A\W*(?:bitte )?(?:liste|nenne? (?:mir )?alle|zeige? (?:mir )?alle"
                r"|finde? alle)\b|\bjedes mal\b|\balle (?:male|momente|zeitpunkte)\b",
            ),
            (
                "exists",
                r"\A\W*(?:gab es|(?:war|waren|ist|sind|hat|haben|wurden?|kam|erschien|tauchte)"
                r" (?:da |dort |hier )?(?:jemals |je |schon )?(?:eine?[rsmn]?\b|jemand|etwas|irgend"
                r"|was\b)|hat es\b|(?:hast|haben|habt) (?:du|sie|ihr)\b)|\bjemals\b",
            ),
        ),
        start=r"\b(?:zuerst|als erstes|erste[rsmn]?)\b",
        end=r"\b(?:zuletzt|als letztes|letzte[rsmn]?|neueste[rsmn]?)\b",
    ),
    "es": CueTable(
        now=r"\b(?:ahora|actualmente|actual|en este (?:mismo )?(?:momento|instante)|en vivo)\b",
        present=r"\b(?:es|son|esta|estan|hay|ves|ve|veis|visibles?|tiene|tienen|lleva|llevan"
        r"|aparece|pasa|ocurre)\b|\A\W*describ",
        past=r"\b(?:era|eran|fue|fueron|estuvo|estuvieron|hubo|viste|vio|vieron|visto|vino|vinieron"
        r"|hizo|hicieron|dijo|tuvo|habia|habian|tenia|tenian|hacia|veia|llovia|hab?ido|ha \w+[dt]o"
        r"|han \w+[dt]o|aparecio|antes|despues|primer[oa]?|ultim[oa]|hasta ahora|alguna vez"
        r"|ya no)\b",
        accented=r"\b\w{2,}(?:ó|aron|ieron|aba|aban|ían)\b",
        scans=(
            (
                "when",
                r"\A\W*(?:(?:y|desde|hasta) )?cuando\b|\b(?:desde|hasta) cuando\b"
                r"|\ba que horas?\b|\bcuanto tiempo\b",
            ),
            (
                "count",
                r"\bcuant[oa]s\b|\bcada cuanto\b|\bcon que frecuencia\b|\A\W*cuenta\b"
                r"|\bnumero de veces\b",
            ),
            (
                "list",
                r"\A\W*(?:lista|enumera|(?:muestra(?:me)?|nombra|dime|encuentra) tod[oa]s)\b"
                r"|\bcada vez\b|\btod[oa]s l[oa]s (?:veces|momentos)\b",
            ),
            (
                "exists",
                r"\A\W*(?:hubo|habia|ha habido|(?:has|habeis|ha|han) visto|viste|visteis"
                r"|(?:aparecio|vino|entro|paso|llego|estuvo|se vio) (?:alg|un)"
                r"|ha (?:aparecido|venido|entrado|pasado|llegado) (?:alg|un))|\balguna vez\b",
            ),
        ),
        start=r"\bprimer[oa]?s?\b",
        end=r"\bultim[oa]s?\b",
    ),
    "fr": CueTable(
        now=r"\b(?:maintenant|actuellement|actuel\w*|en ce moment|en direct|a present)\b"
        r"|\ba (?:l'|cet )instant\b",
        present=r"\b(?:est|sont|y a|vois|voit|voyez|visibles?|porte|portent|passe|fait|font"
        r"|tient)\b|\A\W*decri",
        past=r"\b(?:etait|etaient|fut|ete|vus?|vues?|eu|apparus?|disparus?|venue?s?|sorti\w*|suivi"
        r"|avait|avaient|avant|apres|auparavant|d'abord|premi[a-z]+|derni[a-z]+"
        r"|tout a l'heure|jusqu'(?:a present|ici|a maintenant)|deja)\b",
        accented=r"\b(?:\w{2,}aient|(?!(?:fait|lait|trait|parfait|portrait|extrait|souhait|connait"
        r"|paraît|plait)\b)\w{2,}ait|(?:est|sont|a|ont|as|avez|s'est)"
        r"(?:[- ](?:t-)?(?:il|elle|on|tu|vous|ils|elles))? ?(?:\w+ )?(?:arrivé|entré|passé|montré"
        r"|tombé|porté|suivi|parti|allé|resté)e?s?)\b",
        scans=(
            (
                "when",
                r"\A\W*(?:et )?(?:depuis |jusqu'a )?quand\b|\bdepuis quand\b|\ba quelles? heures?\b"
                r"|\bcombien de temps\b|\ba quel moment\b",
            ),
            (
                "count",
                r"\bcombien\b|\ba quelle frequence\b|\A\W*compte[rz]?\b|\bnombre de fois\b",
            ),
            (
                "list",
                r"\A\W*(?:liste|enumere|(?:nomme|cite|trouve|montre(?:-moi)?) (?:tous|toutes))\b"
                r"|\bchaque fois\b|\btou(?:te)?s les (?:fois|moments)\b",
            ),
            (
                "exists",
                r"\A\W*(?:y a[- ]t[- ]il eu|y avait[- ]il|il y (?:a eu|avait)|est-ce qu'il y"
                r" (?:a eu|avait)|(?:as|avez)[- ](?:tu|vous) (?:deja )?vu"
                r"|est-ce que (?:tu as|vous avez) (?:deja )?vu|a[- ]t[- ]on vu"
                r"|(?:est-ce que )?quelqu'un (?:est|a)\b|est-ce qu'une? )|\bjamais\b",
            ),
        ),
        start=r"\b(?:d'abord|premi[a-z]+)\b",
        end=r"\bderni[a-z]+\b",
    ),
}


@dataclass(frozen=True, slots=True)
class Cues:
    """What the words of a question tell; each field is the words found, or empty.

    Attributes:
        now: Words for the present moment.
        present: Those, or a verb in the present.
        past: Words about the past.
        scan: What makes it a question about the whole past.
        scan_kind: Which kind; None if ``scan`` is empty.
        edge: Whether it asks for the first or the last of all.
    """

    now: str
    present: str
    past: str
    scan: str
    scan_kind: ScanKind | None
    edge: Edge | None


def find_cues(text: str, folded: str, language: Language) -> Cues:
    """Look for cues in a question.

    Args:
        text: The question without its time expression, normalised.
        folded: The same folded.
        language: Its language.
    """
    patterns = _compiled(language)
    now, present = _found(patterns["now"], folded), _found(patterns["present"], folded)
    past = _found(patterns["past"], folded) or _found(patterns["accented"], text.lower())
    kind: ScanKind | None = None
    scan = ""
    for name, _ in _TABLES[language].scans:
        scan = _found(patterns[name], folded)
        if scan:
            kind = name
            break
    has_start, has_end = (_found(patterns[edge], folded) for edge in ("start", "end"))
    edge: Edge | None = None
    if bool(has_start) != bool(has_end):
        edge = "start" if has_start else "end"
    return Cues(now, now or present, past, scan, kind, edge)


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[0].strip(" ¿¡") if match else ""


@cache
def _compiled(language: Language) -> dict[str, re.Pattern[str]]:
    table = _TABLES[language]
    names = ("now", "present", "past", "accented", "start", "end")
    patterns: dict[str, str] = {name: getattr(table, name) for name in names}
    patterns.update(table.scans)
    return {name: re.compile(pattern) for name, pattern in patterns.items()}
