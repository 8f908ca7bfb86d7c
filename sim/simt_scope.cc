/* simt_scope.cc: who wrote a word last and with which scope: reports a flag that its reader is not
 * sure to see on a GPU, and stores to words that a NIC adds to. Layer: sim, internal. */
#include "sim/simt_core.h"

#include <string.h>

namespace simt
{
namespace
{

struct Writer {
    uintptr_t at;
    uint64_t grid; /* serial, 0: engine or host */
    const char *file, *grid_name;
    int line, block;
    int16_t gpu;
    int8_t scope; /* -1: never written, 3: by hardware, any scope may read it */
    bool nic;
};
constexpr size_t kShelves = 16;
struct Shelf {
    Lock lock;
    Writer *table;
    size_t size, used; /* size: power of two */
};
Shelf shelves[kShelves];

uint64_t hash_of(uintptr_t at)
{
    return (at >> 2) * 0x9E3779B97F4A7C15ull;
}

Writer *find(Shelf *s, uintptr_t at)
{
    for (size_t i = hash_of(at) >> 20;; i++) {
        Writer *w = &s->table[i & (s->size - 1)];

        if (!w->at || w->at == at)
            return w;
    }
}

void grow(Shelf *s)
{
    Shelf old = {{}, s->table, s->size, 0};

    s->size = old.size ? old.size * 2 : 1024;
    s->table = static_cast<Writer *>(arena_get(s->size * sizeof(Writer)));
    for (size_t i = 0; i < old.size; i++)
        if (old.table[i].at)
            *find(s, old.table[i].at) = old.table[i];
    if (old.table)
        arena_put(old.table, old.size * sizeof(Writer));
}

Writer *find_or_add(Shelf *s, uintptr_t at)
{
    if (s->used * 2 >= s->size)
        grow(s);
    Writer *w = find(s, at);

    if (!w->at) {
        w->at = at;
        w->scope = -1;
        s->used++;
    }
    return w;
}

Shelf *shelf_of(uintptr_t at)
{
    return &shelves[hash_of(at) >> 60];
}

int needed_scope(const Writer &w, const Actor *reader)
{
    if (!reader->warp || !w.grid || w.gpu != reader->gpu)
        return SWL_SCOPE_SYS;
    const Block *b = reader->warp->block;

    if (w.grid != b->grid->serial)
        return SWL_SCOPE_BLOCK; /* a grid of the same GPU that ended, or a host-ordered one */
    return w.block == b->id ? SWL_SCOPE_BLOCK : SWL_SCOPE_GPU;
}

/* A note about the reader's own shared memory that another block left there before. */
bool left_over(const Writer &w, const Actor *reader, uintptr_t at)
{
    if (!reader->warp)
        return false;
    const Block *b = reader->warp->block;
    uintptr_t shared = reinterpret_cast<uintptr_t>(b->shared->data);

    return at >= shared && at < shared + b->grid->start.shared_bytes &&
           (w.grid != b->grid->serial || w.block != b->id);
}

void fault_pair(const char *text, const volatile void *word, const Writer &w, const char *file,
                int line)
{
    Fault f = fault_here(text, file, line);

    f.word = const_cast<const void *>(word);
    f.other_file = w.file;
    f.other_line = w.line;
    f.other_gpu = w.gpu;
    f.other_block = w.block;
    f.other_grid = w.grid_name;
    fault_note(f);
}

void remember(Writer *w, const Actor *a, int scope, const char *file, int line)
{
    w->file = file;
    w->line = line;
    w->scope = static_cast<int8_t>(scope);
    w->gpu = static_cast<int16_t>(a->gpu);
    w->grid = a->warp ? a->warp->block->grid->serial : 0;
    w->block = a->warp ? a->warp->block->id : -1;
    w->grid_name = a->warp ? a->warp->block->grid->start.name : "an engine or host";
}

void forget_one(Writer *w)
{
    w->scope = -1; /* the entry stays: other entries were placed behind it */
    w->nic = false;
}

} // namespace

void scope_hardware(const volatile void *word)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(word);
    Shelf *s = shelf_of(at);
    Hold hold(s->lock);

    find_or_add(s, at)->scope = 3;
}

} // namespace simt

using namespace simt;

void simt_dev_read(const volatile void *word, uint64_t value, int bytes, int scope,
                   const char *file, int line)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(word);
    Actor *a = worker_self()->now;
    Writer w = {};

    polls_note(a, word, value, bytes, file, line);
    {
        Shelf *s = shelf_of(at);
        Hold hold(s->lock);

        if (!s->size)
            return;
        w = *find(s, at);
    }
    if (!w.at || w.scope < 0 || w.scope == 3 || left_over(w, a, at))
        return;
    int need = needed_scope(w, a);

    if (w.scope < need)
        fault_pair("a word is published with too small a scope for its reader", word, w, file,
                   line);
    else if (scope < need)
        fault_pair("a word is read with too small a scope for its writer", word, w, file, line);
}

bool simt_dev_write(const volatile void *word, int scope, int how, const char *file, int line)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(word);
    Worker *k = worker_self();
    Actor *a = k->now;
    Shelf *s = shelf_of(at);
    Writer before;

    k->stores++;
    a->activity++;
    {
        Hold hold(s->lock);
        Writer *w = find_or_add(s, at);

        before = *w;
        remember(w, a, scope, file, line);
    }
    if (before.nic && a->warp && how != SIMT_STORE_NIC)
        fault_pair("a lane stores to a word that a NIC adds to", word, before, file, line);
    /* a NIC on an engine writes with its own order, one on blocks as a lane does */
    if (how == SIMT_STORE_PUBLISH || (how == SIMT_STORE_NIC && !a->warp))
        return true;
    if (a->ordered < scope) {
        Fault f =
            fault_here(how == SIMT_STORE_POST
                           ? "post_to_peer without order_before_publish since the last data store"
                       : how == SIMT_STORE_NIC
                           ? "nic_add without order_before_publish since the last data store"
                           : "doorbell without order_before_doorbell since the last data store",
                       file, line);

        f.word = const_cast<const void *>(word);
        fault_note(f);
    }
    return a->ordered >= scope;
}

void simt_dev_order(int scope)
{
    Actor *a = worker_self()->now;

    a->activity++;
    if (a->ordered < scope)
        a->ordered = static_cast<int8_t>(scope);
}

void simt_nic_word(const void *word, size_t bytes)
{
    const char *p = static_cast<const char *>(word);

    for (size_t i = 0; i < bytes; i += 8) {
        uintptr_t at = reinterpret_cast<uintptr_t>(p + i);
        Shelf *s = shelf_of(at);
        Hold hold(s->lock);
        Writer *w = find_or_add(s, at);

        w->nic = true;
    }
}

void simt_forget_memory(const void *ptr, size_t bytes)
{
    uintptr_t from = reinterpret_cast<uintptr_t>(ptr), to = from + bytes;

    for (Shelf &s : shelves) {
        Hold hold(s.lock);

        for (size_t i = 0; i < s.size; i++)
            if (s.table[i].at >= from && s.table[i].at < to)
                forget_one(&s.table[i]);
    }
}
