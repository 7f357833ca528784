"""Which option a reply names: canned replies against the sane rule and the published ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_like.evaluation.scoring import letters, words

OPTIONS = ("a cup", "two", "the red hat", "nobody")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("B", "B"),
        ("c", "C"),
        ("A.", "A"),
        ("(B)", "B"),
        ("(B) Two", "B"),
        ("[d]", "D"),
        ("B. Two", "B"),
        ("B) two", "B"),
        ("b) two", "B"),
        ("C: the red hat", "C"),
        ("**D**", "D"),
        ("**Answer:** C", "C"),
        ("Answer: C", "C"),
        ("The answer is B", "B"),
        ("The correct option is (C).", "C"),
        ("Best option: (B", "B"),
        ("I would pick choice D, since nobody else is there", "D"),
        ("Option A is wrong, so the answer is C", "C"),
        ("<think>A? B? The answer is A</think>B", "B"),
        ("so A, or B ...</think>\nC", "C"),
        ("<think>it is A", None),
        ("the red hat", "C"),
        ("It is the red hat.", "C"),
        ("TWO", "B"),
        ("B because it is round", "B"),
        ("I think it is D", "D"),
        ("D\nThe man walks away.", "D"),
        ("Based on the video, it is unclear", None),
        ("A man is walking", None),
        ("The person C opens the door", None),
        ("C opens the drawer", None),
        ("The answer is A man", None),
        ("E", None),
        ("Answer: E", None),
        ("", None),
        ("   ", None),
        ("A or B", None),
        ("a cup or two", None),
        ("I do not know", None),
        ("Because", None),
        ("Both A and C.", None),
    ],
)
def test_strict(reply: str, expected: str | None) -> None:
    index = letters.strict(reply, OPTIONS)
    assert (None if index is None else "ABCD"[index]) == expected


def test_strict_without_a_reply_and_with_options_within_options() -> None:
    assert letters.strict(None, OPTIONS) is None
    assert letters.strict("the black cat", ("cat", "black cat", "dog")) == 1
    assert letters.strict("12", ("2", "12")) == 1
    assert letters.strict("C cooks.", ("C cleans.", "C cooks.")) == 1


@given(st.text(max_size=40))
def test_strict_never_guesses_beyond_the_options(reply: str) -> None:
    index = letters.strict(reply, ("yes", "no"))
    assert index in (None, 0, 1)
    assert index == letters.strict(reply, ("yes", "no"))


@pytest.mark.parametrize(
    ("parser", "reply", "expected"),
    [
        (letters.first_character, "B. two", 1),
        (letters.first_character, " B", None),
        (letters.first_character, "Because", 1),
        (letters.first_character, "Answer: C", 0),
        (letters.before_bracket, "C) the red hat", 2),
        (letters.before_bracket, "C", 2),
        (letters.before_bracket, "(C) the red hat", None),
        (letters.last_before_bracket, "Best option: (C) the", 2),
        (letters.last_before_bracket, "Based on", 1),
        (letters.first_capital, "Based on the video: C", 1),
        (letters.first_capital, "The best answer is C", 2),
        (letters.first_capital, "c", None),
        (letters.lone_letter, "it is a hat, so c", 0),
        (letters.lone_letter, "c. the red hat", 2),
        (letters.lone_letter, "hat", None),
    ],
)
def test_published_rules_with_their_faults(
    parser: letters.Parser, reply: str, expected: int | None
) -> None:
    assert parser(reply, OPTIONS) == expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Yes", "yes"),
        ("no.", "no"),
        ("**Yes**, it is", "yes"),
        ("Yes, there is no dog", "yes"),
        ("I say yes", "yes"),
        ("not now", None),
        ("either yes or no", None),
        ("", None),
        (None, None),
        ("<think>no</think>yes", "yes"),
    ],
)
def test_yes_no(reply: str | None, expected: str | None) -> None:
    assert words.yes_no(reply) == expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("3", 3),
        ("He jumps 3 times.", 3),
        ("three times", 3),
        ("12", 12),
        ("1 or 2", None),
        ("3.5", None),
        ("none", None),
        ("2, so 2", 2),
        (None, None),
    ],
)
def test_number(reply: str | None, expected: int | None) -> None:
    assert words.number(reply) == expected


def test_likeness_of_words() -> None:
    assert words.exact_match("The red car.", "red car")
    assert not words.exact_match(None, "red car")
    assert words.token_f1("a red car", "the red bus") == pytest.approx(0.5)
    assert words.token_f1("blue", "red") == words.token_f1(None, "red") == 0
