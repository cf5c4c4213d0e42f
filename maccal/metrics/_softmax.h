/* What the inner loops of scores.py need: exp and log that a compiler can vectorise, and rows of scores side by side.
 *
 * SIDE rows go side by side, one in each lane of a vector: nothing is added up across a vector, and any number of classes runs
 * at full speed. The loops themselves are in _lanes.h, once for double, where numbers are reported, and once for float, for a
 * first approximation in a third of the time.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define SIDE 16
#define TILE 64
#define LOWEST_double -708.0 /* from here down exp counts as 0: below 1e-307, where the row's largest is 1 */
#define LOWEST_float -87.0f
#define EACH_ROW _Pragma("omp simd") for (int r = 0; r < SIDE; r++)

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline)) /* into each of the versions for a kind of processor */
#else
#define INLINE static inline
#endif

/* exp(x) within two units in the last place, for LOWEST < x <= 0: 2^n times the Taylor series of the rest, |rest| < 0.35. */
INLINE double exp_double(double x) {
    const double nearest = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to a whole number, kept in the low bits */
    double n = x * 1.4426950408889634 + nearest, y;
    uint64_t power, bits;
    memcpy(&power, &n, 8);
    n -= nearest;
    double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10; /* log 2, in two parts */
    y = 1.0 / 479001600;
    y = y * r + 1.0 / 39916800;
    y = y * r + 1.0 / 3628800;
    y = y * r + 1.0 / 362880;
    y = y * r + 1.0 / 40320;
    y = y * r + 1.0 / 5040;
    y = y * r + 1.0 / 720;
    y = y * r + 1.0 / 120;
    y = y * r + 1.0 / 24;
    y = y * r + 1.0 / 6;
    y = y * r + 0.5;
    y = y * r + 1;
    y = y * r + 1;
    memcpy(&bits, &y, 8);
    bits += power << 52;
    memcpy(&y, &bits, 8);
    return y;
}

INLINE float exp_float(float x) {
    const float nearest = 12582912.0f; /* 1.5 * 2^23 */
    float n = x * 1.44269504f + nearest, y;
    uint32_t power, bits;
    memcpy(&power, &n, 4);
    n -= nearest;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    y = 1.0f / 5040;
    y = y * r + 1.0f / 720;
    y = y * r + 1.0f / 120;
    y = y * r + 1.0f / 24;
    y = y * r + 1.0f / 6;
    y = y * r + 0.5f;
    y = y * r + 1;
    y = y * r + 1;
    memcpy(&bits, &y, 4);
    bits += power << 23;
    memcpy(&y, &bits, 4);
    return y;
}

/* log(x) for a normal x > 0: 2^n m with m next to 1, and log m = 2 atanh((m - 1) / (m + 1)) by its series. */
INLINE double log_double(double x) {
    uint64_t bits;
    memcpy(&bits, &x, 8);
    uint64_t power = (bits - 0x3fe6a09e667f3bcdULL + (1023ULL << 52)) >> 52; /* n + 1023; the number is sqrt(1/2) */
    uint64_t number = power | 0x4330000000000000ULL;                         /* 2^52 + power */
    double m, n;
    bits -= (power - 1023) << 52;
    memcpy(&m, &bits, 8);
    memcpy(&n, &number, 8);
    n -= 4503599627371519.0; /* 2^52 + 1023 */
    double s = (m - 1) / (m + 1), z = s * s, y = 1.0 / 23;
    y = y * z + 1.0 / 21;
    y = y * z + 1.0 / 19;
    y = y * z + 1.0 / 17;
    y = y * z + 1.0 / 15;
    y = y * z + 1.0 / 13;
    y = y * z + 1.0 / 11;
    y = y * z + 1.0 / 9;
    y = y * z + 1.0 / 7;
    y = y * z + 1.0 / 5;
    y = y * z + 1.0 / 3;
    return n * 6.93147180369123816490e-01 + (n * 1.90821492927058770002e-10 + 2 * s * z * y + 2 * s);
}

typedef double lanes[SIDE];

/* Up to SIDE rows of scores in memory; lanes beyond the last row repeat it and do not count. */
typedef struct {
    const void *scores;
    int wide; /* double, else float */
    int64_t classes, place[SIDE];
    lanes most, own; /* the largest score of each row, and how far the label's is from it: at most 0 */
    lanes counts;    /* 1, or 0 where a row is repeated */
} strip;

INLINE double value(const void *numbers, int wide, int64_t place) {
    return wide ? ((const double *)numbers)[place] : ((const float *)numbers)[place];
}

INLINE strip strip_from(const void *scores, int wide, const void *most, const int64_t *label, int64_t from, int64_t rows,
                        int64_t classes) {
    strip it;
    it.scores = scores, it.wide = wide, it.classes = classes;
    for (int r = 0; r < SIDE; r++) {
        int64_t row = from + r < rows ? from + r : rows - 1;
        it.place[r] = row * classes;
        it.most[r] = value(most, wide, row);
        it.own[r] = value(scores, wide, it.place[r] + label[row]) - it.most[r];
        it.counts[r] = from + r < rows;
    }
    return it;
}

#define JOINED(name, REAL) name##_##REAL
#define FOR(name, REAL) JOINED(name, REAL)

#define REAL float
#include "_lanes.h"
#undef REAL
#define REAL double
#include "_lanes.h"
#undef REAL

INLINE void add_scores(tile_double x, int64_t many, double scale, lanes sum, lanes squares) {
    for (int64_t k = 0; k < many; k++) EACH_ROW {
            double far = scale * x[k][r], e = exp_double(far > LOWEST_double ? far : LOWEST_double);
            sum[r] += e, squares[r] += e * e;
        }
}

/* NLL and Brier score of every row at this scale. */
VECTORISED static void score_rows(const void *scores, int wide, const void *most, const int64_t *label, int64_t rows,
                                  int64_t classes, double scale, double *nll, double *brier) {
    for (int64_t from = 0; from < rows; from += SIDE) {
        strip it = strip_from(scores, wide, most, label, from, rows, classes);
        lanes sum = {0}, squares = {0}, both[2];
        tile_double x;
        for (int64_t k = 0; k < classes; k += TILE) {
            int64_t many = turn_double(&it, k, x);
            add_scores(x, many, scale, sum, squares);
        }
        EACH_ROW {
            double own = scale * it.own[r], e = exp_double(own > LOWEST_double ? own : LOWEST_double);
            both[0][r] = log_double(sum[r]) - own;
            both[1][r] = 1 + squares[r] / (sum[r] * sum[r]) - 2 * e / sum[r];
        }
        for (int r = 0; r < SIDE && from + r < rows; r++) nll[from + r] = both[0][r], brier[from + r] = both[1][r];
    }
}
