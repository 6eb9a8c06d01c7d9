"""Any scikit-learn or skorch estimator: classes that it has not seen yet keep their columns."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import tailwise
from tailwise.adapters.sklearn import predict

# Data and an estimator that you have already: digits, of which 80 are labelled, none of them an 8 or a 9.
images, truth = load_digits(return_X_y=True)
labelled = np.flatnonzero(truth < 8)[:80]
pool = np.setdiff1d(np.arange(len(images)), labelled)
known = (images[labelled], truth[labelled])
estimator = make_pipeline(PCA(20), LogisticRegression(max_iter=1000)).fit(*known)

# Tailwise
predictions = predict(estimator, images[pool], classes=10, embeddings=True, labelled=known)
batch = tailwise.select(predictions, 30, counts=np.bincount(truth[labelled], minlength=10))
print(batch)
print("label these rows next:", pool[batch.indices])
