#!/usr/bin/env python3
"""words_test.py: which retired words and missing documents tools/support/words.py finds."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tools", "support"))
from words import problems_of  # noqa: E402

FILES = {"docs/a.md": "# A page\n\n## Rows and slots, 2\n", "README.md": "x"}


def found(path, text):
    return list(problems_of(path, text, FILES.get, {"docs/a.md", "README.md"}))


class Words(unittest.TestCase):
    def test_a_retired_word_is_named_with_its_line_and_replacement(self):
        (problem,) = found("docs/b.md", "first\nthe NIC says Goodbye\n")
        self.assertIn("line 2: 'Goodbye'", problem)
        self.assertIn("closing message", problem)

    def test_names_of_code_are_no_prose(self):
        self.assertEqual(found("docs/b.md", "`swl mend x`\n```\nmend\n```\nrecommend\n"), [])

    def test_sentences_of_the_product_are_looked_at_and_comments_are_not(self):
        self.assertEqual(len(found("src/a.c", 'f("rank %u has no out-of-band channel");\n')), 1)
        self.assertEqual(found("src/a.c", '/* says "mend this now" */ f("mend");\n'), [])
        self.assertEqual(found("tests/a.cc", 'f("mend this now");\n'), [])

    def test_retired_names_are_found_in_identifiers_and_names_of_files(self):
        (problem,) = found("src/a.c", "int a;\nswl_mend_open(SWL_A);\n")
        self.assertIn("line 2: 'mend' in swl_mend_open", problem)
        self.assertEqual(len(found("transport/a.cuh", "struct SWL_OOB_X x; /* mend */\n")), 1)
        self.assertEqual(len(found("src/failure/mend.c", "int a;\n")), 1)
        self.assertEqual(len(found("transport/site/CMakeLists.txt", "a\n")), 1)

    def test_parts_of_words_strings_includes_and_tests_are_no_retired_names(self):
        self.assertEqual(found("src/a.c", 'int amend, mending = f("mend", MSG_PEEK);\n'), [])
        self.assertEqual(found("src/a.c", '#include <linux/mend.h>\n'), [])
        self.assertEqual(found("tests/unit/mend_test.cc", "int mend;\n"), [])

    def test_a_link_needs_its_page_and_heading(self):
        good = "[x](a.md) [y](a.md#rows-and-slots-2) [z](../README.md) [w](https://a.b/c)\n"
        self.assertEqual(found("docs/b.md", good), [])
        self.assertEqual(len(found("docs/b.md", "[x](c.md)\n[y](a.md#columns)\n")), 2)

    def test_a_source_cites_documents_that_exist(self):
        self.assertEqual(found("src/a.c", "/* docs/a.md, a.md, README.md */\n"), [])
        self.assertEqual(len(found("src/a.c", "/* see interface.md */\n")), 1)


if __name__ == "__main__":
    unittest.main()
