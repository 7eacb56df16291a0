"""Writes forests and boosted trees of scikit-learn, LightGBM and XGBoost, and what ONNX Runtime computes.

    python -m tests.system.census.trees FOLDER

It needs scikit-learn, skl2onnx, lightgbm, xgboost and onnxmltools.
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

_FEATURES, _CASES = 6, 3


def _estimators() -> Mapping[str, tuple[Any, str]]:
    ensemble, tree, linear = (
        importlib.import_module(f"sklearn.{name}") for name in ("ensemble", "tree", "linear_model")
    )
    lightgbm, xgboost = importlib.import_module("lightgbm"), importlib.import_module("xgboost")
    few = {"n_estimators": 6, "num_leaves": 6, "verbose": -1}
    return {
        "sklearn_forest": (ensemble.RandomForestClassifier(10, max_depth=4, random_state=1), "two"),
        "sklearn_extra_trees": (ensemble.ExtraTreesClassifier(5, max_depth=4, random_state=1), "three"),
        "sklearn_forest_regressor": (ensemble.RandomForestRegressor(5, max_depth=5, random_state=1), "real"),
        "sklearn_boosting": (ensemble.GradientBoostingClassifier(n_estimators=8, random_state=1), "two"),
        "sklearn_boosting_regressor": (
            ensemble.GradientBoostingRegressor(n_estimators=8, random_state=1),
            "real",
        ),
        "sklearn_tree": (tree.DecisionTreeClassifier(max_depth=5, random_state=1), "three"),
        "sklearn_logistic": (linear.LogisticRegression(), "three"),
        "lightgbm": (lightgbm.LGBMClassifier(**few), "two"),
        "lightgbm_of_three": (lightgbm.LGBMClassifier(**few), "three"),
        "lightgbm_regressor": (lightgbm.LGBMRegressor(**few), "real"),
        "xgboost": (xgboost.XGBClassifier(n_estimators=8, max_depth=4), "two"),
        "xgboost_regressor": (xgboost.XGBRegressor(n_estimators=8, max_depth=4), "real"),
    }


def _exported(name: str, estimator: Any, x: Any) -> Any:
    if name.startswith("sklearn"):
        options = {id(estimator): {"zipmap": False}} if hasattr(estimator, "predict_proba") else None
        return importlib.import_module("skl2onnx").to_onnx(estimator, x[:1], options=options)
    convert = importlib.import_module("onnxmltools.convert")
    types = importlib.import_module("onnxmltools.convert.common.data_types")
    given = [("x", types.FloatTensorType([1, _FEATURES]))]
    if name.startswith("lightgbm"):
        return convert.convert_lightgbm(estimator, initial_types=given, zipmap=False)
    return convert.convert_xgboost(estimator, initial_types=given)


def _outputs(data: bytes, draw: Callable[[], Any]) -> Iterator[tuple[str, Any]]:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(data, options)
    for case in range(_CASES):
        x = draw()
        yield f"case{case}_input0", x
        for number, y in enumerate(session.run(None, {session.get_inputs()[0].name: x})):
            yield f"case{case}_output{number}", y


def _main(folder: Path) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(300, _FEATURES)).astype(np.float32)
    targets = {
        "two": (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(int),
        "three": np.digitize(x[:, 0] + 0.3 * x[:, 3], [-0.5, 0.5]),
        "real": (x[:, 0] * 2 + x[:, 1] * x[:, 4]).astype(np.float32),
    }
    for name, (estimator, target) in _estimators().items():
        model = _exported(name, estimator.fit(x, targets[target]), x)
        model = onnx.load_from_string(model.SerializeToString())
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
        outputs: dict[str, Any] = dict(
            _outputs(model.SerializeToString(), lambda: random.normal(size=(1, _FEATURES)).astype(np.float32))
        )
        onnx.save(model, folder / f"{name}.onnx")
        np.savez_compressed(folder / f"{name}.npz", **outputs)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
