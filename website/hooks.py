"""The steps of `mkdocs` that the pages need to work on a code host and on the site alike.

On a code host a page may link to any file of the repository. The site has only the pages of
`docs/`, so the files that pages link to become pages of the site, which show the source.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File, Files, InclusionLevel

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCES: Final = "source"
"""The folder of the site with the pages of files outside `docs/`."""
LANGUAGES: Final = {".py": "python", ".toml": "toml", ".c": "c", ".xml": "xml", ".sh": "sh"}
_FENCE: Final = re.compile(r"^( *)```.*?^ *```", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"(?<!!)(\[[^\]]*\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
_SENTENCE: Final = re.compile(r"^# .*?\n\n(.+?)\n\n", re.MULTILINE | re.DOTALL)


def outside(page: str, link: str) -> str | None:
    """Return the path in the repository that a link of a page leads to, None if it is in `docs/`
    or elsewhere on the network."""
    if re.match(r"[a-z]+:", link):
        return None
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    return None if path == "docs" or path.startswith("docs/") else path


def shown_at(path: str) -> str:
    """Return the page of the site that shows a file or a folder of the repository."""
    if path.endswith(".md"):
        return f"{SOURCES}/{path}"
    return f"{SOURCES}/{path}.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file and folder outside `docs/` that a page links to."""
    todo = [
        path
        for file in files.documentation_pages()
        for _, link, _ in _LINK.findall(_FENCE.sub("", file.content_string))
        if (path := outside(file.src_uri, link)) is not None
    ]
    done: set[str] = set()
    while todo:
        path = todo.pop()
        if path in done:
            continue
        done.add(path)
        content = folder_page(path) if (ROOT / path).is_dir() else file_page(path)
        if (ROOT / path).is_dir():
            todo += listed(path)
        files.append(
            File.generated(
                config, shown_at(path), content=content, inclusion=InclusionLevel.NOT_IN_NAV
            )
        )
    return files


def listed(path: str) -> list[str]:
    """Return the files of a folder that its page names."""
    return sorted(
        each.relative_to(ROOT).as_posix()
        for each in (ROOT / path).iterdir()
        if each.suffix in LANGUAGES and each.name != "__init__.py"
    )


def folder_page(path: str) -> str:
    """Return the page of a folder: a list of its files."""
    items = [
        f"- [{posixpath.basename(each)}]({posixpath.basename(path)}/{posixpath.basename(each)}.md)"
        for each in listed(path)
    ]
    return "\n".join([_head(path), *items, ""])


def file_page(path: str) -> str:
    """Return the page of a file: its text."""
    text = (ROOT / path).read_text("utf-8")
    suffix = posixpath.splitext(path)[1]
    if suffix == ".md":
        # Its links and pictures lead to places that the site does not have.
        text = re.sub(r"!\[([^\]]*)\]\([^)]*\)", r"*\1*", text)
        text = re.sub(r"\[([^\]]*)\]\((?![a-z]+:)[^)]*\)", r"\1", text)
        return f"---\nsearch:\n  exclude: true\n---\n\n{text}"
    return f"{_head(path)}````{LANGUAGES.get(suffix, '')}\n{text.rstrip()}\n````\n"


def _head(path: str) -> str:
    return f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links that leave `docs/` to the pages that show the files, and take the first sentence
    of the page as its description."""
    source = page.file.src_uri
    if source.startswith(f"{SOURCES}/"):
        return markdown
    found = _SENTENCE.search(markdown)
    if found is not None and "description" not in page.meta:
        page.meta["description"] = plain(found[1])
    here = posixpath.dirname(source) or "."

    def turned(match: re.Match[str]) -> str:
        path = outside(source, match[2])
        if path is None:
            return match[0]
        return f"{match[1]}{posixpath.relpath(shown_at(path), here)}{match[3]}"

    parts: list[str] = []
    end = 0
    for fence in _FENCE.finditer(markdown):
        parts += [_LINK.sub(turned, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(turned, markdown[end:])])


def plain(text: str) -> str:
    """Return a sentence without the marks of Markdown."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[`*]", "", " ".join(text.split()))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Have mkdocstrings read the packages by their sources, whatever is installed."""
    os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")
    return config
