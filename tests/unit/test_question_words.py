"""Words that come from elsewhere are those of a question, or run nothing."""

import pytest

from arranger.web.questions import QUESTIONS, asked, question_of, with_manifests

GIVEN = {
    "explain": [("job", "a/b"), ("node", "n1")],
    "diff": [("a", "1"), ("b", "2")],
    "what-if": [("everyJob", "true"), ("without", "a/b"), ("without", "a/c"), ("until", "drained")],
    "forecast": [("job", "a/b"), ("job", "c/d")],
    "queue": [("name", "team")],
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_a_question_becomes_is_that_question(name: str) -> None:
    inquiry = asked(QUESTIONS[name], GIVEN.get(name, []), epoch=1, end=9, now_ms=1_000)
    assert question_of(inquiry.arguments) == name
    if inquiry.question.manifests:
        assert question_of(with_manifests(inquiry).arguments) == name


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["run", "--output=json", "--"],
        ["replay", "--"],
        ["replay", "--output=json", "--at=1"],
        ["replay", "--output=json", "--log=file", "--"],
        ["replay", "--output=json", "--at", "1", "--"],
        ["replay", "--output=json", "--", "word"],
        ["replay", "--output=json", "--at=x y z", "--"],
        ["replay", "--output=json", "--at=1", "--at=2", "--"],
        ["replay", "--output=json", "--with=-", "--"],
        ["what-if", "--output=json", "--with=file", "--"],
        ["what-if", "--output=json", "--every-job=true", "--"],
        ["explain", "--output=json", "--"],
        ["diff", "--output=json", "--", "1", "2", "3"],
        ["queue", "apply", "--output=json", "--"],
    ],
)
def test_other_words_are_no_question(words: list[str]) -> None:
    assert question_of(words) == ""
