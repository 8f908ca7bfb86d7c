/* simt_poll.cc: the words a lane has read since its last pause: what wakes it, and raw spins.
 * Layer: sim, internal. Waking works by reading memory again, not by lists at the writer, so that
 * plain stores, copy engines and other OS threads wake as well. */
#include "sim/simt_core.h"

namespace simt
{
namespace
{

constexpr uint32_t kRawSpinReads = 1000;

bool word_changed(const PollWord &w)
{
    if (w.bytes == 4)
        return __atomic_load_n(static_cast<const volatile uint32_t *>(w.at), __ATOMIC_RELAXED) !=
               static_cast<uint32_t>(w.value);
    return __atomic_load_n(static_cast<const volatile uint64_t *>(w.at), __ATOMIC_RELAXED) !=
           w.value;
}

void word_again(Actor *a, PollWord *w, uint64_t value, const char *file, int line)
{
    if (w->value != value) {
        a->polls.changed = true;
        w->value = value;
        w->reads = 0;
    }
    if (w->activity != a->activity) {
        w->activity = a->activity;
        w->reads = 0;
    }
    if (++w->reads < kRawSpinReads)
        return;
    Fault f = fault_here("raw spin: a word was read 1000 times without a pause", file, line);

    f.word = const_cast<const void *>(w->at);
    fault_note(f);
    worker_fail("raw spin");
}

/* The entry of a word in the spill table, or an empty one. */
PollWord *spill_find(Polls *p, const volatile void *at)
{
    size_t i = (reinterpret_cast<uintptr_t>(at) >> 2) * 0x9E3779B97F4A7C15ull >> 40;

    for (;; i++) {
        PollWord *w = &p->spill->word[i % kPollSpill];

        if (w->epoch != p->epoch || w->at == at)
            return w;
    }
}

} // namespace

void polls_note(Actor *a, const volatile void *word, uint64_t value, int bytes, const char *file,
                int line)
{
    Polls *p = &a->polls;
    PollWord *w;

    for (int i = 0; i < p->n; i++)
        if (p->word[i].at == word) {
            word_again(a, &p->word[i], value, file, line);
            return;
        }
    if (p->n < kPollInline) {
        w = &p->word[p->n++];
    } else {
        if (!p->spill) {
            p->spill = static_cast<PollSpill *>(arena_get(sizeof(*p->spill)));
            p->epoch = 1;
        }
        w = spill_find(p, word);
        if (w->epoch == p->epoch) {
            word_again(a, w, value, file, line);
            return;
        }
        if (p->spill->n == kPollSpill * 3 / 4) {
            p->changed = true; /* too many words: the next pause returns at once */
            return;
        }
        p->spill->used[p->spill->n++] = static_cast<uint16_t>(w - p->spill->word);
    }
    w->at = word;
    w->value = value;
    w->bytes = static_cast<uint8_t>(bytes);
    w->reads = 1;
    w->activity = a->activity;
    w->epoch = p->epoch;
}

bool polls_changed(const Polls *p)
{
    if (p->changed)
        return true;
    for (int i = 0; i < p->n; i++)
        if (word_changed(p->word[i]))
            return true;
    if (p->spill)
        for (int i = 0; i < p->spill->n; i++)
            if (word_changed(p->spill->word[p->spill->used[i]]))
                return true;
    return false;
}

void polls_clear(Polls *p)
{
    p->n = 0;
    p->changed = false;
    if (p->spill) {
        p->spill->n = 0;
        p->epoch++;
    }
}

} // namespace simt
