from turnlog.adapters.scripted.prompt import render, word_ids
from turnlog.domain.messages import Message


def test_a_prompt_and_its_answer_are_the_beginning_of_the_next_prompt() -> None:
    asked = [Message("system", "be brief"), Message("user", "how are you?")]
    answer = "very well"

    prompt = render(asked, {})
    following = render([*asked, Message("assistant", answer), Message("user", "good")], {})

    known = prompt.ids + word_ids(answer)
    assert following.ids[: len(known)] == known


def test_a_message_is_a_marker_and_its_words() -> None:
    prompt = render([Message("user", "  one\n two one")], {})

    _, one, two, again, _ = prompt.ids
    assert (one, two, again) == word_ids("one two one")
    assert one == again != two


def test_no_word_is_a_marker() -> None:
    markers = {render([Message(role, "")], {}).ids[0] for role in ("system", "user", "assistant", "tool")}

    assert len(markers) == 4
    assert all(marker >= 2**31 > max(word_ids("system <|user|> tool")) for marker in markers)


def test_recorded_ids_stand_in_for_the_words_of_a_message() -> None:
    prompt = render(
        [Message("user", "hi"), Message("assistant", "hello"), Message("user", "bye")], {1: (7, 8)}
    )

    assert prompt.ids[3:5] == (7, 8)


def test_the_last_text_is_that_of_a_user_or_a_tool() -> None:
    asked = render([Message("user", "add"), Message("assistant", "calling")], {})
    answered = render([Message("user", "add"), Message("tool", "42"), Message("system", "brief")], {})
    silent = render([Message("system", "brief")], {})

    assert [asked.last_text, answered.last_text, silent.last_text] == ["add", "42", ""]
