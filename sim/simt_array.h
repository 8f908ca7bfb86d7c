/* simt_array.h: the emulator's growing array. Layer: sim, internal. Its memory comes from the arena
 * and is moved without memcpy, because TSan would see malloc and memcpy of the core as accesses of
 * whoever runs. Elements are plain data. */
#pragma once

#include "sim/simt_fiber.h"

namespace simt
{

template <class T> class Array
{
  public:
    Array() = default;
    Array(const Array &) = delete;
    Array &operator=(const Array &) = delete;
    ~Array()
    {
        if (at)
            arena_put(at, room * sizeof(T));
    }
    void push_back(const T &value)
    {
        if (n == room)
            grow();
        at[n++] = value;
    }
    T pop_back()
    {
        return at[--n];
    }
    /* The last element takes the place. */
    void remove_unordered(size_t i)
    {
        at[i] = at[--n];
    }
    void remove(size_t i)
    {
        for (n--; i < n; i++)
            at[i] = at[i + 1];
    }
    void clear()
    {
        n = 0;
    }
    size_t size() const
    {
        return n;
    }
    bool empty() const
    {
        return n == 0;
    }
    T &operator[](size_t i)
    {
        return at[i];
    }
    const T &operator[](size_t i) const
    {
        return at[i];
    }
    T *begin()
    {
        return at;
    }
    T *end()
    {
        return at + n;
    }
    const T *begin() const
    {
        return at;
    }
    const T *end() const
    {
        return at + n;
    }

  private:
    T *at = nullptr;
    size_t n = 0, room = 0;

    void grow()
    {
        size_t more = room ? room * 2 : 16;
        T *bigger = static_cast<T *>(arena_get(more * sizeof(T)));

        if (at) {
            copy_unseen(bigger, at, n * sizeof(T));
            arena_put(at, room * sizeof(T));
        }
        at = bigger;
        room = more;
    }
};

} // namespace simt
