"""A child that calibrates in no time, with a made-up machine's times."""

from __future__ import annotations

import json
from pathlib import Path

from tests.app.advisor.machine import a_profile
from tests.app.lab.programs import serving


def calibrating(folder: Path, *first: str) -> tuple[str, ...]:
    """Its times are 2 % longer each time it calibrates: 1, 1.02, 1.04 times. It writes its jobs down in `jobs`. first:
    lines of Python that it runs before it calibrates."""
    (folder / "made-up.json").write_text(json.dumps(a_profile().to_json()), encoding="utf-8")
    return serving(
        f"with open({str(folder / 'jobs')!r}, 'a') as jobs: jobs.write(line)",
        *first,
        f"document = json.load(open({str(folder / 'made-up.json')!r}))",
        f"count = {str(folder / 'count')!r}",
        "times = 1.02 * float(open(count).read()) if os.path.exists(count) else 1.0",
        "open(count, 'w').write(str(times))",
        "document |= dict(name=job['name'], fingerprint=job['fingerprint'])",
        "for row in document['points'] + document['networks']:",
        "    row['seconds'] = {k: v if k == 'samples' else times * v for k, v in row['seconds'].items()}",
        'say(event="result", job=job["job"], result=document)',
    )
