/* Functions of musl on the way of each statement, where musl's own are slow: memcmp compares byte by byte, and memcpy starts
 * a string instruction for a few bytes. A hit takes a tenth fewer instructions with these (docs/benchmarks/instructions.md).
 *
 * script/build-release links them in place of musl's (--wrap), and tries them first (memory_test.c). */

#include <stddef.h>
#include <stdint.h>

void *__real_memcpy(void *restrict to, const void *restrict from, size_t count);

/* A copy of a constant number of bytes is one instruction of any alignment. */
static inline uint64_t eight(const unsigned char *at) {
    uint64_t bytes;
    __builtin_memcpy(&bytes, at, 8);
    return bytes;
}

/* The same as a number that is ordered like the bytes. */
static inline uint64_t in_order(uint64_t bytes) {
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? __builtin_bswap64(bytes) : bytes;
}

static inline int order(uint64_t a, uint64_t b) {
    a = in_order(a);
    b = in_order(b);
    return (a > b) - (a < b);
}

/* Four bytes as a number that is ordered like them. */
static inline uint32_t four(const unsigned char *at) {
    uint32_t bytes;
    __builtin_memcpy(&bytes, at, 4);
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? __builtin_bswap32(bytes) : bytes;
}

int __wrap_memcmp(const void *left, const void *right, size_t count) {
    const unsigned char *a = left, *b = right;
    if (count >= 8) {
        size_t at = 0;
        for (; at + 8 <= count; at += 8) {
            uint64_t x = eight(a + at), y = eight(b + at);
            if (x != y)
                return order(x, y);
        }
        /* Those before the last eight are equal. */
        return order(eight(a + count - 8), eight(b + count - 8));
    }
    if (count >= 4) {
        uint64_t x = (uint64_t)four(a) << 32 | four(a + count - 4), y = (uint64_t)four(b) << 32 | four(b + count - 4);
        return (x > y) - (x < y);
    }
    for (size_t at = 0; at < count; at++)
        if (a[at] != b[at])
            return a[at] - b[at];
    return 0;
}

int __wrap_bcmp(const void *left, const void *right, size_t count) {
    const unsigned char *a = left, *b = right;
    if (count >= 8) {
        for (size_t at = 0; at + 8 <= count; at += 8)
            if (eight(a + at) != eight(b + at))
                return 1;
        return eight(a + count - 8) != eight(b + count - 8);
    }
    if (count >= 4)
        return four(a) != four(b) || four(a + count - 4) != four(b + count - 4);
    for (size_t at = 0; at < count; at++)
        if (a[at] != b[at])
            return 1;
    return 0;
}

typedef struct {
    uint64_t half[2];
} sixteen;

void *__wrap_memcpy(void *restrict to, const void *restrict from, size_t count) {
    unsigned char *out = to;
    const unsigned char *in = from;
    if (count > 256)
        return __real_memcpy(to, from, count);
    if (count >= 16) {
        sixteen last, next;
        __builtin_memcpy(&last, in + count - 16, 16);
        for (size_t at = 0; at + 16 < count; at += 16) {
            __builtin_memcpy(&next, in + at, 16);
            __builtin_memcpy(out + at, &next, 16);
        }
        __builtin_memcpy(out + count - 16, &last, 16);
    } else if (count >= 8) {
        uint64_t first = eight(in), last = eight(in + count - 8);
        __builtin_memcpy(out, &first, 8);
        __builtin_memcpy(out + count - 8, &last, 8);
    } else if (count >= 4) {
        uint32_t first, last;
        __builtin_memcpy(&first, in, 4);
        __builtin_memcpy(&last, in + count - 4, 4);
        __builtin_memcpy(out, &first, 4);
        __builtin_memcpy(out + count - 4, &last, 4);
    } else if (count > 0) {
        unsigned char first = in[0], middle = in[count / 2], last = in[count - 1];
        out[0] = first;
        out[count / 2] = middle;
        out[count - 1] = last;
    }
    return to;
}
