"""Put tables of results/ into the pages that show them: a number is written once.

A page says `<!-- table: results/NAME/table.md -->`, and what stands between that line and
`<!-- end of table -->` is replaced by the file.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "results" / "README.md")
_PLACE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def with_tables(text: str) -> str:
    """The text of a page with the tables as they are now."""
    return _PLACE.sub(lambda m: f"{m[1]}\n{(ROOT / m[2]).read_text()}\n{m[3]}", text)


if __name__ == "__main__":
    for page in PAGES:
        before = page.read_text()
        after = with_tables(before)
        if after != before:
            page.write_text(after)
            print(f"tables of {page.relative_to(ROOT)} renewed")
