/* The floor of scripts/bench/replay_speed.py: what a plain C program needs for the headers, and for the checksums, of the same segments.
 *
 *   floor mmap|read|crc|copy FILE...     prints "<nanoseconds> <batches> <sum>" for one pass over all files
 *
 * mmap:  follows the lengths through a mapping, CHAINS chains in turn: no load waits for the one before it. The chains begin at entries
 *        of the offset index of the file, and each must end where the next one begins.
 * read:  the same in blocks of 4 MiB that preadv copies.
 * crc:   CRC-32C of every batch with the processor's instruction, 8 bytes at a time, through a mapping.
 * copy:  preadv of all bytes in blocks of 4 MiB, and nothing else; it counts no batches.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { CHAINS = 16, BLOCK = 4 << 20, HEADER = 61 };

static uint32_t be32(const uint8_t *p) { return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]; }

#if defined(__x86_64__)
#include <nmmintrin.h>
__attribute__((target("sse4.2"))) static uint32_t crc32c(const uint8_t *p, size_t n) {
    uint64_t value = 0xFFFFFFFFu;
    for (; n >= 8; p += 8, n -= 8) { uint64_t word; memcpy(&word, p, 8); value = _mm_crc32_u64(value, word); }
    for (; n; p++, n--) value = _mm_crc32_u8((uint32_t)value, *p);
    return (uint32_t)value ^ 0xFFFFFFFFu;
}
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
static uint32_t crc32c(const uint8_t *p, size_t n) {
    uint32_t value = 0xFFFFFFFFu;
    for (; n >= 8; p += 8, n -= 8) { uint64_t word; memcpy(&word, p, 8); value = __crc32cd(value, word); }
    for (; n; p++, n--) value = __crc32cb(value, *p);
    return value ^ 0xFFFFFFFFu;
}
#else
#error "no CRC-32C instruction is known for this processor"
#endif

static uint64_t batches, sum, bad;

static void fail(const char *what) { perror(what); exit(1); }

/* Where batches begin, by the offset index next to a segment: its entries are a relative offset and a position, int32 each. */
static size_t indexed(const char *log, int64_t size, int64_t **positions) {
    char path[4096];
    size_t length = strlen(log), count = 0;
    if (length < 4 || length + 3 > sizeof path) return 0;
    memcpy(path, log, length - 3);
    strcpy(path + length - 3, "index");
    int fd = open(path, O_RDONLY);
    struct stat status;
    if (fd < 0) return 0;
    if (fstat(fd, &status)) fail(path);
    uint8_t *data = malloc((size_t)status.st_size + 1);
    *positions = malloc(((size_t)status.st_size / 8 + 1) * sizeof **positions);
    if (!data || !*positions || read(fd, data, (size_t)status.st_size) != status.st_size) fail(path);
    for (int64_t at = 0, last = 0; at + 8 <= status.st_size; at += 8) {
        int64_t position = be32(data + at + 4);
        if (position > last && position < size) (*positions)[count++] = last = position;
    }
    free(data);
    close(fd);
    return count;
}

/* Follows the lengths from each of `count` starts to the next one (from the last to `end`), side by side. Returns where the last ended. */
static int64_t chains(const uint8_t *base, const int64_t *starts, int count, int64_t end) {
    int64_t at[CHAINS], stop[CHAINS];
    for (int i = 0; i < count; i++) { at[i] = starts[i]; stop[i] = i + 1 < count ? starts[i + 1] : end - HEADER; }
    for (int moving = count; moving;) {
        moving = 0;
        for (int i = 0; i < count; i++) {
            if (at[i] >= stop[i] + (i + 1 == count)) continue;
            uint32_t length = be32(base + at[i] + 8);
            if (i + 1 == count && at[i] + 12 + (int64_t)length > end) { stop[i] = at[i] - 1; continue; }
            sum += length; batches++; moving++;
            at[i] += 12 + (int64_t)length;
        }
    }
    for (int i = 0; i + 1 < count; i++)
        if (at[i] != stop[i]) { fprintf(stderr, "a chain ends at %lld, not at %lld\n", (long long)at[i], (long long)stop[i]); exit(1); }
    return at[count - 1];
}

/* Starts of chains between two positions, evenly spread over the entries of the index; the first is `from`. */
static int chosen(const int64_t *positions, size_t count, int64_t from, int64_t end, int64_t *starts) {
    size_t low = 0, high = count;
    while (low < high) { size_t middle = (low + high) / 2; if (positions[middle] <= from) low = middle + 1; else high = middle; }
    size_t first = low;
    for (high = count; low < high;) { size_t middle = (low + high) / 2; if (positions[middle] < end - HEADER) low = middle + 1; else high = middle; }
    size_t inside = low - first;
    int chains = 1;
    starts[0] = from;
    for (int i = 1; i < CHAINS && inside >= CHAINS; i++) starts[chains++] = positions[first + inside * (size_t)i / CHAINS];
    return chains;
}

int main(int argc, char **argv) {
    if (argc < 3) { fprintf(stderr, "usage: floor mmap|read|crc|copy FILE...\n"); return 2; }
    struct timespec begin, end;
    static uint8_t block[BLOCK];
    memset(block, 1, sizeof block);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 2; i < argc; i++) {
        int fd = open(argv[i], O_RDONLY);
        struct stat status;
        if (fd < 0 || fstat(fd, &status)) fail(argv[i]);
        int64_t size = status.st_size, at = 0, starts[CHAINS], *positions = NULL;
        if (argv[1][0] == 'c' && argv[1][1] == 'o') {
            for (ssize_t got; at < size && (got = pread(fd, block, BLOCK, at)) > 0; at += got) sum += block[0];
        } else if (argv[1][0] == 'r') {
            size_t count = indexed(argv[i], size, &positions);
            while (size - at >= HEADER) {
                ssize_t got = pread(fd, block, BLOCK, at);
                if (got <= 0) fail(argv[i]);
                int used = chosen(positions, count, at, at + got, starts);
                for (int k = 0; k < used; k++) starts[k] -= at;
                int64_t done = chains(block, starts, used, got);
                if (done == 0) { at += 12 + (int64_t)be32(block + 8); batches++; sum += be32(block + 8); }
                at += done;
            }
        } else {
            const uint8_t *base = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
            if (base == MAP_FAILED) fail(argv[i]);
            if (argv[1][0] == 'm') {
                size_t count = indexed(argv[i], size, &positions);
                chains(base, starts, chosen(positions, count, 0, size, starts), size);
            } else {
                while (at + HEADER <= size) {
                    uint32_t length = be32(base + at + 8);
                    bad += crc32c(base + at + 21, length - 9) != be32(base + at + 17);
                    sum += length; batches++; at += 12 + (int64_t)length;
                }
            }
            munmap((void *)base, (size_t)size);
        }
        free(positions);
        close(fd);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (bad) { fprintf(stderr, "%llu checksums differ\n", (unsigned long long)bad); return 1; }
    printf("%lld %llu %llu\n", (long long)((end.tv_sec - begin.tv_sec) * 1000000000LL + end.tv_nsec - begin.tv_nsec),
           (unsigned long long)batches, (unsigned long long)sum);
    return 0;
}
