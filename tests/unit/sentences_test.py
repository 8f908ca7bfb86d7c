#!/usr/bin/env python3
"""sentences_test.py: which sentences tools/support/sentences.py finds too long."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tools", "support"))
from sentences import problems_of  # noqa: E402


def words(count):
    return " ".join(["Word"] + ["word"] * (count - 1))


def found(text):
    return list(problems_of(text))


class Sentences(unittest.TestCase):
    def test_a_sentence_of_26_words_is_named_with_its_line_and_25_pass(self):
        self.assertEqual(found(f"# A page\n\n{words(25)}.\n"), [])
        (problem,) = found(f"# A page\n\n{words(26)}.\n")
        self.assertIn("line 3: 26 words", problem)

    def test_a_sentence_goes_on_over_lines_and_ends_at_its_stop(self):
        self.assertEqual(len(found(f"{words(13)}\n{words(13).lower()}.\n")), 1)
        self.assertEqual(found(f"{words(13)}. {words(13)}! (Or so.) `code` {words(20)}?\n"), [])

    def test_semicolons_and_colons_end_no_sentence(self):
        self.assertEqual(len(found(f"{words(13)}; {words(13)}.\n")), 1)
        self.assertEqual(len(found(f"{words(13)}: {words(13)}.\n")), 1)

    def test_items_of_a_list_are_apart_and_are_looked_at(self):
        self.assertEqual(found(f"{words(20)}\n* {words(20)}\n1. {words(20)}\n"), [])
        self.assertEqual(len(found(f"* {words(20)}\n  {words(20)}\n")), 1)

    def test_headings_tables_and_code_are_no_sentences(self):
        long = words(40)
        self.assertEqual(found(f"# {long}\n\n| {long} | b |\n\n```\n{long}\n```\n\n    {long}\n"), [])

    def test_code_in_backticks_is_one_word_and_an_address_is_none(self):
        self.assertEqual(found(f"{words(24)} `{words(9)}`.\n"), [])
        self.assertEqual(found(f"{words(24)} [word](docs/security.md#b).\n"), [])


if __name__ == "__main__":
    unittest.main()
