// SPDX-License-Identifier: Apache-2.0
// Matrix tiles in memory, for CPUs without them: what Intel's manual says of each instruction.
#include <stdint.h>
#include <string.h>

enum { TILES = 8, ROWS = 16, BYTES = 64 };

static _Thread_local uint8_t layout[64];
static _Thread_local uint8_t tiles[TILES][ROWS][BYTES];
static int32_t faults;
static int32_t products;

static int rows(int t) { return layout[48 + t]; }
static int bytes(int t) { return layout[16 + 2 * t]; }
static void expect(int condition) { faults += !condition; }

int32_t stand_in_faults(void) { return faults; }
int32_t stand_in_products(void) { return products; }

static void set(const uint8_t *from) {
    memcpy(layout, from, sizeof layout);
    memset(tiles, 0, sizeof tiles);
}

void stand_in_ldtilecfg(void *from) { set(from); }
void stand_in_sttilecfg(void *to) { memcpy(to, layout, sizeof layout); }

// What the function of a kernel does: a configuration is set where it is another one.
void stand_in_configure(uint64_t widths, uint64_t heights) {
    uint8_t wanted[64] = {1};
    for (int t = 0; t < TILES; t++) {
        wanted[16 + 2 * t] = widths >> (8 * (TILES - 1 - t));
        wanted[48 + t] = heights >> (8 * (TILES - 1 - t));
    }
    if (memcmp(wanted, layout, sizeof layout)) set(wanted);
}

void stand_in_tilezero(int t) {
    expect(layout[0] == 1 && rows(t) > 0);
    memset(tiles[t], 0, sizeof tiles[t]);
}

void stand_in_tileloadd64(int t, const uint8_t *from, int64_t step) {
    expect(layout[0] == 1 && rows(t) > 0 && rows(t) <= ROWS && bytes(t) <= BYTES);
    memset(tiles[t], 0, sizeof tiles[t]);
    for (int m = 0; m < rows(t); m++) memcpy(tiles[t][m], from + m * step, bytes(t));
}

void stand_in_tilestored64(int t, uint8_t *to, int64_t step) {
    expect(layout[0] == 1 && rows(t) > 0);
    for (int m = 0; m < rows(t); m++) memcpy(to + m * step, tiles[t][m], bytes(t));
}

static void shapes(int c, int a, int b) {
    expect(c != a && c != b && a != b);
    expect(rows(c) == rows(a) && bytes(c) == bytes(b) && bytes(a) == 4 * rows(b));
    products++;
}

#define OF_BYTES(name, first, second)                                          \
    void stand_in_##name(int c, int a, int b) {                                \
        shapes(c, a, b);                                                       \
        for (int m = 0; m < rows(c); m++)                                      \
            for (int k = 0; k < rows(b); k++)                                  \
                for (int n = 0; n < bytes(c) / 4; n++) {                       \
                    int32_t sum;                                               \
                    memcpy(&sum, &tiles[c][m][4 * n], 4);                      \
                    for (int i = 0; i < 4; i++)                                \
                        sum += (int32_t)(first)tiles[a][m][4 * k + i] *        \
                               (int32_t)(second)tiles[b][k][4 * n + i];        \
                    memcpy(&tiles[c][m][4 * n], &sum, 4);                      \
                }                                                              \
    }
OF_BYTES(tdpbusd, uint8_t, int8_t)
OF_BYTES(tdpbsud, int8_t, uint8_t)
OF_BYTES(tdpbssd, int8_t, int8_t)
OF_BYTES(tdpbuud, uint8_t, uint8_t)

static float widened(const uint8_t *half) {
    uint16_t bits;
    memcpy(&bits, half, 2);
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}

void stand_in_tdpbf16ps(int c, int a, int b) {
    shapes(c, a, b);
    for (int m = 0; m < rows(c); m++)
        for (int k = 0; k < rows(b); k++)
            for (int n = 0; n < bytes(c) / 4; n++) {
                float sum;
                memcpy(&sum, &tiles[c][m][4 * n], 4);
                for (int i = 0; i < 2; i++)
                    sum += widened(&tiles[a][m][4 * k + 2 * i]) * widened(&tiles[b][k][4 * n + 2 * i]);
                memcpy(&tiles[c][m][4 * n], &sum, 4);
            }
}
