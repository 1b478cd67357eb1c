"""Tests see the figures on file, whatever this machine's user has calibrated."""

import os

from recsys_lab.config.calibrated import VARIABLE

os.environ[VARIABLE] = "none"
