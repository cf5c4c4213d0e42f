/* The two inner loops of the metrics that are worth a compiler. inputs.py and bins.py hold the same in torch operations, for other
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

static PyMethodDef methods[] = {
    {"scan", scan, METH_VARARGS, "scan(wide, probs, labels, rows, classes, confidence, correct, totals, lowest)"},
    {"collect", collect, METH_VARARGS, "collect(index, confidence, correct, rows, bins, tick, sums)"},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__kernels(void) { return PyModule_Create(&module); }
