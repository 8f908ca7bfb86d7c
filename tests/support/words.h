/* words.h: what tests ask of the text of a log. Layer: tests; no state. */
#ifndef SWL_WORDS_H
#define SWL_WORDS_H

#include <string>

/* How often `word` occurs in the text of a log. */
inline size_t occurrences(const std::string &text, const std::string &word)
{
    size_t n = 0;

    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
        n++;
    return n;
}

#endif
