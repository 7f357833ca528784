"""The tokenizer file, the fast path of training and the pilot's ids agree."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoTokenizer

from hermes_like.sprites.tokenizer import (
    ASSISTANT_ID,
    BOS_ID,
    TOKENS_PER_FRAME,
    UNK_ID,
    USER_ID,
    VIDEO_ID,
    VOCABULARY_SIZE,
    encode_words,
    prompt_text,
    save_tokenizer,
    template_words,
    vocabulary,
)


def test_the_saved_tokenizer_encodes_like_training(tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    question = "how many crosses were there ?"
    ids = tokenizer(prompt_text(question, 3), add_special_tokens=False).input_ids
    num_video = 3 * TOKENS_PER_FRAME + 1
    expected = [BOS_ID, *[VIDEO_ID] * num_video, USER_ID, *encode_words(question), ASSISTANT_ID]
    assert ids == expected
    spoken = tokenizer("What COLOR was the star?", add_special_tokens=False).input_ids
    assert spoken == encode_words("what color was the star ?")
    assert tokenizer("zebra", add_special_tokens=False).input_ids == [UNK_ID]


def test_special_tokens_have_their_roles(tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 0)
    assert tokenizer.decode([BOS_ID, *encode_words("red star")], skip_special_tokens=True) == (
        "red star"
    )


def test_ids_are_those_of_the_pilot() -> None:
    words = vocabulary()
    assert len(words) <= VOCABULARY_SIZE
    assert list(words.values()) == list(range(len(words)))
    known = {"<video>": 4, "?": 8, "nothing": 11, "star": 19, "red": 36, "left": 44, "since": 164}
    assert {word: words[word] for word in known} == known
    assert template_words() <= set(words)
