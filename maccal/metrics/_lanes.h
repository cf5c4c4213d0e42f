/* Slopes of the NLL and the Brier score in the scale; included by _softmax.h with REAL as float and as double.
 *
 * A tile of TILE classes is turned over, classes down and rows across, and stays in the first-level cache.
 * With d = scale * (score - largest score of the row) and e = exp(d), everything comes from sums over the classes:
 *
 *     s[j] = sum e d^j      moments of d under the softmax
 *     t[j] = sum e^2 d^j    the same of the squared probabilities, for the Brier score
 *
 * Derivatives are in x at x = 0, where the scale is multiplied by 1 + x.
 */
#define tile FOR(tile, REAL)
#define sums FOR(sums, REAL)
#define LOWEST FOR(LOWEST, REAL)

typedef REAL tile[TILE][SIDE];

typedef struct {
    REAL s[4][SIDE], t[4][SIDE];
} sums;

/* Turn over the classes from `start` on, less the row's largest score; returns how many. Doubles are subtracted as doubles. */
INLINE int64_t FOR(turn, REAL)(const strip *it, int64_t start, tile x) {
    int64_t many = it->classes - start < TILE ? it->classes - start : TILE;
    for (int r = 0; r < SIDE; r++) {
        const double *d = (const double *)it->scores + it->place[r] + start, most = it->most[r];
        const float *f = (const float *)it->scores + it->place[r] + start;
        if (it->wide)
            for (int64_t k = 0; k < many; k++) x[k][r] = (REAL)(d[k] - most);
        else
            for (int64_t k = 0; k < many; k++) x[k][r] = f[k] - (REAL)most;
    }
    return many;
}

/* Add a tile's classes to the sums. From LOWEST down e is next to nothing, and d may be infinite: it stops there. */
INLINE void FOR(add, REAL)(tile x, int64_t many, REAL scale, sums *a) {
    for (int64_t k = 0; k < many; k++) EACH_ROW {
            REAL far = scale * x[k][r], d = far > LOWEST ? far : LOWEST;
            REAL e = FOR(exp, REAL)(d), ed = e * d, edd = ed * d;
            a->s[0][r] += e, a->s[1][r] += ed, a->s[2][r] += edd, a->s[3][r] += edd * d;
        }
}

INLINE void FOR(add_squares, REAL)(tile x, int64_t many, REAL scale, sums *a) {
    for (int64_t k = 0; k < many; k++) EACH_ROW {
            REAL far = scale * x[k][r], d = far > LOWEST ? far : LOWEST;
            REAL e = FOR(exp, REAL)(d), ed = e * d, edd = ed * d;
            a->s[0][r] += e, a->s[1][r] += ed, a->s[2][r] += edd, a->s[3][r] += edd * d;
            a->t[0][r] += e * e, a->t[1][r] += e * ed, a->t[2][r] += ed * ed, a->t[3][r] += ed * edd;
        }
}

/* NLL = log s0 - d_y and its three derivatives: of log s0 they are the cumulants of d. */
INLINE void FOR(nll, REAL)(const sums *a, const strip *it, double scale, lanes total[4]) {
    EACH_ROW {
        double s0 = a->s[0][r], own = scale * it->own[r];
        double mean = a->s[1][r] / s0, square = a->s[2][r] / s0, cube = a->s[3][r] / s0;
        total[0][r] += it->counts[r] * (log_double(s0) - own);
        total[1][r] += it->counts[r] * (mean - own);
        total[2][r] += it->counts[r] * (square - mean * mean);
        total[3][r] += it->counts[r] * (cube - 3 * mean * square + 2 * mean * mean * mean);
    }
}

/* Brier = 1 + sum p^2 - 2 p_y and its three derivatives. With c = d - mean, v and w the second and third cumulant of d,
 * the derivatives of p are p c, p (c^2 - v) and p (c^3 - 3 v c - w); q[j] is the sum of p^2 c^j. */
INLINE void FOR(brier, REAL)(const sums *a, const strip *it, double scale, lanes total[4]) {
    EACH_ROW {
        double s0 = a->s[0][r], s1 = a->s[1][r] / s0, s2 = a->s[2][r] / s0, s3 = a->s[3][r] / s0;
        double v = s2 - s1 * s1, w = s3 - 3 * s1 * s2 + 2 * s1 * s1 * s1, over = 1 / (s0 * s0);
        double t0 = a->t[0][r] * over, t1 = a->t[1][r] * over, t2 = a->t[2][r] * over, t3 = a->t[3][r] * over;
        double q1 = t1 - s1 * t0, q2 = t2 - 2 * s1 * t1 + s1 * s1 * t0;
        double q3 = t3 - 3 * s1 * t2 + 3 * s1 * s1 * t1 - s1 * s1 * s1 * t0;
        double far = scale * it->own[r], own = far > LOWEST_double ? far : LOWEST_double;
        double p = exp_double(own) / s0, c = own - s1;
        total[0][r] += it->counts[r] * (1 + t0 - 2 * p);
        total[1][r] += it->counts[r] * (2 * q1 - 2 * p * c);
        total[2][r] += it->counts[r] * (4 * q2 - 2 * v * t0 - 2 * p * (c * c - v));
        total[3][r] += it->counts[r] * (8 * q3 - 12 * v * q1 - 2 * w * t0 - 2 * p * (c * c * c - 3 * v * c - w));
    }
}

/* Sums over the rows of the NLL at one scale and of the Brier score at another, each with its three derivatives; a scale of 0
 * is not asked for. */
VECTORISED static void FOR(slopes, REAL)(const void *scores, int wide, const void *most, const int64_t *label, int64_t rows,
                                         int64_t classes, double nll_scale, double brier_scale, double *out) {
    lanes total[8] = {{0}};
    for (int64_t from = 0; from < rows; from += SIDE) {
        strip it = strip_from(scores, wide, most, label, from, rows, classes);
        sums a = {{{0}}, {{0}}}, b = {{{0}}, {{0}}};
        tile x;
        for (int64_t k = 0; k < classes; k += TILE) {
            int64_t many = FOR(turn, REAL)(&it, k, x);
            if (nll_scale > 0) FOR(add, REAL)(x, many, (REAL)nll_scale, &a);
            if (brier_scale > 0) FOR(add_squares, REAL)(x, many, (REAL)brier_scale, &b);
        }
        if (nll_scale > 0) FOR(nll, REAL)(&a, &it, nll_scale, total);
        if (brier_scale > 0) FOR(brier, REAL)(&b, &it, brier_scale, total + 4);
    }
    for (int j = 0; j < 8; j++) {
        out[j] = 0;
        for (int r = 0; r < SIDE; r++) out[j] += total[j][r];
    }
}

#undef tile
#undef sums
#undef LOWEST
