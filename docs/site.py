"""The documentation as it is published: `make site` builds this version into out/site/VERSION, beside earlier ones.

out/site/index.html leads to the newest version, and every page lists the versions there are. A web server that hands
out files is enough; pages have their own search and fetch nothing from elsewhere.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SITE = ROOT / "out" / "site"


def order(version: str) -> list[int]:
    """Versions in the order of their numbers."""
    return [int(part) for part in re.findall(r"\d+", version)]


def main(site: Path = SITE) -> None:
    """Builds this version and renews the list of all."""
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    version = re.findall(r'^version = "(.+)"', declared, re.MULTILINE)[0]
    built = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(ROOT / "docs")]
    subprocess.run([*built, str(site / version)], check=True)
    versions = sorted((p.name for p in site.iterdir() if (p / "index.html").is_file()), key=order, reverse=True)
    (site / "versions.json").write_text(json.dumps(versions) + "\n", encoding="utf-8")
    newest = versions[0]
    (site / "index.html").write_text(
        f'<!DOCTYPE html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={newest}/">'
        f'<title>Walkwise</title><p>Walkwise: <a href="{newest}/">the documentation of version {newest}</a>.</p>'
        "</html>\n",
        encoding="utf-8",
    )
    sys.stdout.write(f"Versions {', '.join(versions)} in {site}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else SITE)
