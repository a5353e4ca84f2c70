"""Questions as the explorer's page asks them."""

from __future__ import annotations


def question(output, inputs, changed):
    """A question as the page asks it: outputs, and the values of what it depends on."""
    outputs = [dict(zip(("id", "property"), part.split("."), strict=True)) for part in output]
    several = len(output) > 1
    return {
        "output": f"..{'...'.join(output)}.." if several else output[0],
        "outputs": outputs if several else outputs[0],
        "inputs": [{"id": name, "property": "data", "value": value} for name, value in inputs.items()],
        "changedPropIds": [f"{changed}.data"],
    }
