"""The wordings of the 25 question types, all from the tokenizer's fixed vocabulary."""

from __future__ import annotations

from typing import Final

TEMPLATES: Final[dict[str, tuple[str, ...]]] = {
    "now_what": (
        "what is visible now ?",
        "what do you see now ?",
        "what is on the screen now ?",
        "describe the current scene ?",
        "what is shown at this moment ?",
    ),
    "now_shape": (
        "what shape is visible now ?",
        "which shape is on the screen now ?",
        "what is the shape of the current object ?",
    ),
    "now_color": (
        "what color is visible now ?",
        "which color is on the screen now ?",
        "what is the color of the current object ?",
    ),
    "now_where": (
        "where is the object now ?",
        "in which zone is the current object ?",
        "where is it now ?",
    ),
    "now_number": (
        "which number is visible now ?",
        "what digit is on the screen now ?",
        "which number is on the current object ?",
        "what number do you see now ?",
    ),
    "now_color_of": (
        "what color is the {shape} now ?",
        "which color is the {shape} on the screen now ?",
        "what is the color of the {shape} now ?",
    ),
    "now_shape_at": (
        "what shape is on the {zone} now ?",
        "which shape is at the {zone} now ?",
        "which object is at the {zone} at this moment ?",
    ),
    "now_where_of": (
        "where is the {shape} now ?",
        "in which zone is the {shape} now ?",
        "where on the screen is the {shape} at this moment ?",
    ),
    "recall_color": (
        "what color was the {shape} ?",
        "which color was the {shape} ?",
        "what was the color of the {shape} ?",
        "which color did the {shape} have ?",
    ),
    "recall_shape": (
        "what shape was {color} ?",
        "which shape was {color} ?",
        "what was the shape of the {color} object ?",
        "which object was {color} ?",
    ),
    "recall_number": (
        "which number was on the {color} {shape} ?",
        "which number did the {color} {shape} carry ?",
        "what digit did the {color} {shape} show ?",
        "what number was on the {color} {shape} ?",
    ),
    "recall_number_of_shape": (
        "which number was on the {shape} ?",
        "which number did the {shape} carry ?",
        "what digit did the {shape} show ?",
        "what number was on the {shape} ?",
    ),
    "recall_where": (
        "where was the {color} {shape} ?",
        "in which zone was the {color} {shape} ?",
        "where did the {color} {shape} appear ?",
    ),
    "recall_where_of_shape": (
        "where was the {shape} ?",
        "in which zone was the {shape} ?",
        "where did the {shape} appear ?",
    ),
    "recall_object": (
        "which object carried number {digit} ?",
        "what object carried the number {digit} ?",
        "which object showed {digit} ?",
        "what had the number {digit} ?",
    ),
    "exists_pair": (
        "was there a {color} {shape} ?",
        "did a {color} {shape} appear ?",
        "have you seen a {color} {shape} ?",
        "did you see a {color} {shape} ?",
        "was a {color} {shape} shown ?",
    ),
    "exists_shape": (
        "was there a {shape} ?",
        "did a {shape} appear ?",
        "have you seen a {shape} ?",
    ),
    "exists_color": (
        "was there anything {color} ?",
        "did anything {color} appear ?",
        "have you seen anything {color} ?",
    ),
    "order_after": (
        "what came after the {color} {shape} ?",
        "what appeared after the {color} {shape} ?",
        "which object followed the {color} {shape} ?",
        "what was next after the {color} {shape} ?",
    ),
    "order_before": (
        "what came before the {color} {shape} ?",
        "what appeared before the {color} {shape} ?",
        "which object preceded the {color} {shape} ?",
    ),
    "order_first": (
        "what came first ?",
        "which object appeared first ?",
        "what was the first object ?",
    ),
    "order_last": (
        "what came last ?",
        "which object appeared last ?",
        "what was the last object ?",
    ),
    "order_which_first": (
        "did the {color} {shape} come before the {color2} {shape2} ?",
        "did the {color} {shape} appear before the {color2} {shape2} ?",
        "was the {color} {shape} shown before the {color2} {shape2} ?",
    ),
    "count_shape": (
        "how many {shapes} appeared ?",
        "how many {shapes} were there ?",
        "how many {shapes} did you see ?",
        "count the {shapes} ?",
    ),
    "count_color": (
        "how many {color} objects appeared ?",
        "how many {color} objects were there ?",
        "how many {color} objects did you see ?",
        "count the {color} objects ?",
    ),
}


def plural(word: str) -> str:
    """Return the plural of a shape: "star" -> "stars", "cross" -> "crosses"."""
    return word + ("es" if word.endswith("s") else "s")
