/* Compares the functions of memory.c with their definitions, for all lengths and alignments that they tell apart. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int __wrap_memcmp(const void *left, const void *right, size_t count);
int __wrap_bcmp(const void *left, const void *right, size_t count);
void *__wrap_memcpy(void *restrict to, const void *restrict from, size_t count);

void *__real_memcpy(void *restrict to, const void *restrict from, size_t count) { return memmove(to, from, count); }

enum { LENGTHS = 300, OFFSETS = 16, ROOM = LENGTHS + 2 * OFFSETS };

static unsigned char left[ROOM], right[ROOM], out[ROOM];

static void fail(const char *what, size_t count, size_t a, size_t b, size_t at) {
    printf("memory_test: %s of %zu bytes at offsets %zu and %zu, difference at %zu\n", what, count, a, b, at);
    exit(1);
}

static int sign(int value) { return (value > 0) - (value < 0); }

static void compares(size_t count, size_t a, size_t b) {
    for (size_t at = 0; at < ROOM; at++)
        left[at] = right[at] = 0;
    for (size_t at = 0; at < count; at++)
        left[a + at] = right[b + at] = (unsigned char)(at * 37 + 11);
    /* What lies around is no part of it. */
    left[a + count] = 1;
    right[b + count] = 2;
    if (__wrap_memcmp(left + a, right + b, count) != 0 || __wrap_bcmp(left + a, right + b, count) != 0)
        fail("equality", count, a, b, 0);
    for (size_t at = 0; at < count; at++) {
        unsigned char was = left[a + at];
        for (int change = 1; change < 256; change += 84) {
            left[a + at] = (unsigned char)(was + change);
            /* A later difference does not count. */
            if (at + 1 < count)
                right[b + count - 1] ^= 255;
            int wanted = left[a + at] > right[b + at] ? 1 : -1;
            if (sign(__wrap_memcmp(left + a, right + b, count)) != wanted || __wrap_bcmp(left + a, right + b, count) == 0)
                fail("comparison", count, a, b, at);
            if (at + 1 < count)
                right[b + count - 1] ^= 255;
        }
        left[a + at] = was;
    }
}

static void copies(size_t count, size_t a, size_t b) {
    for (size_t at = 0; at < ROOM; at++) {
        left[at] = (unsigned char)(at * 53 + 7);
        out[at] = 255;
    }
    if (__wrap_memcpy(out + b, left + a, count) != out + b)
        fail("result of a copy", count, a, b, 0);
    for (size_t at = 0; at < ROOM; at++) {
        int is_inside = at >= b && at < b + count;
        if (out[at] != (is_inside ? left[a + at - b] : 255))
            fail("copy", count, a, b, at);
    }
}

int main(void) {
    for (size_t count = 0; count < LENGTHS; count++)
        for (size_t a = 0; a < OFFSETS; a++)
            for (size_t b = 0; b < OFFSETS; b++) {
                copies(count, a, b);
                if (count < 70 || (a < 2 && b < 2))
                    compares(count, a, b);
            }
    return 0;
}
