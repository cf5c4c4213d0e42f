/* The inner loops of the metrics that are worth a compiler. inputs.py, bins.py and temperature.py hold the same in torch operations,
 * for other devices and types and for installs without a compiler; tests compare the two.
 *
 * scan: top_label in one trip through memory: the largest value, the hit, the sum and the least value of every row of N x K
 * probabilities. The loop over a row is vectorised for the machine it runs on (chosen at load time where the toolchain can). Of equal
 * values the first counts as the largest, as with argmax; as rows sum to one, values tie for the maximum only at or below one half.
 * NaN and infinity show in the sum.
 *
 * collect: how many rows each bin holds, how many were right, and the sum of their confidences in fixed point, as two whole numbers.
 * The rows come with their bins, or (collect_equal) the bins are of equal width and found here.
 *
 * collect_classes: the same of every class's probability. Of many classes nearly all probabilities are in the first bin: it is
 * summed for all classes at once, and only the others are looked at one by one.
 *
 * scores, slopes: NLL and Brier score at a temperature, and their derivatives; see _softmax.h and _lanes.h.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define TIE 0.51
#define EVEN 6755399441055744.0 /* 1.5 * 2^52: adding it rounds to the nearest whole number, halves to even */

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTORISED
#endif
#include "_softmax.h"

#define SIMD _Pragma("omp simd reduction(max : most) reduction(min : least) reduction(+ : sum)")
#define LOOK_AT_ROW                                                                                                       \
    for (int64_t k = 0; k < classes; k++) {                                                                               \
        most = p[k] > most ? p[k] : most;                                                                                 \
        least = p[k] < least ? p[k] : least;                                                                              \
        sum += p[k];                                                                                                      \
    }

#define SCAN(NAME, REAL)                                                                                                  \
    VECTORISED static void NAME(const REAL *p, const int64_t *label, int64_t rows, int64_t classes, REAL *confidence,     \
                                uint8_t *correct, REAL *total, REAL *lowest) {                                            \
        for (int64_t i = 0; i < rows; i++, p += classes) {                                                                \
            REAL most = p[0], least = p[0], sum = 0;                                                                      \
            if (classes < 32) { /* too short to gain from vectors */                                                      \
                LOOK_AT_ROW                                                                                               \
            } else {                                                                                                      \
                SIMD LOOK_AT_ROW                                                                                          \
            }                                                                                                             \
            int hit = p[label[i]] == most;                                                                                \
            if (hit && most <= TIE) {                                                                                     \
                int earlier = 0;                                                                                          \
                _Pragma("omp simd reduction(| : earlier)") for (int64_t k = 0; k < label[i]; k++) earlier |= p[k] == most; \
                hit = !earlier;                                                                                           \
            }                                                                                                             \
            confidence[i] = most > 1 ? 1 : most; /* by rounding, as the row sums to one */                                \
            correct[i] = (uint8_t)hit;                                                                                    \
            total[i] = sum;                                                                                               \
            lowest[i] = least;                                                                                            \
        }                                                                                                                 \
    }

SCAN(scan_float, float)
SCAN(scan_double, double)

/* Sums of `bins` bins: rows count, correct, high, low. A confidence is high / tick + low / tick^2, both whole numbers. */
INLINE double high_part(double scaled) {
    double nearest = (scaled + EVEN) - EVEN; /* floor, without leaving vectors of doubles */
    return nearest > scaled ? nearest - 1 : nearest;
}

INLINE double low_part(double scaled, double high, double tick) { return ((scaled - high) * tick + EVEN) - EVEN; }

INLINE void add_row(double *bin, int64_t bins, double confidence, double correct, double tick) {
    double scaled = confidence * tick, high = high_part(scaled);
    bin[0] += 1;
    bin[bins] += correct;
    bin[2 * bins] += high;
    bin[3 * bins] += low_part(scaled, high, tick);
}

/* Of equal widths only the nearest edge can matter. */
INLINE int64_t equal_bin(double value, int64_t bins, const double *edges) {
    int64_t nearest = (int64_t)(value * (double)bins + 0.5);
    int64_t bin = nearest - (value < edges[nearest]);
    return bin < bins ? bin : bins - 1;
}

/* A row of index -1 is left out. */
static void collect_rows(const int64_t *index, const double *confidence, const uint8_t *correct, int64_t rows, int64_t bins,
                         double tick, double *sums) {
    for (int64_t i = 0; i < rows; i++)
        if (index[i] >= 0) add_row(sums + index[i], bins, confidence[i], correct[i], tick);
}

static void collect_equal_rows(const double *confidence, const uint8_t *correct, int64_t rows, int64_t bins, const double *edges,
                               double tick, double *sums) {
    for (int64_t i = 0; i < rows; i++)
        add_row(sums + equal_bin(confidence[i], bins, edges), bins, confidence[i], correct[i], tick);
}

/* sums: 4 x classes x bins. first: 2 x classes zeros to work in, high and low of the first bins. */
#define COLLECT_CLASSES(NAME, REAL)                                                                                            \
    VECTORISED static void NAME(const REAL *p, const int64_t *label, int64_t rows, int64_t classes, int64_t bins,              \
                                const double *edges, double tick, double *sums, double *first) {                               \
        const int64_t all = classes * bins;                                                                                    \
        const double end = bins > 1 ? edges[1] : 2;                                                                            \
        for (int64_t i = 0; i < rows; i++, p += classes) {                                                                     \
            double others = 0;                                                                                                 \
            _Pragma("omp simd reduction(+ : others)") for (int64_t k = 0; k < classes; k++) {                                  \
                double value = p[k] < 1 ? p[k] : 1; /* a row may overshoot one by rounding */                                  \
                double scaled = value * tick, high = high_part(scaled), low = low_part(scaled, high, tick);                    \
                double inside = value < end ? 1 : 0;                                                                           \
                first[k] += inside * high;                                                                                     \
                first[classes + k] += inside * low;                                                                            \
                others += 1 - inside;                                                                                          \
            }                                                                                                                  \
            for (int64_t k = 0; others > 0; k++)                                                                               \
                if (p[k] >= end) {                                                                                             \
                    double value = p[k] < 1 ? p[k] : 1;                                                                        \
                    add_row(sums + k * bins + equal_bin(value, bins, edges), all, value, 0, tick);                             \
                    others -= 1;                                                                                               \
                }                                                                                                              \
            double own = p[label[i]] < 1 ? p[label[i]] : 1;                                                                    \
            sums[all + label[i] * bins + equal_bin(own, bins, edges)] += 1;                                                    \
        }                                                                                                                      \
        for (int64_t k = 0; k < classes; k++) {                                                                                \
            double others = 0;                                                                                                 \
            for (int64_t b = 1; b < bins; b++) others += sums[k * bins + b];                                                   \
            sums[k * bins] = (double)rows - others;                                                                            \
            sums[2 * all + k * bins] = first[k];                                                                               \
            sums[3 * all + k * bins] = first[classes + k];                                                                     \
        }                                                                                                                      \
    }

COLLECT_CLASSES(collect_classes_float, float)
COLLECT_CLASSES(collect_classes_double, double)

#define AT(TYPE, ADDRESS) ((TYPE *)(uintptr_t)(ADDRESS))
typedef unsigned long long address;

static PyObject *scan(PyObject *self, PyObject *args) {
    address p, label, confidence, correct, total, lowest;
    long long rows, classes;
    int wide;
    if (!PyArg_ParseTuple(args, "pKKLLKKKK", &wide, &p, &label, &rows, &classes, &confidence, &correct, &total, &lowest)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    if (wide)
        scan_double(AT(double, p), AT(int64_t, label), rows, classes, AT(double, confidence), AT(uint8_t, correct), AT(double, total),
                    AT(double, lowest));
    else
        scan_float(AT(float, p), AT(int64_t, label), rows, classes, AT(float, confidence), AT(uint8_t, correct), AT(float, total),
                   AT(float, lowest));
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *collect(PyObject *self, PyObject *args) {
    address index, confidence, correct, sums;
    long long rows, bins;
    double tick;
    if (!PyArg_ParseTuple(args, "KKKLLdK", &index, &confidence, &correct, &rows, &bins, &tick, &sums)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    collect_rows(AT(int64_t, index), AT(double, confidence), AT(uint8_t, correct), rows, bins, tick, AT(double, sums));
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *collect_equal(PyObject *self, PyObject *args) {
    address confidence, correct, edges, sums;
    long long rows, bins;
    double tick;
    if (!PyArg_ParseTuple(args, "KKLLKdK", &confidence, &correct, &rows, &bins, &edges, &tick, &sums)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    collect_equal_rows(AT(double, confidence), AT(uint8_t, correct), rows, bins, AT(double, edges), tick, AT(double, sums));
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *collect_classes(PyObject *self, PyObject *args) {
    address p, label, edges, sums, first;
    long long rows, classes, bins;
    double tick;
    int wide;
    if (!PyArg_ParseTuple(args, "pKKLLLKdKK", &wide, &p, &label, &rows, &classes, &bins, &edges, &tick, &sums, &first)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    if (wide)
        collect_classes_double(AT(double, p), AT(int64_t, label), rows, classes, bins, AT(double, edges), tick, AT(double, sums),
                               AT(double, first));
    else
        collect_classes_float(AT(float, p), AT(int64_t, label), rows, classes, bins, AT(double, edges), tick, AT(double, sums),
                              AT(double, first));
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *scores(PyObject *self, PyObject *args) {
    address z, most, label, nll, brier;
    long long rows, classes;
    double scale;
    int wide;
    if (!PyArg_ParseTuple(args, "pKKKLLdKK", &wide, &z, &most, &label, &rows, &classes, &scale, &nll, &brier)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    score_rows(AT(void, z), wide, AT(void, most), AT(int64_t, label), rows, classes, scale, AT(double, nll), AT(double, brier));
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *slopes(PyObject *self, PyObject *args) {
    address z, most, label, out;
    long long rows, classes;
    double nll_scale, brier_scale;
    int fine, wide;
    if (!PyArg_ParseTuple(args, "ppKKKLLddK", &fine, &wide, &z, &most, &label, &rows, &classes, &nll_scale, &brier_scale, &out))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    (fine ? slopes_double : slopes_float)(AT(void, z), wide, AT(void, most), AT(int64_t, label), rows, classes, nll_scale,
                                          brier_scale, AT(double, out));
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

/* stream: what Stream keeps of N x K probabilities, in one trip through memory: the sums of collect over bins of any edges, and the
 * sums of NLL, Brier and their squares. Stops at the first row that is not a row of probabilities and returns its index, else -1.
 * A row is divided by its sum, which is one within rounding. A label's probability that is too small for its type makes way for
 * the difference of the logits, where there are logits. */
#include <math.h>

typedef struct {
    const double *edges; /* bins + 1, ascending */
    const int64_t *first; /* cells + 1: the bin of the lower end of each of `cells` equal stretches of 0 to 1 */
    int64_t bins, cells;
} grid;

static int64_t bin_of(const grid *g, double confidence) {
    int64_t cell = (int64_t)(confidence * (double)g->cells), low = g->first[cell], high = g->first[cell < g->cells ? cell + 1 : cell];
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (confidence >= g->edges[middle])
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

#define LOOK_AT_STREAMED_ROW                                                                                              \
    for (int64_t k = 0; k < classes; k++) {                                                                               \
        most = p[k] > most ? p[k] : most;                                                                                 \
        least = p[k] < least ? p[k] : least;                                                                              \
        sum += p[k];                                                                                                      \
        square += (double)p[k] * p[k];                                                                                    \
    }

#define STREAM(NAME, REAL, TINY)                                                                                          \
    VECTORISED static int64_t NAME(const REAL *p, const REAL *logits, const int64_t *label, int64_t rows, int64_t classes, \
                                   double tolerance, const grid *g, double tick, double *sums, double *scores) {          \
        const double even = 6755399441055744.0; /* as in collect_rows */                                                  \
        double nlls = 0, nll_squares = 0, briers = 0, brier_squares = 0;                                                  \
        for (int64_t i = 0; i < rows; i++, p += classes) {                                                                \
            REAL most = p[0], least = p[0], own = p[label[i]];                                                            \
            double sum = 0, square = 0;                                                                                   \
            if (classes < 32) {                                                                                           \
                LOOK_AT_STREAMED_ROW                                                                                      \
            } else {                                                                                                      \
                _Pragma("omp simd reduction(max : most) reduction(min : least) reduction(+ : sum, square)")               \
                LOOK_AT_STREAMED_ROW                                                                                      \
            }                                                                                                             \
            if (!(least >= 0 && fabs(sum - 1) <= tolerance)) return i; /* also for NaN */                                 \
            int hit = own == most;                                                                                        \
            if (hit && most <= TIE)                                                                                       \
                for (int64_t k = 0; k < label[i]; k++) hit &= p[k] != most;                                               \
            double confidence = most > 1 ? 1 : most, share = own / sum, nll;                                              \
            if (logits && own < TINY) {                                                                                   \
                const REAL *z = logits + i * classes;                                                                     \
                double top = z[0];                                                                                        \
                for (int64_t k = 1; k < classes; k++) top = z[k] > top ? z[k] : top;                                      \
                nll = top - z[label[i]] - log(most / sum);                                                                \
            } else                                                                                                        \
                nll = -log(share);                                                                                        \
            double brier = 1 + square / (sum * sum) - 2 * share;                                                          \
            nlls += nll, nll_squares += nll * nll, briers += brier, brier_squares += brier * brier;                       \
            double *bin = sums + bin_of(g, confidence), scaled = confidence * tick, high = (double)(int64_t)scaled;       \
            bin[0] += 1;                                                                                                  \
            bin[g->bins] += hit;                                                                                          \
            bin[2 * g->bins] += high;                                                                                     \
            bin[3 * g->bins] += ((scaled - high) * tick + even) - even;                                                   \
        }                                                                                                                 \
        scores[0] += nlls, scores[1] += briers, scores[2] += nll_squares, scores[3] += brier_squares;                     \
        return -1;                                                                                                        \
    }

STREAM(stream_float, float, 1e-30f)
STREAM(stream_double, double, 1e-290)

static PyObject *stream(PyObject *self, PyObject *args) {
    address p, logits, label, edges, first, sums, scores;
    long long rows, classes, bins, cells, wrong;
    double tolerance, tick;
    int wide;
    if (!PyArg_ParseTuple(args, "pKKKLLdKLKLdKK", &wide, &p, &logits, &label, &rows, &classes, &tolerance, &edges, &bins, &first, &cells,
                          &tick, &sums, &scores))
        return NULL;
    grid g = {AT(double, edges), AT(int64_t, first), bins, cells};
    Py_BEGIN_ALLOW_THREADS;
    if (wide)
        wrong = stream_double(AT(double, p), AT(double, logits), AT(int64_t, label), rows, classes, tolerance, &g, tick,
                              AT(double, sums), AT(double, scores));
    else
        wrong = stream_float(AT(float, p), AT(float, logits), AT(int64_t, label), rows, classes, tolerance, &g, tick,
                             AT(double, sums), AT(double, scores));
    Py_END_ALLOW_THREADS;
    return PyLong_FromLongLong(wrong);
}

/* stream_logits: the same of float logits, in one trip as well: largest logit, sum of exponentials, top label and the label's
 * probability, SIDE rows side by side and in double. A confidence is rounded to float, as that of float probabilities is. The label
 * is right where its logit is the first of the largest. Returns the first row that is not finite, else -1. */
INLINE float largest(const float *z, int64_t classes) {
    float most = z[0];
    if (classes < 32)
        for (int64_t k = 1; k < classes; k++) most = z[k] > most ? z[k] : most;
    else {
        _Pragma("omp simd reduction(max : most)") for (int64_t k = 1; k < classes; k++) most = z[k] > most ? z[k] : most;
    }
    return most;
}

INLINE int first_largest(const float *z, float most, int64_t label) {
    int hit = z[label] == most;
    for (int64_t k = 0; hit && k < label; k++) hit = z[k] != most;
    return hit;
}

typedef struct {
    lanes sum, squares; /* of the exponentials */
    lanes flaw;         /* 0, but NaN where a logit is not finite */
} exponentials;

INLINE void add_lanes(const lanes far, exponentials *a) {
    EACH_ROW {
        double e = exp_double(far[r] > LOWEST_double ? far[r] : LOWEST_double);
        a->sum[r] += e, a->squares[r] += e * e, a->flaw[r] += far[r] * 0;
    }
}

/* Short rows side by side. */
INLINE void add_turned(tile_double x, int64_t many, exponentials *a) {
    for (int64_t k = 0; k < many; k++) add_lanes(x[k], a);
}

/* A long row fills the lanes by itself. */
INLINE void add_long_row(const float *z, double most, int64_t classes, int row, exponentials *a) {
    exponentials part = {{0}, {0}, {0}};
    lanes far;
    int64_t k = 0;
    for (; k + SIDE <= classes; k += SIDE) {
        EACH_ROW far[r] = z[k + r] - most;
        add_lanes(far, &part);
    }
    for (int r = 0; r < SIDE; r++) far[r] = k + r < classes ? z[k + r] - most : LOWEST_double;
    if (k < classes) add_lanes(far, &part);
    for (int r = 0; r < SIDE; r++)
        a->sum[row] += part.sum[r], a->squares[row] += part.squares[r], a->flaw[row] += part.flaw[r];
}

VECTORISED static int64_t stream_logit_rows(const float *logits, const int64_t *label, int64_t rows, int64_t classes,
                                            const grid *g, double tick, double *sums, double *scores) {
    lanes total[4] = {{0}};
    for (int64_t from = 0; from < rows; from += SIDE) {
        int64_t here = rows - from < SIDE ? rows - from : SIDE;
        const float *z = logits + from * classes;
        float most[SIDE], confidence[SIDE];
        for (int64_t r = 0; r < here; r++) most[r] = largest(z + r * classes, classes);
        strip it = strip_from(z, 0, most, label + from, 0, here, classes);
        exponentials a = {{0}, {0}, {0}};
        tile_double x;
        if (classes < 32)
            add_turned(x, turn_double(&it, 0, x), &a);
        else
            for (int r = 0; r < SIDE; r++) add_long_row(z + it.place[r], it.most[r], classes, r, &a);
        EACH_ROW {
            double e = exp_double(it.own[r] > LOWEST_double ? it.own[r] : LOWEST_double), over = 1 / a.sum[r];
            double nll = log_double(a.sum[r]) - it.own[r], brier = 1 + a.squares[r] * over * over - 2 * e * over;
            total[0][r] += it.counts[r] * nll, total[1][r] += it.counts[r] * brier;
            total[2][r] += it.counts[r] * nll * nll, total[3][r] += it.counts[r] * brier * brier;
            confidence[r] = (float)over;
        }
        for (int64_t r = 0; r < here; r++) {
            if (a.flaw[r] != 0) return from + r;
            int hit = first_largest(z + r * classes, most[r], label[from + r]);
            add_row(sums + bin_of(g, confidence[r]), g->bins, confidence[r], hit, tick);
        }
    }
    for (int j = 0; j < 4; j++)
        for (int r = 0; r < SIDE; r++) scores[j] += total[j][r];
    return -1;
}

static PyObject *stream_logits(PyObject *self, PyObject *args) {
    address logits, label, edges, first, sums, scores;
    long long rows, classes, bins, cells, wrong;
    double tick;
    if (!PyArg_ParseTuple(args, "KKLLKLKLdKK", &logits, &label, &rows, &classes, &edges, &bins, &first, &cells, &tick, &sums, &scores))
        return NULL;
    grid g = {AT(double, edges), AT(int64_t, first), bins, cells};
    Py_BEGIN_ALLOW_THREADS;
    wrong = stream_logit_rows(AT(float, logits), AT(int64_t, label), rows, classes, &g, tick, AT(double, sums), AT(double, scores));
    Py_END_ALLOW_THREADS;
    return PyLong_FromLongLong(wrong);
}

static PyMethodDef methods[] = {
    {"scan", scan, METH_VARARGS, "scan(wide, probs, labels, rows, classes, confidence, correct, totals, lowest)"},
    {"collect", collect, METH_VARARGS, "collect(index, confidence, correct, rows, bins, tick, sums)"},
    {"collect_equal", collect_equal, METH_VARARGS, "collect_equal(confidence, correct, rows, bins, edges, tick, sums)"},
    {"collect_classes", collect_classes, METH_VARARGS,
     "collect_classes(wide, probs, labels, rows, classes, bins, edges, tick, sums, first)"},
    {"scores", scores, METH_VARARGS, "scores(wide, scores, most, labels, rows, classes, scale, nll, brier)"},
    {"slopes", slopes, METH_VARARGS, "slopes(fine, wide, scores, most, labels, rows, classes, nll_scale, brier_scale, sums)"},
    {"stream", stream, METH_VARARGS,
     "stream(wide, probs, logits, labels, rows, classes, tolerance, edges, bins, first, cells, tick, sums, scores)"},
    {"stream_logits", stream_logits, METH_VARARGS,
     "stream_logits(logits, labels, rows, classes, edges, bins, first, cells, tick, sums, scores)"},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__kernels(void) { return PyModule_Create(&module); }
