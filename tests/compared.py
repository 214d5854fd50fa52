"""What the tests of comparisons share: plans of both vLLM recipes, and runs of them with made-up figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from fleet import plan as plans
from fleet.model import load
from fleet.model.arm import ONCE, Repeats
from fleet.model.evidence import Drawn
from fleet.plan import Plan
from fleet.results.record import Figures, Image, Record, Verdict
from fleet.results.sample import Sample, of_run
from fleet.results.store import RunFolder
from tests.judged import a_record

ROOT = Path(__file__).resolve().parents[1]
STP, MTP = "dsv4-fp4-mi355x-vllm", "dsv4-fp4-mi355x-vllm-mtp"
ARM = {STP: "tp8-8k1k", MTP: "tp8-mtp2-8k1k"}
DRAWN = Drawn(client="vllm bench serve", input=(6553, 8192), output=(819, 1024), public_sequence=False)


@cache
def a_plan(key: str, conc: tuple[int, ...] = (4, 8, 16, 32, 64), repeats: Repeats = ONCE) -> Plan:
    """The 8k1k arm of a vLLM recipe on the example's hosts."""
    inventory = load.inventory(ROOT / "inventories" / "example-mi355x.yaml")
    recipe = load.recipe(key, ROOT / "recipes")
    return plans.build(recipe, inventory, ROOT / "recipes", arm=ARM[key], conc=conc, repeats=repeats)


def records(key: str, outputs: Mapping[int, Sequence[float]], **changes: Any) -> list[Record]:
    """A record for each output figure (tok/s per GPU) at each concurrency; the other figures follow from it."""
    made, found = a_plan(key), []
    mtp = key == MTP
    for conc, repeats in outputs.items():
        for number, output in enumerate(repeats):
            arm = made.arms[0].arm
            point = f"{arm.name}-c{conc}" + (f"-r{number}" if number else "")
            facts = {
                "run": f"20261201-100000-{key}-{made.hash6}", "key": key, "plan": made.hash, "arm": arm.name,
                "point": point, "conc": conc, "asked": conc, "repeat": number, "prompts": 10 * conc,
                "warmups": 2 * conc, "chat": mtp, "spec": arm.spec, "depth": arm.depth, "gpus": arm.gpus,
                "drawn": DRAWN,
                "image": Image(tag=arm.image, id="sha256:a41f"),
                "figures": Figures(
                    output_tput_per_gpu=output, tput_per_gpu=9 * output, input_tput_per_gpu=8 * output,
                    median_intvty=8 * output / conc, median_ttft_ms=1000 * conc / output,
                ),
            }  # fmt: skip
            found.append(a_record(**(facts | changes)))
    return found


def samples(key: str, outputs: Mapping[int, Sequence[float]], **changes: Any) -> tuple[Sample, ...]:
    return of_run(records(key, outputs, **changes), a_plan(key))


def kept(root: Path, key: str, outputs: Mapping[int, Sequence[float]], *, run: str = "", **changes: Any) -> RunFolder:
    """The same as a folder below results/."""
    made = a_plan(key, repeats=Repeats(count=max(map(len, outputs.values()))))
    folder = RunFolder(root / (run or f"20261201-100000-{key}-{made.hash6}"))
    folder.path.mkdir(parents=True)
    folder.write_text(folder.plan_json, plans.to_json(made))
    for record in records(key, outputs, run=folder.name, plan=made.hash, **changes):
        folder.append_record(record)
    return folder


def by(gain: Callable[[int], float], base: Mapping[int, Sequence[float]]) -> dict[int, list[float]]:
    """The same points, each changed by a factor that depends on the concurrency."""
    return {conc: [value * gain(conc) for value in repeats] for conc, repeats in base.items()}


INVALID = Verdict(valid=False, reasons=("requests: 39 of 40 completed, 40 asked",))
