"""scikit-learn's own checks of an estimator, as far as they fit calibrators of logits.

Its made-up data are features: fewer or more columns than classes, labels that the columns do not
tell, classes without a row. What calibrators of logits must refuse there is named below, with the
reason; every other check is passed.
"""

import pytest
from sklearn.utils.estimator_checks import check_estimator

from maccal.calibration import FAMILY

NOT_LOGITS = {
    "label outside the columns": "check_estimators_overwrite_params"
    " check_estimators_fit_returns_self check_readonly_memmap_input check_classifiers_train",
    "the columns do not tell the labels": "check_dont_overwrite_parameters"
    " check_f_contiguous_array_estimator check_methods_sample_order_invariance"
    " check_methods_subset_invariance check_dict_unchanged check_fit2d_1sample",
    "a class without a row": "check_positive_only_tag_during_fit check_pipeline_consistency"
    " check_estimators_pickle check_transformer_data_not_an_array check_transformer_general"
    " check_transformer_preserve_dtypes",
    "whole numbers are no logits": "check_estimators_dtypes check_classifier_data_not_an_array"
    " check_dtype_object",
    "refused in other words": "check_complex_data check_estimators_empty_data_messages"
    " check_estimators_nan_inf check_estimator_sparse_tag check_estimator_sparse_array"
    " check_estimator_sparse_matrix check_classifiers_regression_target check_fit2d_1feature"
    " check_fit2d_predict1d check_requires_y_none check_n_features_in_after_fitting",
    "labels are indices of columns, in one dimension": "check_classifiers_classes"
    " check_supervised_y_2d",
    "the second argument is called labels": "check_fit_score_takes_y",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FAMILY)
def test_checks(name):
    allowed = set(" ".join(NOT_LOGITS.values()).split())
    found = check_estimator(FAMILY[name](), on_fail=None)
    failed = {row["check_name"] for row in found if row["status"] == "failed"}
    assert failed <= allowed
    passed = {row["check_name"] for row in found if row["status"] == "passed"}
    assert {"check_estimators_unfitted", "check_no_attributes_set_in_init"} <= passed
