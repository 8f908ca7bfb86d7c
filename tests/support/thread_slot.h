/* thread_slot.h: swl_thread_slot of places that the tests make up: one slot a thread, freed at its
 * end. Defines the function: for the one file of a program that is its place. Layer: tests. */
#pragma once

#include "src/runtime/runtime.h"

#include <cstdlib>

static thread_local struct Slot {
    void *value = nullptr;
    ~Slot()
    {
        free(value);
    }
} slot;

extern "C" void **swl_thread_slot(void)
{
    return &slot.value;
}
