/* The floor of scripts/bench: what a plain C program needs for the headers, and for the checksums, of the same segments.
 *
 *   floor mmap|pread|crc FILE...     prints "<nanoseconds> <batches> <sum>" for one pass over all files
 *
 * mmap:  follows the lengths through a mapping.          pread: one 17-byte pread for each batch.
 * crc:   CRC-32C of every batch with the processor's instruction, 8 bytes at a time, through a mapping.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

int main(int argc, char **argv) {
    if (argc < 3) { fprintf(stderr, "usage: floor mmap|pread|crc FILE...\n"); return 2; }
    struct timespec begin, end;
    uint64_t batches = 0, sum = 0, bad = 0;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 2; i < argc; i++) {
        int fd = open(argv[i], O_RDONLY);
        struct stat status;
        if (fd < 0 || fstat(fd, &status)) { perror(argv[i]); return 1; }
        int64_t size = status.st_size, at = 0;
        if (argv[1][0] == 'p') {
            uint8_t head[17];
            while (at + 17 <= size && pread(fd, head, 17, at) == 17) {
                sum += be32(head + 8); batches++; at += 12 + (int64_t)be32(head + 8);
            }
        } else {
            const uint8_t *base = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
            if (base == MAP_FAILED) { perror(argv[i]); return 1; }
            while (at + 61 <= size) {
                uint32_t length = be32(base + at + 8);
                if (argv[1][0] == 'c') bad += crc32c(base + at + 21, length - 9) != be32(base + at + 17);
                sum += length; batches++; at += 12 + (int64_t)length;
            }
            munmap((void *)base, (size_t)size);
        }
        close(fd);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (bad) { fprintf(stderr, "%llu checksums differ\n", (unsigned long long)bad); return 1; }
    printf("%lld %llu %llu\n", (long long)((end.tv_sec - begin.tv_sec) * 1000000000LL + end.tv_nsec - begin.tv_nsec),
           (unsigned long long)batches, (unsigned long long)sum);
    return 0;
}
