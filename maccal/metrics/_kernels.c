/* The inner loops of the metrics that are worth a compiler. inputs.py and bins.py hold the same in torch operations, for other
 * devices and types and for installs without a compiler; tests compare the two.
 *
 * scan: top_label in one trip through memory: the largest value, the hit, the sum and the least value of every row of N x K
 * probabilities. The loop over a row is vectorised for the machine it runs on (chosen at load time where the toolchain can). Of equal
 * values the first counts as the largest, as with argmax; as rows sum to one, values tie for the maximum only at or below one half.
 * NaN and infinity show in the sum.
 *
 * collect: how many rows each bin holds, how many were right, and the sum of their confidences in fixed point, as two whole numbers.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define TIE 0.51

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTORISED
#endif
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

/* Rows count, correct, high, low of `bins` bins; a row of index -1 is left out. */
static void collect_rows(const int64_t *index, const double *confidence, const uint8_t *correct, int64_t rows, int64_t bins,
                         double tick, double *sums) {
    const double even = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to the nearest whole number, halves to even */
    for (int64_t i = 0; i < rows; i++) {
        if (index[i] < 0) continue;
        double *bin = sums + index[i];
        double scaled = confidence[i] * tick, high = (double)(int64_t)scaled;
        bin[0] += 1;
        bin[bins] += correct[i];
        bin[2 * bins] += high;
        bin[3 * bins] += ((scaled - high) * tick + even) - even;
    }
}

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

static PyMethodDef methods[] = {
    {"scan", scan, METH_VARARGS, "scan(wide, probs, labels, rows, classes, confidence, correct, totals, lowest)"},
    {"collect", collect, METH_VARARGS, "collect(index, confidence, correct, rows, bins, tick, sums)"},
    {"stream", stream, METH_VARARGS,
     "stream(wide, probs, logits, labels, rows, classes, tolerance, edges, bins, first, cells, tick, sums, scores)"},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__kernels(void) { return PyModule_Create(&module); }
