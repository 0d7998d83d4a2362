"""Does bisect find the release that was made slower, in as few comparisons as promised?"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

from inferlab import Lab, Plan
from inferlab.engines import environments
from inferlab.errors import BadInput
from inferlab.lab.bisection import BisectionRequest, most_comparisons
from tests.helpers.releases import NAME, local_releases, save_two_layers, save_wheel

# Both layers of a release together, in microseconds: the time of a small model.
_LAYERS_US = (1000.0, 1000.0)


def _install(name: str) -> None:
    environments.install(name)


def main() -> None:
    """Plant a slower release at a random place, search for it, again and again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=10)
    parser.add_argument("--releases", type=int, default=16, help="how many follow the good one")
    parser.add_argument("--slower", type=float, default=0.05, help="by which share the planted one is slower")
    parser.add_argument("--time", type=float, default=30.0, help="seconds for each comparison")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    places = random.Random(arguments.seed)
    right_releases = 0
    for number in range(1, arguments.tries + 1):
        planted = places.randint(1, arguments.releases)
        with tempfile.TemporaryDirectory() as folder, local_releases(Path(folder)) as wheels:
            for minor in range(arguments.releases + 1):
                second = _LAYERS_US[1] + (sum(_LAYERS_US) * arguments.slower if minor >= planted else 0.0)
                save_wheel(wheels, f"1.{minor}", layers_us=(_LAYERS_US[0], second))
            model = save_two_layers(Path(folder) / "two.onnx")
            plan = Plan(str(model), (NAME,), ("sync",), num_cores=(1,))
            request = BisectionRequest(plan, "1.0", f"1.{arguments.releases}", time_s=arguments.time)
            try:
                search = Lab().bisect(request, _install)
            except BadInput as error:
                print(f"{number}: planted in 1.{planted}: {error}")
                continue
        right = search.first_bad == f"1.{planted}"
        right_releases += right
        compared = f"{len(search.steps)} of at most {most_comparisons(search.versions)} comparisons"
        print(f"{number}: planted in 1.{planted}, found {search.first_bad}, {compared}")
    print(
        f"Found in {right_releases} of {arguments.tries} tries "
        f"({arguments.slower:.1%} slower, {arguments.releases} releases)."
    )


if __name__ == "__main__":
    main()
