"""Print what the results in benchmarks/results/curves reached, as the table of docs/results.md.

python benchmarks/curves_table.py
"""

import json
from pathlib import Path
from typing import Any

CURVES = Path(__file__).parent / "results" / "curves"
HEAD = ("environment", "configuration", "seed", "drawn", "likeliest", "steps", "seconds", "machine")


def entry(row: dict[str, Any], mode: str) -> str:
    """Return and interval; of each group where there are several."""
    groups = row[mode]
    values = {name: f"{value['return']:.1f} ± {value['interval']:.2f}" for name, value in groups.items()}
    if len(values) == 1:
        return next(iter(values.values()))
    return ", ".join(f"{name} {value}" for name, value in values.items())


def lines(content: dict[str, Any]) -> list[str]:
    """Lines of one result's rows, one a seed."""
    result = []
    for row in content["eval"]["rows"]:
        cells = [content["environment"], content["config"], row["seed"], entry(row, "drawn"), entry(row, "likeliest")]
        cells += [f"{row['env_steps']:,}", f"{row['seconds']:.0f}", content["machine"]]
        result.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return result


def main() -> None:
    """Print it."""
    print("| " + " | ".join(HEAD) + " |")
    print("|---" * len(HEAD) + "|")
    for path in sorted(CURVES.glob("*.json"), key=lambda path: path.stem):
        print("\n".join(lines(json.loads(path.read_text(encoding="utf-8")))))


if __name__ == "__main__":
    main()
