#!/usr/bin/env python3
"""columns_test.py: which lines tools/support/rules.py finds too long."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tools", "support"))
from rules import long_lines  # noqa: E402


class Columns(unittest.TestCase):
    def test_a_line_may_have_100_columns(self):
        self.assertEqual(list(long_lines("a" * 100 + "\n")), [])
        self.assertEqual(list(long_lines("\n" + "a" * 101)), ["line 2: ends behind column 100"])

    def test_tables_of_code_may_be_wider_and_comments_in_them_not(self):
        table = "/* clang-format off */\n{}\n/* clang-format on */\n{}\n"
        self.assertEqual(list(long_lines(table.format("a" * 101, "a"))), [])
        self.assertEqual(len(list(long_lines(table.format("/* " + "a" * 101, "a")))), 1)
        self.assertEqual(len(list(long_lines(table.format("a", "a" * 101)))), 1)


if __name__ == "__main__":
    unittest.main()
