#!/usr/bin/env python3
"""functions_test.py: which functions tools/support/functions.py sees, and how large."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tools", "support"))
import rules
from functions import functions  # noqa: E402


def seen(text):
    return [(name, lines, parameters) for name, _, lines, parameters in functions(text)]


class Functions(unittest.TestCase):
    def test_a_function_has_the_lines_to_its_last_brace(self):
        body = "    x++;\n" * 60
        self.assertEqual(seen("static int f(void)\n{\n" + body + "}\n"), [("f", 61, 0)])

    def test_parameters_are_counted_once_however_they_look(self):
        text = "void f(int a, void (*g)(int, int), struct x *y,\n       const char *text)\n{\n}\n"
        self.assertEqual(seen(text), [("f", 1, 4)])
        self.assertEqual(seen("template <class T, int N> T f(box<T, N> a, int b)\n{\n}\n"),
                         [("f", 1, 2)])

    def test_what_only_looks_like_a_function_is_none(self):
        text = """
/* f(a, b, c) { */
#define G(a, b, c, d, e, f, g) \\
    {                          \\
    }
struct point { int x, y; };
static const struct point at[] = {{0, 1}, make(1, 2, 3, 4, 5, 6, 7)};
int f(int a)
{
    if (a) {
        const char *t = "g(1) {";
    }
    for (;;) {
    }
}
"""
        self.assertEqual(seen(text), [("f", 6, 1)])

    def test_members_and_namespaces_are_looked_into(self):
        text = """
namespace
{
struct hub {
    int get(int a, int b) const
    {
        return a;
    }
};
extern "C" void h(int a)
{
}
} // namespace
"""
        self.assertEqual(seen(text), [("get", 2, 2), ("h", 1, 1)])

    def test_two_files_do_not_share_a_static_function_of_one_word(self):
        texts = {"a.c": "static int take(int a)\n{\n}\n", "b.c": "static bool *take(void)\n{\n}\n",
                 "c.c": "static int take_one(int a)\n{\n}\n", "d.c": "static int take_one(void)\n{\n}\n"}
        self.assertEqual(list(rules.same_names(texts)),
                         ["b.c: take() is also the name of a function in a.c"])


if __name__ == "__main__":
    unittest.main()
