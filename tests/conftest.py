"""Generated examples are the same in every run: a red build can be repeated.

`--hypothesis-profile=quick` makes a tenth of them, for runs that only ask which lines are reached.
"""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "thorough",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],  # a clock, too
)
settings.register_profile("quick", settings.get_profile("thorough"), max_examples=10)
settings.load_profile("thorough")
