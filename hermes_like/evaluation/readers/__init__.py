"""One small file per family of datasets; :mod:`hermes_like.evaluation.base` has the contract."""
