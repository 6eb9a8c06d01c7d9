"""scikit-activeml both ways: its strategies with our balance, and ours as one of its strategies."""

import numpy as np
from skactiveml.classifier import SklearnClassifier
from skactiveml.pool import UncertaintySampling
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from tailwise.adapters.sklearn import BalancedSampling, balanced_query

# Data as scikit-activeml has it: labels that are missing are NaN.
images, truth = load_digits(return_X_y=True)
labels = np.where(np.arange(len(truth)) < 100, truth, np.nan)
classifier = SklearnClassifier(LogisticRegression(max_iter=1000), classes=range(10))

# Tailwise
batch = balanced_query(UncertaintySampling(), images, labels, clf=classifier, batch_size=30)
print(batch)
rows = BalancedSampling("boundary").query(images, labels, classifier, batch_size=30)
print("label these rows next:", rows)
