"""What each peer is asked to do: for every feature the lines that are run in its environment.

The lines see

    probs labels logits        2,000 rows of 5 classes in numpy, too sure by a temperature of 1.5
    P Y L                      the same as tensors, in float32, labels in int64
    confidence correct         of the top label, in numpy
    edge                       three rows of confidence 0.95 (right), 1.0 (wrong) and 0.5 (right)
    model loader               a torch network and batches of its inputs and labels
    z_train y_train            features and labels, in numpy

and leave what they found in `answer`. A feature for which a peer has no lines is looked for by the
words of FEATURES among the names that the peer's source defines.
"""

# feature: words that a name of it would contain
FEATURES = {
    "ECE of top-label confidence": r"calibration_?error|(^|_)ece",
    "a confidence of exactly 1 is in the last bin": r"calibration_?error|(^|_)ece",
    "interval of the ECE": r"(ece|calibration).*(interval|_ci)$",
    "test of perfect calibration": r"calibration.*(p_?value|test$)",
    "reliability diagram": r"reliability|calibration_?(curve|display)|rel_diagram",
    "sums that add up over batches": r"calibration_?(error)?_?(metric|stream)",
    "proper score split into refinement and calibration": r"refinement|score_decomposition",
    "temperature scaling": r"temperature",
    "vector, matrix or Dirichlet scaling": r"vector_?scal|matrix_?scal|dirichlet_?(cal|scal)",
    "isotonic or histogram calibration": r"isotonic|histogram",
    "Venn-Abers": r"venn",
    "calibrates a torch model": r"calibrate(d)?_?model",
    "and gives back a model of the same type": r"calibrate(d)?_?model",
    "calibration without held-out labels": r"unlabel|without_labels|feedback",
    "losses that calibrate in training": r"focal|mmce|label_?smooth|logitnorm",
    "conformal sets": r"conformal|split_?predictor",
    "risk against coverage": r"aurc|risk_?cov|selective",
    "answers at a promised risk, else none": r"risk_?control|abstain|ltt_?control",
    "calibration of every group, corrected for their number": r"(by|per)_?group|group_?(ece|cal)",
    "an alarm in use that may be looked at any time": r"risk_?monitor|martingale|drift",
    "scores out of distribution": r"energy_?based|max_?softmax|fpr95|(^|_)ood|out_of_dist",
    "posterior over weights or ensembles": r"laplace$|deep_?ensemble|bayes",
    "regression": r"regressor|regression",
    "command line": r"$^",  # an entry point, which `program` looks for
}
# features that a peer has only if its answer is this
WANTED = {
    "a confidence of exactly 1 is in the last bin": 29 / 60,  # in a bin of its own: 31 / 60
    "and gives back a model of the same type": True,
}

FROZEN = (
    "from sklearn.calibration import CalibratedClassifierCV\n"
    "from sklearn.frozen import FrozenEstimator\n"
    "from sklearn.linear_model import LogisticRegression\n"
    "trained = LogisticRegression().fit(z_train[:500], y_train[:500])\n"
)
TU = "from torch_uncertainty.post_processing import {name}\n"
TU_METRIC = "from torch_uncertainty.metrics.classification import {name}\n"
PROBMETRICS = (
    "from probmetrics.calibrators import {name}\n"
    "answer = {name}().fit(probs, labels).predict_proba(probs)[0].round(3).tolist()"
)
# torchsort, which TorchCP imports for two of its losses, does not build on every machine
TORCHSORT = "import sys, unittest.mock\nsys.modules['torchsort'] = unittest.mock.MagicMock()\n"
PLOT = "import matplotlib\nmatplotlib.use('agg')\n"

CALLS: dict[str, dict[str, str]] = {
    "maccal": {
        "ECE of top-label confidence": (
            "import maccal\nanswer = maccal.summary(probs, labels)['ece']"
        ),
        "a confidence of exactly 1 is in the last bin": (
            "import maccal\nanswer = maccal.summary(*edge, bins=10)['ece']"
        ),
        "interval of the ECE": (
            "import maccal\nfound = maccal.summary(probs, labels, interval=True)\n"
            "answer = [found['ece_low'], found['ece_high']]"
        ),
        "test of perfect calibration": (
            "import maccal\nanswer = maccal.summary(probs, labels, interval=True)['p_value']"
        ),
        "reliability diagram": "import maccal\nanswer = maccal.reliability(probs, labels)",
        "sums that add up over batches": (
            "import maccal\n"
            "first = maccal.Stream.of(probs[:999], labels[:999])\n"
            "second = maccal.Stream.of(probs[999:], labels[999:])\n"
            "answer = (first + second).summary()['ece']"
        ),
        "proper score split into refinement and calibration": (
            "from maccal.metrics import nll_split\nanswer = nll_split(probs, labels)"
        ),
        "temperature scaling": (
            "import maccal\nanswer = maccal.TemperatureScaling().fit(logits, labels).temperature_"
        ),
        "vector, matrix or Dirichlet scaling": (
            "import maccal\n"
            "fitted = maccal.StructuredMatrixScaling().fit(logits, labels)\n"
            "answer = fitted.predict_proba(logits)[0].round(3).tolist()"
        ),
        "isotonic or histogram calibration": (
            "import maccal\n"
            "fitted = maccal.IsotonicCalibration().fit(logits, labels)\n"
            "answer = fitted.predict_proba(logits)[0].round(3).tolist()"
        ),
        "Venn-Abers": (
            "import maccal\n"
            "fitted = maccal.VennAbersCalibration().fit(logits, labels)\n"
            "answer = fitted.predict_proba(logits)[0].round(3).tolist()"
        ),
        "calibrates a torch model": (
            "import maccal\nanswer = type(maccal.calibrate(model, loader, val=loader)).__name__"
        ),
        "and gives back a model of the same type": (
            "import maccal\n"
            "answer = type(maccal.calibrate(model, loader, val=loader)) is type(model)"
        ),
        "calibration without held-out labels": (
            "import maccal\nanswer = type(maccal.calibrate(model, loader, accuracy=0.6)).__name__"
        ),
        "losses that calibrate in training": (
            "from maccal.methods.losses import focal\nanswer = float(focal(L, Y, gamma=3.0))"
        ),
        "conformal sets": (
            "import maccal\n"
            "sets = maccal.ConformalSets('aps', coverage=0.9).fit(probs[:1000], labels[:1000])\n"
            "answer = sets.predict(probs[1000:]).sum(1).mean()"
        ),
        "answers at a promised risk, else none": (
            "import maccal\n"
            "answering = maccal.AbstainingClassifier(risk=0.2).fit(probs[:1000], labels[:1000])\n"
            "answer = answering.measure(probs[1000:], labels[1000:])"
        ),
        "calibration of every group, corrected for their number": (
            "import maccal\n"
            "lines = maccal.by_group(probs, labels, np.arange(2000) % 2)\n"
            "answer = [line['p_holm'] for line in lines]"
        ),
        "an alarm in use that may be looked at any time": (
            "import maccal, tempfile\n"
            "watch = maccal.Monitor.create(tempfile.mkdtemp() + '/state')\n"
            "watch.add(probs, labels)\n"
            "answer = watch.standing().fired"
        ),
        "risk against coverage": (
            "from maccal.metrics import aurc\nanswer = aurc(confidence, correct)"
        ),
        "scores out of distribution": (
            "from maccal.metrics import auroc, energy\nanswer = auroc(energy(L), energy(L / 3))"
        ),
    },
    "torch-uncertainty": {
        "ECE of top-label confidence": (
            TU_METRIC.format(name="CalibrationError")
            + "metric = CalibrationError(task='multiclass', num_classes=5, num_bins=15)\n"
            "answer = float(metric(P, Y))"
        ),
        "a confidence of exactly 1 is in the last bin": (
            TU_METRIC.format(name="CalibrationError")
            + "metric = CalibrationError(task='multiclass', num_classes=3, num_bins=10)\n"
            "answer = float(metric(torch.tensor(edge[0]), torch.tensor(edge[1])))"
        ),
        "reliability diagram": (
            PLOT
            + TU_METRIC.format(name="CalibrationError")
            + "metric = CalibrationError(task='multiclass', num_classes=5, num_bins=15)\n"
            "metric.update(P, Y)\nanswer = metric.plot()[0]"
        ),
        "sums that add up over batches": (
            TU_METRIC.format(name="CalibrationError")
            + "metric = CalibrationError(task='multiclass', num_classes=5, num_bins=15)\n"
            "metric.update(P[:999], Y[:999])\nmetric.update(P[999:], Y[999:])\n"
            "answer = float(metric.compute())"
        ),
        "temperature scaling": (
            TU.format(name="TemperatureScaler")
            + "scaler = TemperatureScaler(model=model)\nscaler.fit(loader, progress=False)\n"
            "answer = float(scaler.temperature[0])"
        ),
        "vector, matrix or Dirichlet scaling": (
            TU.format(name="VectorScaler") + "scaler = VectorScaler(num_classes=5, model=model)\n"
            "scaler.fit(loader, progress=False)\n"
            "answer = [round(float(x), 3) for x in scaler(next(iter(loader))[0])[0]]"
        ),
        "isotonic or histogram calibration": (
            TU.format(name="HistogramBinningScaler")
            + "scaler = HistogramBinningScaler(model=model)\n"
            "scaler.fit(loader, progress=False)\n"
            "answer = [round(float(x), 3) for x in scaler(next(iter(loader))[0])[0]]"
        ),
        "calibrates a torch model": (
            TU.format(name="TemperatureScaler")
            + "scaler = TemperatureScaler(model=model)\nscaler.fit(loader, progress=False)\n"
            "answer = isinstance(scaler, torch.nn.Module)"
        ),
        "and gives back a model of the same type": (
            TU.format(name="TemperatureScaler")
            + "answer = type(TemperatureScaler(model=model)) is type(model)"
        ),
        "losses that calibrate in training": (
            "from torch_uncertainty.losses import FocalLoss\n"
            "answer = float(FocalLoss(gamma=3.0)(L, Y))"
        ),
        "conformal sets": (
            TU.format(name="ConformalClsTHR")
            + "sets = ConformalClsTHR(alpha=0.1, model=model)\nsets.fit(loader)\n"
            "answer = float(sets.quantile)"
        ),
        "risk against coverage": (TU_METRIC.format(name="AURC") + "answer = float(AURC()(P, Y))"),
        "scores out of distribution": (
            TU_METRIC.format(name="FPR95") + "metric = FPR95(pos_label=1)\n"
            "metric.update(torch.linspace(0, 1, 10), torch.arange(10) // 5)\n"
            "answer = float(metric.compute())"
        ),
        "posterior over weights or ensembles": (
            "from torch_uncertainty.methods import mc_dropout\n"
            "dropped = torch.nn.Sequential(torch.nn.Dropout(0.1), model)\n"
            "answer = type(mc_dropout(dropped, 4)).__name__"
        ),
        "regression": (
            "from torch_uncertainty.losses import BetaNLL\n"
            "answer = float(BetaNLL(0.5)(torch.zeros(4), torch.ones(4), torch.ones(4)))"
        ),
    },
    "probmetrics": {
        "ECE of top-label confidence": (
            "from probmetrics.metrics import Metrics\n"
            "from probmetrics.distributions import CategoricalProbs\n"
            "found = Metrics.from_names(['ece-15']).compute_all_from_labels_probs(Y, P)\n"
            "answer = {key: float(value) for key, value in found.items()}"
        ),
        "a confidence of exactly 1 is in the last bin": (
            "from probmetrics.metrics import CalibrationError\n"
            "from probmetrics.distributions import CategoricalProbs, CategoricalDirac\n"
            "metric = CalibrationError(n_bins=10)\n"
            "probabilities = CategoricalProbs(torch.tensor(edge[0]))\n"
            "truth = CategoricalDirac(torch.tensor(edge[1]), n_classes=3)\n"
            "answer = float(next(iter(metric.compute_all(truth, probabilities).values())))"
        ),
        "proper score split into refinement and calibration": (
            "from probmetrics.calibrators import TemperatureScalingCalibrator\n"
            "from probmetrics.splitters import AllSplitter\n"
            "from probmetrics.metrics import MetricsWithCalibration, LogLoss\n"
            "calibrator = TemperatureScalingCalibrator()\n"
            "metric = MetricsWithCalibration(LogLoss(), calibrator, AllSplitter(), cal_name='ts')\n"
            "found = metric.compute_all_from_labels_probs(Y, P)\n"
            "answer = {key: round(float(value), 4) for key, value in found.items()}"
        ),
        "temperature scaling": PROBMETRICS.format(name="TemperatureScalingCalibrator"),
        "vector, matrix or Dirichlet scaling": PROBMETRICS.format(name="SMSCalibrator"),
        "isotonic or histogram calibration": (
            "from probmetrics.calibrators import get_calibrator\n"
            "fitted = get_calibrator('isotonic').fit(probs, labels)\n"
            "answer = fitted.predict_proba(probs)[0].round(3).tolist()"
        ),
        "Venn-Abers": PROBMETRICS.format(name="VennAbersCalibrator"),
        "regression": ("from probmetrics.metrics import RMSE\nanswer = RMSE().name"),
    },
    "netcal": {
        "ECE of top-label confidence": (
            "from netcal.metrics import ECE\nanswer = ECE(15).measure(probs, labels)"
        ),
        "a confidence of exactly 1 is in the last bin": (
            "from netcal.metrics import ECE\nanswer = ECE(10).measure(*edge)"
        ),
        "reliability diagram": (
            PLOT + "from netcal.presentation import ReliabilityDiagram\n"
            "answer = ReliabilityDiagram(15).plot(probs, labels)"
        ),
        "temperature scaling": (
            "from netcal.scaling import TemperatureScaling\n"
            "answer = TemperatureScaling().fit(probs, labels).transform(probs)[0].round(3).tolist()"
        ),
        "isotonic or histogram calibration": (
            "from netcal.binning import HistogramBinning\n"
            "answer = HistogramBinning(15).fit(probs, labels).transform(probs)[0].round(3).tolist()"
        ),
        "losses that calibrate in training": (
            "from netcal.regularization import MMCEPenalty\nanswer = float(MMCEPenalty()(L, Y))"
        ),
        "regression": (
            "from netcal.regression import IsotonicRegression\n"
            "answer = type(IsotonicRegression()).__name__"
        ),
    },
    "torchmetrics": {
        "ECE of top-label confidence": (
            "from torchmetrics.functional.classification import multiclass_calibration_error\n"
            "answer = float(multiclass_calibration_error(P, Y, 5, 15))"
        ),
        "a confidence of exactly 1 is in the last bin": (
            "from torchmetrics.functional.classification import multiclass_calibration_error\n"
            "answer = float(multiclass_calibration_error(*map(torch.tensor, edge), 3, 10))"
        ),
        "interval of the ECE": (
            "from torchmetrics.classification import MulticlassCalibrationError\n"
            "from torchmetrics.wrappers import BootStrapper\n"
            "bounds = torch.tensor([0.025, 0.975])\n"
            "metric = BootStrapper(MulticlassCalibrationError(5), 20, quantile=bounds)\n"
            "metric.update(P, Y)\nanswer = metric.compute()['quantile'].tolist()"
        ),
        "sums that add up over batches": (
            "from torchmetrics.classification import MulticlassCalibrationError\n"
            "metric = MulticlassCalibrationError(5)\n"
            "metric.update(P[:999], Y[:999])\nmetric.update(P[999:], Y[999:])\n"
            "answer = float(metric.compute())"
        ),
        "regression": (
            "from torchmetrics.functional import mean_squared_error\n"
            "answer = float(mean_squared_error(P, P))"
        ),
    },
    "scikit-learn": {
        "reliability diagram": (
            PLOT + "from sklearn.calibration import CalibrationDisplay\n"
            "answer = CalibrationDisplay.from_predictions(correct, confidence)"
        ),
        "temperature scaling": FROZEN
        + "fitted = CalibratedClassifierCV(FrozenEstimator(trained), method='temperature')\n"
        "answer = fitted.fit(z_train[500:], y_train[500:]).predict_proba(z_train)[0].tolist()",
        "isotonic or histogram calibration": FROZEN
        + "fitted = CalibratedClassifierCV(FrozenEstimator(trained), method='isotonic')\n"
        "answer = fitted.fit(z_train[500:], y_train[500:]).predict_proba(z_train)[0].tolist()",
        "posterior over weights or ensembles": (
            "from sklearn.ensemble import BaggingClassifier\n"
            "fitted = BaggingClassifier(n_estimators=3).fit(z_train, y_train)\n"
            "answer = fitted.predict_proba(z_train)[0]"
        ),
        "regression": (
            "from sklearn.linear_model import BayesianRidge\n"
            "answer = BayesianRidge().fit(z_train, y_train).predict(z_train[:2], return_std=True)"
        ),
    },
    "relplot": {
        "ECE of top-label confidence": (
            "from relplot.metrics import binnedECE\nanswer = binnedECE(confidence, correct, 15)"
        ),
        "a confidence of exactly 1 is in the last bin": (
            "from relplot.metrics import binnedECE\n"
            "answer = binnedECE(edge[0].max(1), np.array([1.0, 0.0, 1.0]), 10)"
        ),
        "interval of the ECE": (
            "import relplot\n"
            "found = relplot.prepare_rel_diagram(confidence, correct, num_bootstrap=50)\n"
            "answer = sorted(key for key in found if 'ci' in key or 'boot' in key or 'band' in key)"
        ),
        "reliability diagram": (
            PLOT + "import relplot\nanswer = relplot.rel_diagram(confidence, correct)[0]"
        ),
    },
    "MAPIE": {
        "ECE of top-label confidence": (
            "from mapie.metrics.calibration import top_label_ece\n"
            "answer = top_label_ece(labels, probs, num_bins=15)"
        ),
        "a confidence of exactly 1 is in the last bin": (
            "from mapie.metrics.calibration import expected_calibration_error\n"
            "hits, scores = np.array([1, 0, 1]), edge[0].max(1)\n"
            "answer = expected_calibration_error(\n"
            "    hits, scores, num_bins=10, split_strategy='uniform'\n)"
        ),
        "test of perfect calibration": (
            "from mapie.metrics.calibration import kolmogorov_smirnov_p_value\n"
            "answer = kolmogorov_smirnov_p_value(correct, confidence)"
        ),
        "Venn-Abers": (
            "from mapie.calibration import VennAbersCalibrator\n"
            "from sklearn.linear_model import LogisticRegression\n"
            "answer = VennAbersCalibrator(LogisticRegression(), random_state=0)"
            ".fit(z_train, y_train).predict_proba(z_train)[0]"
        ),
        "answers at a promised risk, else none": (
            "from mapie.risk_control import MultiClassificationLTTController\n"
            "from mapie.risk_control.risks import build_precision_ovr\n"
            "from sklearn.linear_model import LogisticRegression\n"
            "trained = LogisticRegression().fit(z_train[:500], y_train[:500])\n"
            "control = MultiClassificationLTTController(\n"
            "    trained.predict_proba, build_precision_ovr(list(range(5))), [0.5] * 5\n)\n"
            "control.calibrate(z_train[500:], y_train[500:])\n"
            "answer = control.best_predict_param"
        ),
        "an alarm in use that may be looked at any time": (
            "from mapie.exchangeability_testing import RiskMonitoring\n"
            "watch = RiskMonitoring(risk='accuracy', warn=False)\n"
            "watch.compute_threshold(y_train[:500], y_train[:500])\n"
            "watch.update(y_train[500:], 0 * y_train[500:])\n"
            "answer = bool(watch.harmful_shift_detected)"
        ),
        "conformal sets": (
            "from mapie.classification import SplitConformalClassifier\n"
            "from sklearn.linear_model import LogisticRegression\n"
            "trained = LogisticRegression().fit(z_train[:500], y_train[:500])\n"
            "sets = SplitConformalClassifier(trained, confidence_level=0.9, prefit=True)\n"
            "sets.conformalize(z_train[500:], y_train[500:])\n"
            "answer = sets.predict_set(z_train[:1])[1][0, :, 0].tolist()"
        ),
        "regression": (
            "from mapie.regression import SplitConformalRegressor\n"
            "from sklearn.linear_model import LinearRegression\n"
            "trained = LinearRegression().fit(z_train[:500], y_train[:500])\n"
            "band = SplitConformalRegressor(trained, confidence_level=0.9, prefit=True)\n"
            "band.conformalize(z_train[500:], y_train[500:])\n"
            "answer = band.predict_interval(z_train[:1])[1].ravel().tolist()"
        ),
    },
    "TorchCP": {
        "temperature scaling": (
            TORCHSORT
            + "from torchcp.classification.trainer.model_zoo import TemperatureScalingModel\n"
            "answer = tuple(TemperatureScalingModel(model)(next(iter(loader))[0]).shape)"
        ),
        "conformal sets": (
            TORCHSORT + "from torchcp.classification.predictor import SplitPredictor\n"
            "from torchcp.classification.score import APS\n"
            "sets = SplitPredictor(APS(), model, alpha=0.1)\nsets.calibrate(loader)\n"
            "answer = float(sets.q_hat)"
        ),
        "regression": (
            TORCHSORT + "from torchcp.regression.score import ABS\nanswer = type(ABS()).__name__"
        ),
    },
    "laplace-torch": {
        "posterior over weights or ensembles": (
            "from laplace import Laplace\n"
            "fitted = Laplace(model, 'classification', 'last_layer', 'diag')\nfitted.fit(loader)\n"
            "answer = [round(float(x), 3) for x in fitted(next(iter(loader))[0])[0]]"
        ),
        "and gives back a model of the same type": (
            "from laplace import Laplace\n"
            "answer = type(Laplace(model, 'classification', 'last_layer', 'diag')) is type(model)"
        ),
        "regression": (
            "from laplace import Laplace\nanswer = Laplace(model, 'regression').likelihood"
        ),
    },
    "pytorch-ood": {
        "ECE of top-label confidence": (
            "from pytorch_ood.metrics.functional import calibration_error\n"
            "answer = calibration_error(torch.tensor(confidence), torch.tensor(correct), p='1')"
        ),
        "temperature scaling": (
            "from pytorch_ood.detector import TemperatureScaling\n"
            "answer = TemperatureScaling(model).fit(loader)"
        ),
        "losses that calibrate in training": (
            "from pytorch_ood.loss import LogitNorm\nanswer = float(LogitNorm()(L, Y))"
        ),
        "scores out of distribution": (
            "from pytorch_ood.detector import EnergyBased\n"
            "answer = float(EnergyBased(model)(next(iter(loader))[0])[0])"
        ),
    },
    "probly": {
        "ECE of top-label confidence": (
            "from probly.metrics import expected_calibration_error\n"
            "answer = expected_calibration_error(probs, labels, 15)"
        ),
        "a confidence of exactly 1 is in the last bin": (
            "from probly.metrics import expected_calibration_error\n"
            "answer = expected_calibration_error(*edge, 10)"
        ),
        "temperature scaling": (
            "from probly.calibration.temperature import Temperature\n"
            "fitted = Temperature(model)\nfitted.fit(loader)\nanswer = float(fitted.temperature)"
        ),
        "calibrates a torch model": (
            "from probly.calibration.temperature import Temperature\n"
            "fitted = Temperature(model)\nfitted.fit(loader)\n"
            "answer = isinstance(fitted, torch.nn.Module)"
        ),
        "and gives back a model of the same type": (
            "from probly.calibration.temperature import Temperature\n"
            "answer = type(Temperature(model)) is type(model)"
        ),
        "risk against coverage": (
            "from probly.tasks import selective_prediction\n"
            "answer = selective_prediction(-confidence, 1 - correct)[0]"
        ),
        "scores out of distribution": (
            "from probly.tasks import out_of_distribution_detection\n"
            "answer = out_of_distribution_detection(1 - confidence, 1 - confidence / 2)"
        ),
        "losses that calibrate in training": (
            "from probly.losses import FocalLoss\nanswer = float(FocalLoss()(L, Y))"
        ),
        "conformal sets": (
            "from probly.representation.conformalprediction import ConformalPrediction\n"
            "sets = ConformalPrediction(model)\nsets.calibrate(loader)\n"
            "answer = sets.predict_representation(next(iter(loader))[0])[0].tolist()"
        ),
        "posterior over weights or ensembles": (
            "from probly.representation import Ensemble\nanswer = type(Ensemble(model, 3)).__name__"
        ),
        "regression": (
            "from probly.quantification import regression\n"
            "answer = [name for name in dir(regression) if 'var' in name]"
        ),
    },
}
