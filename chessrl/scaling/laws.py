"""The laws of scaling in one place: forms, fits, and how well they predict. Pure functions."""

from chessrl.scaling.ceiling import Trend, ceilings, trend
from chessrl.scaling.chinchilla import ChinchillaFit, fit_chinchilla
from chessrl.scaling.fitting import Fit
from chessrl.scaling.joint import Exponential, JointLaw, LossSurface, Slope
from chessrl.scaling.jointfit import Curves, JointFit, fit_joint
from chessrl.scaling.levers import levers
from chessrl.scaling.lines import (
    ExponentialFit,
    LogLinearFit,
    SlopeFit,
    fit_exponential,
    fit_log_linear,
    fit_slope,
)
from chessrl.scaling.power import PowerFit, fit_power
from chessrl.scaling.sigmoid import SigmoidFit, fit_sigmoid
from chessrl.scaling.validation import Extrapolation, Prediction, extrapolate, leave_one_out

__all__ = [
    "ChinchillaFit",
    "Curves",
    "Exponential",
    "ExponentialFit",
    "Extrapolation",
    "Fit",
    "JointFit",
    "JointLaw",
    "LogLinearFit",
    "LossSurface",
    "PowerFit",
    "Prediction",
    "SigmoidFit",
    "Slope",
    "SlopeFit",
    "Trend",
    "ceilings",
    "extrapolate",
    "fit_chinchilla",
    "fit_exponential",
    "fit_joint",
    "fit_log_linear",
    "fit_power",
    "fit_sigmoid",
    "fit_slope",
    "leave_one_out",
    "levers",
    "trend",
]
