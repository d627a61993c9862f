"""A compiled model's step of training, everything compiled, and its first step: seconds."""

from importlib.util import find_spec
from time import perf_counter

from nbtc.examples import timing


class Step:
    """Forward and backward of the example's character model for an H200."""

    timeout = 600

    def setup(self):
        if find_spec("torch") is None or find_spec("triton") is None:
            raise NotImplementedError("needs torch and triton")
        from nbtc.examples import characters

        start = perf_counter()
        self.training = characters.Training("H200")
        self.training.step()
        self.first = perf_counter() - start

    def track_seconds(self):
        return timing.best_time(self.training.step, 10)

    def track_first_step(self):
        return self.first

    track_seconds.unit = track_first_step.unit = "seconds"
