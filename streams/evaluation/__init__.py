"""Golden questions: how well does a batch answer? File, judge, figures, and the report in three shapes."""

from streams.evaluation.golden import Golden, load_golden
from streams.evaluation.results import Evaluation
from streams.evaluation.run import evaluate

__all__ = ["Evaluation", "Golden", "evaluate", "load_golden"]
